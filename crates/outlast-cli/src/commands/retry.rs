//! `run retry`: continues runs from the operation that failed.

use outlast_api::{BulkAction, BulkRequest, ControlledJson, RetryPlanJson, RetryRunRequest};

use super::CommandContext;
use super::bulk::BulkSelection;
use super::control::print_controlled;
use crate::args::RetryArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::Console;
use crate::output::ids::short_id;
use crate::surface::{Control, Surface};

/// Retries the named runs, or those that the filters select.
pub(super) async fn retry(context: &CommandContext, args: &RetryArgs) -> Result<Exit, CommandError> {
    let deadline = args.deadline.as_ref().map(|text| text.parse()).transpose();
    let request = RetryRunRequest {
        from: args.from,
        deadline: deadline.map_err(|error: String| CommandError::usage(format!("--deadline: {error}")))?,
        force: args.force,
        dry_run: args.control.dry_run,
        reason: args.control.reason.clone(),
    };
    if request.from.is_some() && args.control.runs.len() != 1 {
        return Err(CommandError::usage("`--from` is for one run; name it"));
    }
    let surface = context.surface().await?;
    if args.control.runs.is_empty() {
        return many(context, &*surface, args).await;
    }
    let mut runs = Vec::new();
    for text in &args.control.runs {
        runs.push(find_run(&*surface, text).await?);
    }
    for run in runs {
        let done = surface.control(run, &Control::Retry(request.clone())).await?;
        match &done.plan {
            Some(plan) => print_plan(&context.console, &done, plan)?,
            None => print_controlled(&context.console, "retry", &done)?,
        }
    }
    Ok(Exit::Done)
}

fn print_plan(
    console: &Console,
    controlled: &ControlledJson,
    plan: &RetryPlanJson,
) -> Result<(), CommandError> {
    console.document(controlled)?;
    let run = short_id(console.look, controlled.run.id);
    console.line(format!(
        "would retry {run} from operation {}: skips {} events, keeps {} outcomes of them; open again:",
        plan.reopens, plan.skipped_events, plan.recorded_again
    ))?;
    for open in &plan.open {
        let queue = open.queue.as_ref().map(|queue| format!("  queue {queue}")).unwrap_or_default();
        let once = if open.at_most_once { "  at most once" } else { "" };
        console.line(format!("{:>4}  {} {}{queue}{once}", open.op, open.kind, open.name))?;
    }
    Ok(())
}

/// Retries all runs that the filters select.
async fn many(
    context: &CommandContext,
    surface: &dyn Surface,
    args: &RetryArgs,
) -> Result<Exit, CommandError> {
    if args.force || args.deadline.is_some() {
        return Err(CommandError::usage("`--force` and `--deadline` are for runs that you name"));
    }
    let action = BulkRequest::new(BulkAction::Retry);
    let selection = BulkSelection::new(context, surface, action, "retry", &args.control).await?;
    match selection {
        Some(selection) => selection.execute(context, surface, "retry").await,
        None => Ok(Exit::Done),
    }
}
