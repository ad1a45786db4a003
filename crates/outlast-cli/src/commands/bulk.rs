//! Actions on many runs: shows what would be done, asks, and selects the runs.

use outlast::{RunId, Status};
use outlast_api::{
    BulkAction, BulkPreview, BulkRequest, BulkRunFilter, PageRequest, Problem, ProblemCode, RunFilter,
    RunListOrder,
};

use super::CommandContext;
use super::list::{filter, print};
use crate::args::ControlArgs;
use crate::exit::CommandError;
use crate::output::{Console, Tone, one_line};
use crate::surface::Surface;

/// The names of workflows that belong to Outlast begin with this.
const BUILT_IN: &str = "outlast:";

/// The runs that a confirmed action concerns.
#[derive(Debug)]
pub(super) struct BulkSelection {
    filter: RunFilter,
    at_most: Option<u64>,
}

impl BulkSelection {
    /// Shows the runs that the filters select, and asks. `None` if nothing is to be done.
    pub(super) async fn new(
        context: &CommandContext,
        surface: &dyn Surface,
        action: BulkAction,
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
        filter.order = RunListOrder::OldestFirst;
        let request =
            BulkRequest { action, query: bulk_filter(&filter), reason: args.reason.clone(), dry_run: true };
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
        if filter.statuses.is_empty() {
            filter.statuses = statuses_for(action);
        }
        Ok(Some(Self { filter, at_most: args.at_most }))
    }

    /// The runs, the oldest first. They are collected before the first one is changed, because a change may move a run
    /// in the list.
    pub(super) async fn all(&self, surface: &dyn Surface) -> Result<Vec<RunId>, CommandError> {
        let mut filter = self.filter.clone();
        filter.page = PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None };
        let mut runs = Vec::new();
        loop {
            let page = surface.runs(&filter).await?;
            let selected = page.items.iter().filter(|run| {
                let is_protected = run.marks.iter().any(|mark| mark == "quarantined");
                !run.is_queued_step && !is_protected && !run.workflow.starts_with(BUILT_IN)
            });
            runs.extend(selected.map(|run| run.id));
            if self.at_most.is_some_and(|limit| runs.len() as u64 > limit) {
                return Err(too_many("change", self.at_most.unwrap_or(0), runs.len() as u64).into());
            }
            match page.next {
                Some(next) => filter.page.cursor = Some(next),
                None => return Ok(runs),
            }
        }
    }
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

/// The statuses that an action fits, as the service selects them.
fn statuses_for(action: BulkAction) -> Vec<Status> {
    match action {
        BulkAction::Delete => vec![Status::Completed, Status::Failed, Status::Cancelled],
        BulkAction::Restart => Vec::new(),
        _ => vec![Status::Pending, Status::Running, Status::Waiting, Status::Stuck],
    }
}

fn bulk_filter(filter: &RunFilter) -> BulkRunFilter {
    BulkRunFilter {
        status: filter.statuses.clone(),
        mark: filter.marks.clone(),
        workflow: filter.workflow.clone(),
        queue: filter.queue.clone(),
        parent: filter.parent,
        root: filter.root,
        tags: filter.tags.clone(),
        created_from: filter.created_from,
        created_before: filter.created_before,
        text: filter.text.clone(),
    }
}
