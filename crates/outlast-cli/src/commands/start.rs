//! `start`: starts runs.

use outlast_api::{BatchRequest, BatchResult, RunJson, StartRequest};

use super::CommandContext;
use super::input::{read_json, read_text};
use super::run_output::print_output;
use super::watch::follow;
use crate::args::StartArgs;
use crate::exit::{CommandError, Exit};
use crate::output::one_line;
use crate::surface::Surface;
use crate::wait::wait_for_end;

/// The largest number of starts in one request.
const BATCH_MAX: usize = 1_000;

/// Starts a run, or many.
pub(super) async fn start(context: &CommandContext, args: &StartArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    if let Some(batch) = &args.batch {
        return start_batch(context, batch).await;
    }
    let request = request(args)?;
    let surface = context.surface().await?;
    let started = surface.start(request).await?;
    let (run, name) = (&started.run, one_line(&started.run.workflow));
    let what = if started.is_new { "started" } else { "the key belongs to an earlier start of" };
    console.message(format!("{what} {name} v{}", run.version));
    if started.is_new && lacks_code(&*surface, run).await {
        console.message(format!("no joined worker has code for workflow `{name}`; the run waits for one"));
    }
    if args.wait {
        console.message(format!("run {}", run.id));
        let output = wait_for_end(&*surface, run.id, None).await?;
        return print_output(console, &output);
    }
    console.document(run)?;
    console.line(run.id.to_string())?;
    if args.follow { follow(context, &*surface, run.id).await } else { Ok(Exit::Done) }
}

/// Whether no joined worker has code for the workflow of the run. The run is started, so a failure of the question is no
/// failure of the command.
async fn lacks_code(surface: &dyn Surface, run: &RunJson) -> bool {
    let workflows = surface.workflows().await;
    workflows.is_ok_and(|known| known.items.iter().all(|workflow| workflow.name != run.workflow))
}

fn request(args: &StartArgs) -> Result<StartRequest, CommandError> {
    let usage = |name: &str, message: String| CommandError::usage(format!("{name}: {message}"));
    let at = args.at.as_ref().map(|text| text.parse()).transpose();
    let deadline = args.deadline.as_ref().map(|text| text.parse()).transpose();
    Ok(StartRequest {
        workflow: args.workflow.clone().unwrap_or_default(),
        input: args.input.as_ref().map(|input| read_json("input", input)).transpose()?,
        version: args.version,
        key: args.key.clone(),
        key_window: args.key_window.clone(),
        id: None,
        queue: args.queue.clone(),
        priority: args.priority,
        tags: args.tag.iter().cloned().collect(),
        headers: args.header.iter().cloned().collect(),
        at: at.map_err(|error: outlast_api::InvalidTime| usage("--at", error.to_string()))?,
        after: args.after.clone(),
        deadline: deadline.map_err(|error| usage("--deadline", error))?,
    })
}

/// Starts one run per line of a file. The exit code is that of a failure if one was refused.
async fn start_batch(context: &CommandContext, file: &str) -> Result<Exit, CommandError> {
    let source = if file == "-" { "-".to_owned() } else { format!("@{file}") };
    let text = read_text(&source)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let starts = lines.map(|(index, line)| {
        let parsed = serde_json::from_str::<StartRequest>(line);
        parsed.map_err(|error| CommandError::usage(format!("line {} of {file}: {error}", index + 1)))
    });
    let starts: Vec<StartRequest> = starts.collect::<Result<_, _>>()?;
    let surface = context.surface().await?;
    let (mut started, mut existing, mut refused) = (0, 0, 0);
    for part in starts.chunks(BATCH_MAX) {
        let answer = surface.start_batch(BatchRequest { starts: part.to_vec() }).await?;
        context.console.page(&answer, &answer.results)?;
        for (request, result) in part.iter().zip(&answer.results) {
            match result {
                BatchResult { run: Some(run), is_new, .. } => {
                    context.console.line(run.id.to_string())?;
                    if *is_new { started += 1 } else { existing += 1 }
                }
                BatchResult { problem, .. } => {
                    refused += 1;
                    let why = problem.as_ref().map_or("no reason was given", |problem| &problem.detail);
                    context.console.warning(format!("{}: {}", one_line(&request.workflow), one_line(why)));
                }
            }
        }
    }
    context.console.message(format!("{started} started, {existing} existed already, {refused} refused"));
    Ok(if refused == 0 { Exit::Done } else { Exit::Failure })
}
