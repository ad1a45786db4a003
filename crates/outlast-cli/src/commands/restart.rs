//! `run restart`: starts new runs with the workflow and input of others.

use outlast::RunId;
use outlast_api::{BulkAction, BulkRequest, RestartRequest};

use super::CommandContext;
use super::bulk::BulkSelection;
use super::input::read_json;
use super::run_output::print_output;
use crate::args::RestartArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::ids::short_id;
use crate::surface::Surface;
use crate::wait::wait_for_end;

/// Restarts runs.
pub(super) async fn restart(context: &CommandContext, args: &RestartArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let request =
        RestartRequest { input: args.input.as_ref().map(|input| read_json("input", input)).transpose()? };
    if (args.wait || request.input.is_some()) && args.control.runs.len() != 1 {
        return Err(CommandError::usage("`--input` and `--wait` are for one run; name it"));
    }
    let surface = context.surface().await?;
    let mut runs = Vec::new();
    if args.control.runs.is_empty() {
        let action = BulkRequest::new(BulkAction::Restart);
        let selection = BulkSelection::new(context, &*surface, action, "restart", &args.control).await?;
        return match selection {
            Some(selection) => selection.execute(context, &*surface, "restart").await,
            None => Ok(Exit::Done),
        };
    }
    for text in &args.control.runs {
        runs.push(find_run(&*surface, text).await?);
    }
    for run in runs {
        let started = restart_one(context, &*surface, run, &request, args.control.dry_run).await?;
        if let Some(started) = started.filter(|_| args.wait) {
            let output = wait_for_end(&*surface, started, None).await?;
            return print_output(console, &output);
        }
    }
    Ok(Exit::Done)
}

async fn restart_one(
    context: &CommandContext,
    surface: &dyn Surface,
    run: RunId,
    request: &RestartRequest,
    is_dry: bool,
) -> Result<Option<RunId>, CommandError> {
    let console = &context.console;
    if is_dry {
        let found = surface.run(run).await?;
        console.document(&found)?;
        console.line(format!("would restart {run}"))?;
        return Ok(None);
    }
    let started = surface.restart(run, request).await?;
    console.document(&started)?;
    console.message(format!("restarted {}", short_id(console.error_look, run)));
    console.line(started.id.to_string())?;
    Ok(Some(started.id))
}
