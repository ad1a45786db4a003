//! `queue list` and `queue show`.

use outlast::core::limits::QUEUE_COUNT_MAX;
use outlast_api::QueueJson;

use super::CommandContext;
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, Tone, one_line, times};

/// Lists the queues.
pub(super) async fn list(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let queues = context.surface().await?.queues().await?;
    console.page(&queues, &queues.items)?;
    if console.is_for_people() && queues.items.is_empty() {
        console.message("no queue has runs, and no worker has joined");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("QUEUE", Align::Left),
        ("READY", Align::Right),
        ("OLDEST", Align::Right),
        ("RUNNING", Align::Right),
        ("STUCK", Align::Right),
        ("WORKERS", Align::Right),
        ("NOTE", Align::Left),
    ]);
    let now = console.now();
    for queue in &queues.items {
        table.row([
            one_line(&queue.name).into_owned(),
            counted(queue.ready),
            queue.oldest_ready_at.map_or_else(|| "-".into(), |at| times::age(now, at.0)),
            queue.running.to_string(),
            counted(queue.stuck),
            queue.workers.to_string(),
            note(queue).into(),
        ]);
    }
    console.lines(table.lines(console.look))?;
    Ok(Exit::Done)
}

/// Shows a queue, with those who serve it.
pub(super) async fn show(context: &CommandContext, name: &str) -> Result<Exit, CommandError> {
    let (console, look) = (&context.console, context.console.look);
    let detail = context.surface().await?.queue(name).await?;
    console.document(&detail)?;
    let fact = |label: &str, text: String| {
        console.line(format!("{}{text}", look.paint(Tone::Dim, format!("{label:<10}"))))
    };
    let queue = &detail.queue;
    console.line(look.paint(Tone::Strong, one_line(&queue.name)))?;
    let oldest = queue.oldest_ready_at.map(|at| format!(", the oldest {}", times::ago(console.now(), at.0)));
    fact("ready", format!("{}{}", counted(queue.ready), oldest.unwrap_or_default()))?;
    fact("running", queue.running.to_string())?;
    fact("stuck", counted(queue.stuck))?;
    for worker in &detail.served_by {
        let (host, pid, status) = (one_line(&worker.host), worker.pid, &worker.status);
        fact("worker", format!("{}  {host}:{pid}  {status}, {} held", worker.session, worker.held))?;
    }
    if queue.workers == 0 {
        fact("workers", "nobody serves this queue".into())?;
    }
    Ok(Exit::Done)
}

/// A number that is counted up to a limit.
fn counted(runs: u64) -> String {
    if runs >= QUEUE_COUNT_MAX as u64 { format!("{runs}+") } else { runs.to_string() }
}

fn note(queue: &QueueJson) -> &'static str {
    if queue.workers == 0 { "nobody serves this queue" } else { "" }
}
