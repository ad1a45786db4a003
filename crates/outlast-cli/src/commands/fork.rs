//! `run fork`: starts a new run with the events of another one before a cut.

use outlast_api::{ForkPlanJson, ForkRequest, PlannedOperationJson};
use serde_json::value::RawValue;

use super::CommandContext;
use super::input::read_json;
use super::run_output::print_output;
use crate::args::ForkArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::Console;
use crate::output::ids::short_id;
use crate::wait::wait_for_end;

/// Forks a run.
pub(super) async fn fork(context: &CommandContext, args: &ForkArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let mut request =
        ForkRequest { event: args.event, force: args.force, dry_run: args.dry_run, ..ForkRequest::default() };
    for text in &args.output {
        let (op, output) = read_output(text)?;
        request.outputs.insert(op, output);
    }
    let surface = context.surface().await?;
    let run = find_run(&*surface, &args.run.run).await?;
    if args.dry_run {
        let plan = surface.fork_plan(run, &request).await?;
        print_plan(console, &short_id(console.look, run), &plan)?;
        return Ok(Exit::Done);
    }
    let forked = surface.fork(run, &request).await?;
    console.document(&forked)?;
    console.message(format!("forked {}", short_id(console.error_look, run)));
    console.line(forked.id.to_string())?;
    if !args.wait {
        return Ok(Exit::Done);
    }
    let output = wait_for_end(&*surface, forked.id, None).await?;
    print_output(console, &output)
}

/// Reads `OP=JSON`.
fn read_output(text: &str) -> Result<(u64, Box<RawValue>), CommandError> {
    let parts = text.split_once('=').and_then(|(op, json)| Some((op.trim().parse().ok()?, json)));
    let (op, json) = parts.ok_or_else(|| {
        CommandError::usage(format!(
            "`{text}` is not OP=JSON; `outlast run steps` lists the operations: --output 3='{{\"rate\": 120}}'"
        ))
    })?;
    Ok((op, read_json(&format!("output of operation {op}"), json)?))
}

fn print_plan(console: &Console, run: &str, plan: &ForkPlanJson) -> Result<(), CommandError> {
    console.document(plan)?;
    let (event, dropped) = (plan.event, plan.dropped_events);
    let events = if event == 1 { "event" } else { "events" };
    console.line(format!("would fork {run} at event {event}: copies {event} {events}, drops {dropped}"))?;
    for output in &plan.outputs {
        console.line(format!("{:>4}  {} {}  gets another outcome", output.op, output.kind, output.name))?;
    }
    plan.open.iter().try_for_each(|open| console.line(operation_line(open, "begins again")))?;
    plan.later
        .iter()
        .try_for_each(|later| console.line(operation_line(later, "is dropped, and may be requested again")))
}

fn operation_line(operation: &PlannedOperationJson, what: &str) -> String {
    let queue = operation.queue.as_ref().map(|queue| format!("  queue {queue}")).unwrap_or_default();
    let once = if operation.at_most_once { "  at most once" } else { "" };
    format!("{:>4}  {} {}{queue}{once}  {what}", operation.op, operation.kind, operation.name)
}
