//! `bulk show` and `stop`: actions on many runs that are in progress.

use outlast::RunId;
use outlast_api::{BulkJson, BulkStopRequest};

use super::CommandContext;
use super::bulk::{follow, summarize};
use crate::args::BulkCommand;
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, Tone, one_line, times};

/// Executes a command on bulk actions.
pub(super) async fn bulk(context: &CommandContext, command: BulkCommand) -> Result<Exit, CommandError> {
    match command {
        BulkCommand::Show { run, watch } => show(context, run, watch).await,
        BulkCommand::Stop { run, reason } => stop(context, run, reason).await,
    }
}

async fn show(context: &CommandContext, run: RunId, watch: bool) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let bulk = surface.bulk(run).await?;
    let action = bulk.action.clone();
    if watch {
        let ended = follow(context, &*surface, bulk, &action).await?;
        context.console.document(&ended)?;
        return summarize(context, &action, &ended);
    }
    context.console.document(&bulk)?;
    print(context, &bulk)?;
    Ok(Exit::Done)
}

async fn stop(context: &CommandContext, run: RunId, reason: Option<String>) -> Result<Exit, CommandError> {
    let bulk = context.surface().await?.stop_bulk(run, &BulkStopRequest { reason }).await?;
    context.console.document(&bulk)?;
    context.console.message(format!("asked to stop after {} runs", bulk.done + bulk.failed));
    Ok(Exit::Done)
}

fn print(context: &CommandContext, bulk: &BulkJson) -> Result<(), CommandError> {
    let (console, look, now) = (&context.console, context.console.look, context.console.now());
    let fact = |label: &str, text: String| {
        console.line(format!("{}{text}", look.paint(Tone::Dim, format!("{label:<9}"))))
    };
    let tone = match bulk.state.as_str() {
        "completed" => Tone::Good,
        "running" => Tone::Active,
        _ => Tone::Warning,
    };
    console.line(format!("{}  {}  {}", bulk.id, one_line(&bulk.action), look.paint(tone, &bulk.state)))?;
    let by = bulk.actor.as_ref().map(|actor| format!(" by {}", one_line(actor))).unwrap_or_default();
    fact("started", format!("{}{by}", times::ago(now, bulk.created_at.0)))?;
    let more = if bulk.more { "more than " } else { "" };
    fact("matched", format!("{more}{}", bulk.matched))?;
    fact("done", format!("{} ({} without effect)", bulk.done, bulk.without_effect))?;
    if let Some(left) = bulk.left.filter(|_| bulk.state == "running") {
        fact("left", left.to_string())?;
    }
    if let Some(stop) = &bulk.stopped {
        fact("stopped", one_line(&stop.reason).into_owned())?;
    }
    if bulk.failed > 0 {
        fact("refused", bulk.failed.to_string())?;
        let mut table = Table::new([("RUN", Align::Left), ("WHY", Align::Left)]);
        for problem in &bulk.problems {
            table.row([problem.run.to_string(), one_line(&problem.message).into_owned()]);
        }
        console.lines(table.lines(look))?;
    }
    Ok(())
}
