//! `worker` and `check`: what needs the code of a program; `worker list`, `workflow list`.

use outlast_api::WorkerJson;

use super::CommandContext;
use crate::app::{WorkerCode, WorkerOptions};
use crate::args::{CheckArgs, WorkerArgs};
use crate::connect::{open_existing, world_url};
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, one_line, times};

fn no_code(context: &CommandContext, command: &str) -> CommandError {
    CommandError::usage(format!(
        "`{} {command}` needs workflows, and this program has none; call it in your own program, which registers them \
         with `outlast_cli::App`",
        context.name
    ))
}

/// Executes runs until the process is asked to stop.
pub(super) async fn work(
    context: &CommandContext,
    args: &WorkerArgs,
    code: Option<Box<dyn WorkerCode>>,
) -> Result<Exit, CommandError> {
    let code = code.ok_or_else(|| no_code(context, "worker"))?;
    let url = world_url(&context.settings, &context.console, "a worker")?;
    let world = if args.migrate { outlast::open(&url).await? } else { open_existing(&url).await? };
    let options = WorkerOptions { queues: args.queue.clone(), codec: context.codec.clone() };
    if args.until_idle {
        let next = code.run_until_idle(world, options).await?;
        let next = next.map(|at| format!("; the next run is due {}", times::ago(context.console.now(), at)));
        context.console.message(format!("nothing is ready{}", next.unwrap_or_default()));
        return Ok(Exit::Done);
    }
    let worker = code.start(world, options).await?;
    context.console.message(format!("worker {} joined; Ctrl-C stops it", worker.session()));
    worker.run_until_signal().await?;
    Ok(Exit::Done)
}

/// Replays all open runs with the code of this program. Exits with 1 if a run could not be continued.
pub(super) async fn check(
    context: &CommandContext,
    args: &CheckArgs,
    code: Option<Box<dyn WorkerCode>>,
) -> Result<Exit, CommandError> {
    let console = context.console.clone();
    let code = code.ok_or_else(|| no_code(context, "check"))?;
    let url = world_url(&context.settings, &console, "a check")?;
    let world = open_existing(&url).await?;
    let options = WorkerOptions { queues: Vec::new(), codec: context.codec.clone() };
    let (shows_progress, printer) = (args.progress, console.clone());
    let on_progress = Box::new(move |runs| {
        if shows_progress {
            printer.message(format!("{runs} runs"));
        }
    });
    let report = code.check(world, options, on_progress).await?;
    if console.is_for_people() {
        console.lines(report.to_string().trim_end().lines())?;
    } else {
        let summary = serde_json::json!({
            "ok": report.is_ok(),
            "runs": report.runs(),
            "continued": report.continued(),
            "stuck": report.stuck(),
            "without_code": report.without_code(),
        });
        console.document(&summary)?;
    }
    Ok(if report.is_ok() { Exit::Done } else { Exit::Failure })
}

/// Lists the joined workers.
pub(super) async fn list(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let workers = surface.workers().await?;
    console.page(&workers, &workers.items)?;
    if console.is_for_people() && workers.items.is_empty() {
        console.message("no worker has joined; start your program, or see `outlast dev --help`");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("WORKER", Align::Left),
        ("STATUS", Align::Left),
        ("JOINED", Align::Right),
        ("BEAT", Align::Right),
        ("RUNS", Align::Right),
        ("ATTEMPTS", Align::Right),
        ("QUEUES", Align::Left),
        ("BUILD", Align::Left),
        ("WORKFLOWS", Align::Left),
    ]);
    let now = console.now();
    for worker in &workers.items {
        table.row([
            format!("{}:{}", one_line(&worker.host), worker.pid),
            worker.status.clone(),
            times::age(now, worker.joined_at.0),
            times::age(now, worker.beat_at.0),
            worker.held.to_string(),
            worker.attempts.to_string(),
            one_line(&worker.queues.join(",")).into(),
            one_line(worker.build.get(..8).unwrap_or(&worker.build)).into(),
            workflows(worker),
        ]);
    }
    console.lines(table.lines(console.look))?;
    Ok(Exit::Done)
}

fn workflows(worker: &WorkerJson) -> String {
    let names: Vec<_> =
        worker.workflows.iter().map(|code| format!("{} v{}", code.workflow, code.version)).collect();
    one_line(&names.join(", ")).into_owned()
}

/// Lists the workflows that joined workers have code for.
pub(super) async fn workflow_list(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let workflows = surface.workflows().await?;
    console.page(&workflows, &workflows.items)?;
    if console.is_for_people() && workflows.items.is_empty() {
        console.message("no worker has joined, so no workflow is known");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("WORKFLOW", Align::Left),
        ("VERSIONS", Align::Left),
        ("WORKERS", Align::Right),
        ("QUEUES", Align::Left),
    ]);
    for workflow in &workflows.items {
        let versions: Vec<_> = workflow.versions.iter().map(|version| format!("v{version}")).collect();
        table.row([
            one_line(&workflow.name).into_owned(),
            versions.join(" "),
            workflow.workers.to_string(),
            one_line(&workflow.queues.join(",")).into_owned(),
        ]);
    }
    console.lines(table.lines(console.look))?;
    Ok(Exit::Done)
}
