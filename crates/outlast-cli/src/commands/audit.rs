//! `audit list`: who changed something through a server, and who was refused.

use outlast_api::{AuditFilter, AuditJson, PageRequest};

use super::CommandContext;
use super::input::past_time;
use crate::args::AuditListArgs;
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, one_line, times};

/// Lists the audit.
pub(super) async fn list(context: &CommandContext, args: &AuditListArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let since = args.since.as_deref().map(|text| past_time(console.now(), "--since", text)).transpose()?;
    let filter = AuditFilter {
        actor: args.actor.clone(),
        action: args.action.clone(),
        run: args.run,
        outcome: args.outcome,
        from: since,
        to: None,
        page: PageRequest { limit: Some(args.limit as usize), cursor: args.cursor.clone() },
    };
    let page = context.surface().await?.audit(&filter).await?;
    console.page(&page, &page.items)?;
    if console.is_for_people() && page.items.is_empty() {
        console.message("the audit has no such record; only requests to servers are recorded");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("WHEN", Align::Right),
        ("ACTOR", Align::Left),
        ("ROLE", Align::Left),
        ("ACTION", Align::Left),
        ("TARGET", Align::Left),
        ("OUTCOME", Align::Left),
        ("REASON", Align::Left),
    ]);
    let now = console.now();
    for record in &page.items {
        table.row([
            times::ago(now, record.at.0),
            one_line(&record.actor).into_owned(),
            record.role.map(|role| role.to_string()).unwrap_or_default(),
            one_line(&record.action).into_owned(),
            one_line(&target(record)).into_owned(),
            outcome(record),
            one_line(record.reason.as_deref().unwrap_or_default()).into_owned(),
        ]);
    }
    console.lines(table.lines(console.look))?;
    if let Some(next) = page.next.filter(|_| console.is_for_people()) {
        console.message(format!("more: --cursor {next}"));
    }
    Ok(Exit::Done)
}

fn target(record: &AuditJson) -> String {
    let run = record.run.map(|run| run.to_string());
    let names = [run, record.target.clone()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    if names.is_empty() { record.route.clone() } else { names }
}

fn outcome(record: &AuditJson) -> String {
    match &record.code {
        Some(code) => format!("{} ({})", record.outcome, one_line(code)),
        None => record.outcome.to_string(),
    }
}
