//! Actions on many runs: shows what would be done, asks, and lets a run do it.

use std::time::Duration;

use outlast_api::{BulkJson, BulkPreview, BulkRequest, BulkRunFilter, Problem, ProblemCode};

use super::CommandContext;
use super::list::{filter, print};
use crate::args::ControlArgs;
use crate::exit::{CommandError, Exit};
use crate::output::{Console, Tone, one_line};
use crate::surface::Surface;
use crate::wait::pause;

/// How often the progress of an action is read.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// A confirmed action on many runs.
#[derive(Debug)]
pub(super) struct BulkSelection {
    request: BulkRequest,
}

impl BulkSelection {
    /// Shows the runs that the filters select, and asks. `None` if nothing is to be done.
    pub(super) async fn new(
        context: &CommandContext,
        surface: &dyn Surface,
        action: BulkRequest,
        verb: &str,
        args: &ControlArgs,
    ) -> Result<Option<Self>, CommandError> {
        let console = &context.console;
        if args.filter.is_empty() {
            return Err(CommandError::usage("name a run, or give a filter such as `--workflow` or `--open`"));
        }
        let now = console.now();
        let mut filter = filter(now, &args.filter)?;
        // Runs that start after the question are not concerned.
        let begin = filter.created_before.map_or(now, |before| before.0.min(now));
        filter.created_before = Some(begin.into());
        let mut request = BulkRequest {
            query: BulkRunFilter::from(&filter),
            reason: args.reason.clone(),
            dry_run: true,
            expect_at_most: args.at_most,
            rate: args.rate,
            ..action
        };
        let preview = surface.preview(&request).await?;
        if args.dry_run {
            console.document(&preview)?;
        }
        if console.is_for_people() {
            describe(console, verb, &args.filter.workflow, &preview, args.dry_run)?;
        }
        check_at_most(verb, args.at_most, &preview)?;
        if args.dry_run || preview.matched == 0 {
            return Ok(None);
        }
        if !args.yes {
            confirm(console, verb, &preview)?;
        }
        request.dry_run = false;
        Ok(Some(Self { request }))
    }

    /// Starts the action, shows its progress until it ends, and says what was done.
    pub(super) async fn execute(
        self,
        context: &CommandContext,
        surface: &dyn Surface,
        verb: &str,
    ) -> Result<Exit, CommandError> {
        let worker = surface.serve_built_ins().await?;
        let started = surface.start_bulk(&self.request).await?;
        let ended = follow(context, surface, started, verb).await;
        if let Some(worker) = worker {
            worker.stop().await?;
        }
        let ended = ended?;
        context.console.document(&ended)?;
        summarize(context, verb, &ended)
    }
}

/// Waits for the end of a bulk action. Ctrl-C ends the command, not the action.
pub(super) async fn follow(
    context: &CommandContext,
    surface: &dyn Surface,
    mut bulk: BulkJson,
    verb: &str,
) -> Result<BulkJson, CommandError> {
    let console = &context.console;
    let mut shown = 0;
    while bulk.state == "running" {
        let called = bulk.done + bulk.failed;
        if called > shown && console.error_look.is_terminal {
            let of = if bulk.more { "more than ".to_owned() } else { String::new() };
            console.progress(format!("{verb}: {called} of {of}{}", bulk.matched));
            shown = called;
        }
        pause(PROGRESS_EVERY).await;
        bulk = surface.bulk(bulk.id).await?;
    }
    if shown > 0 {
        console.end_progress();
    }
    Ok(bulk)
}

/// Says what a bulk action has done.
pub(super) fn summarize(context: &CommandContext, verb: &str, bulk: &BulkJson) -> Result<Exit, CommandError> {
    let console = &context.console;
    for problem in &bulk.problems {
        console.warning(format!("{}: {}", problem.run, one_line(&problem.message)));
    }
    let done = bulk.done - bulk.without_effect;
    let (nothing, refused) = (bulk.without_effect, bulk.failed);
    console.message(format!("{verb}: {done} done, {nothing} without effect, {refused} refused"));
    if let Some(stop) = &bulk.stopped {
        let by = stop.actor.as_ref().map(|actor| format!(" by {}", one_line(actor))).unwrap_or_default();
        console.warning(format!("stopped{by}: {}", one_line(&stop.reason)));
    }
    if bulk.state == "failed" {
        console.warning(format!("it did not end by itself; see `outlast show {}`", bulk.id));
    }
    let is_done = bulk.state == "completed" && refused == 0;
    Ok(if is_done { Exit::Done } else { Exit::Failure })
}

fn check_at_most(verb: &str, at_most: Option<u64>, preview: &BulkPreview) -> Result<(), CommandError> {
    match at_most {
        Some(limit) if preview.matched > limit => Err(too_many(verb, limit, preview.matched).into()),
        _ => Ok(()),
    }
}

fn too_many(verb: &str, limit: u64, matched: u64) -> Problem {
    let detail =
        format!("{matched} runs match, but `--at-most {limit}` is given; nothing was done to {verb} them");
    Problem::new(ProblemCode::Stale, detail).with(|problem| problem.matched = Some(matched))
}

/// Says how many runs it concerns, with some of them.
fn describe(
    console: &Console,
    verb: &str,
    workflow: &Option<String>,
    preview: &BulkPreview,
    is_dry: bool,
) -> Result<(), CommandError> {
    let by_status: Vec<_> =
        preview.by_status.iter().map(|(status, count)| format!("{count} {status}")).collect();
    let of = workflow.as_ref().map(|name| format!(" of {}", one_line(name))).unwrap_or_default();
    let more = if preview.more { "more than " } else { "" };
    let runs = if preview.matched == 1 { "run" } else { "runs" };
    let breakdown = if by_status.is_empty() { String::new() } else { format!(": {}", by_status.join(", ")) };
    let title = format!("{verb} {more}{} {runs}{of}{breakdown}", preview.matched);
    console.message(console.error_look.paint(Tone::Strong, title));
    if is_dry {
        return print(console, &preview.sample, false);
    }
    for run in &preview.sample {
        let key = run.key.as_ref().map(|key| format!("  {}", one_line(key))).unwrap_or_default();
        console.message(format!(
            "  {}  {} v{}  {}{key}",
            run.id,
            one_line(&run.workflow),
            run.version,
            run.status
        ));
    }
    let hidden = preview.matched.saturating_sub(preview.sample.len() as u64);
    if hidden > 0 {
        console.message(format!("  and {hidden} more"));
    }
    Ok(())
}

/// Asks a person to type the number of runs.
fn confirm(console: &Console, verb: &str, preview: &BulkPreview) -> Result<(), CommandError> {
    if !console.can_ask() {
        let detail = format!("nobody can confirm to {verb} {} runs; add `--yes`", preview.matched);
        return Err(CommandError::usage(detail));
    }
    let answer = console.ask("Type the number of runs to go on:")?;
    if answer.replace([',', ' '], "") == preview.matched.to_string() {
        return Ok(());
    }
    console.message("nothing was done");
    Err(CommandError::Interrupted)
}
