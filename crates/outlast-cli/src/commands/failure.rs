//! `failure list` and `show`: failed runs of the last day, in groups.

use outlast_api::{FailureFilter, FailureGroupJson};

use super::CommandContext;
use super::input::past_time;
use super::list::print as print_runs;
use crate::args::FailureCommand;
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Look, Table, one_line, times};

/// Executes a command on failures.
pub(super) async fn failure(context: &CommandContext, command: FailureCommand) -> Result<Exit, CommandError> {
    match command {
        FailureCommand::List { workflow, since } => list(context, workflow, since).await,
        FailureCommand::Show { fingerprint } => show(context, &fingerprint).await,
    }
}

async fn list(
    context: &CommandContext,
    workflow: Option<String>,
    since: Option<String>,
) -> Result<Exit, CommandError> {
    let console = &context.console;
    let since = since.map(|text| past_time(console.now(), "--since", &text)).transpose()?;
    let failures = context.surface().await?.failures(&FailureFilter { workflow, since }).await?;
    console.page(&failures, &failures.items)?;
    if console.is_for_people() && failures.items.is_empty() {
        let since = console.zone.minute(failures.since.0);
        console.message(format!("nothing has failed since {since}"));
        return Ok(Exit::Done);
    }
    print(context, &failures.items)?;
    if failures.truncated && console.is_for_people() {
        console.message("there are more failures than were counted");
    }
    Ok(Exit::Done)
}

async fn show(context: &CommandContext, fingerprint: &str) -> Result<Exit, CommandError> {
    let found = context.surface().await?.failure(fingerprint).await?;
    context.console.document(&found)?;
    if context.console.is_for_people() {
        print(context, &found.groups)?;
        print_runs(&context.console, &found.runs, false)?;
    }
    Ok(Exit::Done)
}

fn print(context: &CommandContext, groups: &[FailureGroupJson]) -> Result<(), CommandError> {
    let (console, now) = (&context.console, context.console.now());
    if groups.is_empty() {
        return Ok(());
    }
    let mut table = Table::new([
        ("COUNT", Align::Right),
        ("LAST", Align::Right),
        ("24 HOURS", Align::Left),
        ("FINGERPRINT", Align::Left),
        ("WORKFLOW", Align::Left),
        ("STEP", Align::Left),
        ("WHY", Align::Left),
    ]);
    for group in groups {
        let code = group.code.as_ref().map(|code| format!("{code}: ")).unwrap_or_default();
        table.row([
            group.count.to_string(),
            times::age(now, group.last.0),
            bars(console.look, &group.by_hour),
            group.fingerprint.clone(),
            one_line(&group.workflow).into_owned(),
            group.step.as_deref().map(|step| one_line(step).into_owned()).unwrap_or_default(),
            one_line(&format!("{code}{}", group.message)).into_owned(),
        ]);
    }
    console.lines(table.without_empty_columns().lines(console.look))
}

/// A bar for each two hours.
fn bars(look: Look, by_hour: &[u64]) -> String {
    let pairs: Vec<u64> = by_hour.chunks(2).map(|pair| pair.iter().sum()).collect();
    let largest = pairs.iter().copied().max().unwrap_or(0).max(1);
    let levels: &[char] = match look.has_unicode {
        true => &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        false => &['_', '.', ':', '!', '#'],
    };
    let level = |count: u64| match count {
        0 => ' ',
        count => levels[((count * levels.len() as u64).div_ceil(largest) as usize - 1).min(levels.len() - 1)],
    };
    pairs.into_iter().map(level).collect()
}
