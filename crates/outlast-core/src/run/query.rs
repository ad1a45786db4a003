//! Lists of runs: which runs they contain, in which order, and their pages.

use std::sync::Arc;

use super::{FlagFilter, RunView, Status, Tags};
use crate::id::RunId;
use crate::marks::Marks;
use crate::time::Timestamp;

/// Which runs to list.
///
/// Fill in what you need, and take the rest from the default: a later version may add fields.
///
/// ```
/// use outlast_core::{RunQuery, Status};
///
/// let query = RunQuery { statuses: vec![Status::Stuck], limit: 10, ..RunQuery::default() };
/// # assert!(query.workflow.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunQuery {
    /// Only runs in one of these statuses; all when empty.
    pub statuses: Vec<Status>,
    /// Only runs with one of these marks; all when there are none.
    pub marks: Marks,
    /// Only runs of this workflow.
    pub workflow: Option<Arc<str>>,
    /// Only runs of this queue.
    pub queue: Option<Arc<str>>,
    /// Whether queued steps are listed. A query for their workflow lists them in any case.
    pub queued_steps: QueuedSteps,
    /// Whether runs of the engine, such as schedules, are listed. A query for their workflow lists them in any case.
    pub built_in: BuiltInRuns,
    /// Only the run that was started with this key.
    pub key: Option<String>,
    /// Only runs that this one started.
    pub parent: Option<RunId>,
    /// Only this run and its descendants.
    pub root: Option<RunId>,
    /// Only runs with all of these tags.
    pub tags: Tags,
    /// Only runs that were started at this time or later.
    pub created_from: Option<Timestamp>,
    /// Only runs that were started before this time.
    pub created_before: Option<Timestamp>,
    /// Only runs that ended at this time or later. It has no index: failed runs are found by [`FailureQuery`].
    ///
    /// [`FailureQuery`]: crate::FailureQuery
    pub ended_from: Option<Timestamp>,
    /// Only runs that ended before this time.
    pub ended_before: Option<Timestamp>,
    /// Only runs with this flag.
    pub flag: Option<FlagFilter>,
    /// Only runs with this text in their id, workflow or key; case is ignored.
    pub text: Option<String>,
    /// How the list is sorted.
    pub order: ListOrder,
    /// Only runs after this one, in the order of the list.
    pub after: Option<RunId>,
    /// Only runs before this one, in the order of the list; the page contains the last of them.
    pub before: Option<RunId>,
    /// The maximum number of runs; at most [`PAGE_RUNS_MAX`](crate::limits::PAGE_RUNS_MAX).
    pub limit: usize,
}

/// Whether a list of runs contains queued steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuedSteps {
    /// They are omitted.
    #[default]
    LeftOut,
    /// They are listed like all other runs.
    Listed,
}

/// Whether a list of runs contains runs of built-in workflows, such as schedules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltInRuns {
    /// They are omitted.
    #[default]
    LeftOut,
    /// They are listed like all other runs.
    Listed,
}

impl RunQuery {
    /// Whether runs of built-in workflows are omitted.
    pub fn leaves_out_built_in(&self) -> bool {
        self.built_in == BuiltInRuns::LeftOut && self.workflow.is_none()
    }

    /// Whether it omits a run because of its workflow.
    pub fn leaves_out(&self, run: &RunView) -> bool {
        self.leaves_out_queued_steps() && run.is_queued_step()
            || self.leaves_out_built_in() && run.is_built_in()
    }

    /// Whether queued steps are omitted.
    pub fn leaves_out_queued_steps(&self) -> bool {
        self.queued_steps == QueuedSteps::LeftOut && self.workflow.is_none()
    }

    /// The same query with the queued steps and built-in runs that it leaves out; `None` if it leaves out none.
    ///
    /// Most pages contain none of them. A world that reads such a page without the filter examines fewer rows.
    pub fn without_left_out(&self) -> Option<Self> {
        let leaves_out = self.leaves_out_queued_steps() || self.leaves_out_built_in();
        let (queued_steps, built_in) = (QueuedSteps::Listed, BuiltInRuns::Listed);
        leaves_out.then(|| Self { queued_steps, built_in, ..self.clone() })
    }

    /// Whether a run matches the filters, apart from the cursor.
    pub fn wants(&self, run: &RunView) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && (self.marks.is_empty() || run.marks.has(self.marks))
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow == *workflow)
            && self.queue.as_ref().is_none_or(|queue| run.queue == *queue)
            && !self.leaves_out(run)
            && self.key.as_ref().is_none_or(|key| run.key.as_ref() == Some(key))
            && self.parent.is_none_or(|parent| run.parent.is_some_and(|of| of.run == parent))
            && self.root.is_none_or(|root| run.root() == root)
            && self.tags.iter().all(|(name, value)| run.tags.get(name) == Some(value))
            && self.created_from.is_none_or(|from| run.created_at >= from)
            && self.created_before.is_none_or(|before| run.created_at < before)
            && self.ended_from.is_none_or(|from| run.ended_at.is_some_and(|at| at >= from))
            && self.ended_before.is_none_or(|before| run.ended_at.is_some_and(|at| at < before))
            && self.flag.is_none_or(|flag| run.has_flag(flag))
            && self.text.as_ref().is_none_or(|text| run.contains(text))
            && self.after.is_none_or(|after| self.order.is_behind(run.id, after))
            && self.before.is_none_or(|before| self.order.is_behind(before, run.id))
    }

    /// The page of the runs that were found: matching runs in the order of the list, starting at the cursor, and one
    /// more than the limit if there are more.
    pub fn page(&self, runs: Vec<RunView>, limit: usize) -> Page {
        self.page_until(runs, limit, None)
    }

    /// The same for a world that stopped its search at the run `edge`.
    pub fn page_until(&self, mut runs: Vec<RunView>, limit: usize, edge: Option<RunId>) -> Page {
        let edge = edge.filter(|_| runs.len() <= limit);
        let has_more = runs.len() > limit || edge.is_some();
        runs.truncate(limit);
        let is_backwards = self.before.is_some() && self.after.is_none();
        if is_backwards {
            runs.reverse();
        }
        let (has_next, has_prev) =
            if is_backwards { (true, has_more) } else { (has_more, self.after.is_some()) };
        let (first, last) = (runs.first().map(|run| run.id), runs.last().map(|run| run.id));
        // In the direction of the search, the page ends where the search stopped.
        let (first, last) =
            if is_backwards { (edge.or(first), last.or(edge)) } else { (first.or(edge), edge.or(last)) };
        let (next, prev) = (last.filter(|_| has_next), first.filter(|_| has_prev));
        Page { runs, next, prev }
    }
}

impl RunView {
    fn contains(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let key = self.key.as_deref().unwrap_or_default();
        self.id.to_string().to_lowercase().contains(&text)
            || self.workflow.to_lowercase().contains(&text)
            || key.to_lowercase().contains(&text)
    }
}

/// The order of a list of runs. Ids are time-ordered, so the order by id is the order by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// The newest run first.
    #[default]
    NewestFirst,
    /// The oldest run first.
    OldestFirst,
}

impl ListOrder {
    /// Whether `run` is after `other` in a list of this order.
    pub fn is_behind(self, run: RunId, other: RunId) -> bool {
        match self {
            Self::NewestFirst => run < other,
            Self::OldestFirst => run > other,
        }
    }
}

/// One page of a list.
///
/// A page may have fewer runs than requested, even none, and still have a next page: a world examines at most
/// [`PAGE_LOOKS_MAX`](crate::limits::PAGE_LOOKS_MAX) runs at a time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The runs of the page.
    pub runs: Vec<RunView>,
    /// The cursor for `after` of the next page; `None` on the last page.
    pub next: Option<RunId>,
    /// The cursor for `before` of the previous page; `None` on the first page.
    pub prev: Option<RunId>,
}
