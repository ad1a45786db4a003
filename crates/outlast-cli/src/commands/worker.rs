//! `worker` and `check`: what needs the code of a program; `worker list`, `worker show`.

use outlast_api::WorkerJson;
use outlast_server::{probes_router, serve as serve_app};
use tokio_util::sync::CancellationToken;

use super::CommandContext;
use super::serve::bind;
use crate::app::{WorkerCode, WorkerOptions};
use crate::args::{CheckArgs, WorkerArgs};
use crate::connect::{open_existing, world_url};
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, Tone, one_line, times};

/// The variable of the environment with the public URL.
pub(super) const PUBLIC_URL: &str = "OUTLAST_PUBLIC_URL";

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
    let public_url = args.public_url.clone().or_else(|| std::env::var(PUBLIC_URL).ok());
    let options = WorkerOptions { queues: args.queue.clone(), codec: context.codec.clone(), public_url };
    if args.until_idle {
        let next = code.run_until_idle(world, options).await?;
        let next = next.map(|at| format!("; the next run is due {}", times::ago(context.console.now(), at)));
        context.console.message(format!("nothing is ready{}", next.unwrap_or_default()));
        return Ok(Exit::Done);
    }
    // Before the worker joins: a port that is in use is an error of the command.
    let probes = match args.probes {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let client = outlast::Client::new(world.clone());
    let worker = code.start(world, options).await?;
    context.console.message(format!("worker {} joined; Ctrl-C stops it", worker.session()));
    let shutdown = CancellationToken::new();
    let probes = probes.map(|(listener, address)| {
        context.console.message(format!("probes http://{address}/readyz"));
        let app = probes_router(client, shutdown.clone());
        tokio::spawn(serve_app(listener, app, shutdown.clone()))
    });
    let worked = worker.run_until_signal().await;
    shutdown.cancel();
    if let Some(probes) = probes {
        // A probe that is still being answered must not keep the process alive.
        probes.abort();
    }
    worked?;
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
    let options = WorkerOptions { codec: context.codec.clone(), ..WorkerOptions::default() };
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

/// Shows a joined worker.
pub(super) async fn show(context: &CommandContext, name: &str) -> Result<Exit, CommandError> {
    let (console, look) = (&context.console, context.console.look);
    let workers = context.surface().await?.workers().await?.items;
    let is_named = |worker: &&WorkerJson| {
        worker.session.to_string() == name || format!("{}:{}", worker.host, worker.pid) == name
    };
    let mut found = workers.iter().filter(is_named);
    let Some(worker) = found.next() else {
        return Err(CommandError::not_found(format!(
            "worker `{name}` has not joined; see `outlast worker list`"
        )));
    };
    if found.next().is_some() {
        return Err(CommandError::usage(format!("`{name}` has several workers; give the session of one")));
    }
    console.document(worker)?;
    let now = console.now();
    let fact = |label: &str, text: String| {
        console.line(format!("{}{text}", look.paint(Tone::Dim, format!("{label:<11}"))))
    };
    console.line(format!(
        "{}  {}:{}  {}",
        worker.session,
        one_line(&worker.host),
        worker.pid,
        worker.status
    ))?;
    fact(
        "joined",
        format!("{}, last beat {}", times::ago(now, worker.joined_at.0), times::ago(now, worker.beat_at.0)),
    )?;
    fact("build", one_line(&worker.build).into_owned())?;
    fact("queues", one_line(&worker.queues.join(", ")).into_owned())?;
    fact("workflows", workflows(worker))?;
    fact("runs", format!("{} held, {} live", worker.held, worker.live))?;
    let steps: Vec<_> = worker.steps.iter().map(|(step, count)| format!("{step} {count}")).collect();
    let steps = if steps.is_empty() { String::new() } else { format!(": {}", one_line(&steps.join(", "))) };
    fact("attempts", format!("{}{steps}", worker.attempts))?;
    let (turns, replays) = (worker.turns, worker.replays);
    fact(
        "so far",
        format!("{turns} turns, {replays} replays, {} completed, {} failed", worker.completed, worker.failed),
    )?;
    Ok(Exit::Done)
}

fn workflows(worker: &WorkerJson) -> String {
    let names: Vec<_> =
        worker.workflows.iter().map(|code| format!("{} v{}", code.workflow, code.version)).collect();
    one_line(&names.join(", ")).into_owned()
}
