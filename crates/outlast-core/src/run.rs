//! Runs as the outside sees them: status, what they wait for, lists and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::event::{Event, OpNumber, RunStarted, TurnRecord, format_of_rules};
use crate::failed_builds::FailedBuilds;
use crate::id::{RunId, SessionId, TurnId};
use crate::message::Headers;
use crate::payload::Payload;
use crate::queue::{default_queue, step_of_workflow};
use crate::retry::Policy;
use crate::state::HolderColumns;
use crate::time::Timestamp;

/// Where a run is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// No worker has had it yet, or its worker let go of it: it waits for one to claim it.
    Pending,
    /// A worker holds it.
    Running,
    /// Suspended: a timer, a hook or a retry will wake it.
    Waiting,
    /// A turn ended without a decision; another build or `resume` tries again.
    Stuck,
    /// Final: the workflow returned an output.
    Completed,
    /// Final: the workflow returned an error.
    Failed,
    /// Final: the workflow returned an error after a cancel, or never began, or was terminated.
    Cancelled,
}

impl Status {
    /// Every status, in the order of a run's life.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Stuck,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The status as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Stuck => "stuck",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a run in this status stays in it for ever.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The status that a final event leads to; `None` when `event` is not final.
    pub fn of_final(event: &Event) -> Option<Self> {
        Some(match event {
            Event::RunCompleted { .. } => Self::Completed,
            Event::RunFailed { .. } => Self::Failed,
            Event::RunCancelled { .. } | Event::RunTerminated { .. } => Self::Cancelled,
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = InvalidStatus;

    fn from_str(text: &str) -> Result<Self, InvalidStatus> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| InvalidStatus(text.into()))
    }
}

/// A text that is not a status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a status; expected pending, running, waiting, stuck, completed, failed or cancelled")]
pub struct InvalidStatus(String);

/// A run to start. Its id is made before the first try, so that a repeat is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The run's id.
    pub run: RunId,
    /// The id of the turn that records the start.
    pub turn: TurnId,
    /// The workflow's name.
    pub workflow: Arc<str>,
    /// The workflow's version.
    pub version: u32,
    /// The version of the engine's semantics that the run keeps for its life; at most
    /// [`RULES`](crate::event::RULES).
    pub rules: u32,
    /// The queue it stands in: only workers that serve it are given the run.
    pub queue: Arc<str>,
    /// How urgent it is, up to [`PRIORITY_MAX`](crate::limits::PRIORITY_MAX); 0 is usual, more is sooner.
    pub priority: u8,
    /// The caller's key: a later start with it returns this run.
    pub key: Option<StartKey>,
    /// What the workflow is called with.
    pub input: Payload,
    /// What travels with the run.
    pub headers: Headers,
    /// What the run can be found by.
    pub tags: Tags,
    /// The run that starts it, if one does.
    pub parent: Option<Parent>,
    /// When it may begin, if not at once.
    pub not_before: Option<Timestamp>,
    /// When it is told to stop, if it has not ended by then.
    pub deadline: Option<Timestamp>,
    /// How the step is attempted, when the run is a queued step and that is not as usual.
    pub policy: Option<Box<Policy>>,
}

/// What a run can be found by: names with values, set at its start and by its workflow.
pub type Tags = BTreeMap<String, String>;

/// The run that started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The parent.
    pub run: RunId,
    /// The operation of the parent that asked for the run.
    pub op: OpNumber,
    /// The first of the line: the parent's root, or the parent itself.
    pub root: RunId,
    /// Whether the parent is told how the run ends.
    pub awaits: bool,
}

/// What becomes of a child when its parent ends before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParentEnd {
    /// It is cancelled.
    #[default]
    Cancel,
    /// The parent does not end before it.
    Wait,
    /// It goes on.
    Abandon,
}

impl ParentEnd {
    /// The choice as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Wait => "wait",
            Self::Abandon => "abandon",
        }
    }
}

/// A caller's key, and what tells whether a later start with it asks for the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartKey {
    /// The key.
    pub text: String,
    /// The digest of the plain input, before any codec.
    pub digest: u128,
    /// How long an earlier start with the key counts; for ever if `None`.
    pub window: Option<Duration>,
}

impl Start {
    /// The event that a history begins with.
    pub fn event(&self) -> Event {
        Event::RunStarted(RunStarted {
            workflow: self.workflow.clone(),
            version: self.version,
            rules: self.rules,
            queue: self.queue.clone(),
            priority: self.priority,
            key: self.key.as_ref().map(|key| key.text.clone()),
            input: self.input.clone(),
            headers: self.headers.clone(),
            tags: self.tags.clone(),
            parent: self.parent,
            deadline: self.deadline,
            policy: self.policy.clone(),
        })
    }

    /// The lowest format that a reader of the run needs.
    pub fn format(&self) -> u32 {
        format_of_rules(self.rules)
    }

    /// The turn that records a start which no worker has seen.
    pub fn first_turn(&self, at: Timestamp) -> TurnRecord {
        TurnRecord { id: self.turn, seq: 0, at, build: "".into(), events: vec![self.event()] }
    }
}

/// What a start came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The run that the start or an earlier one with its key began.
    pub run: RunId,
    /// Whether this start began it.
    pub is_new: bool,
}

/// One thing that a waiting run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wait {
    /// A moment.
    Timer {
        /// The operation's number.
        op: u64,
        /// When it is due.
        until: Timestamp,
    },
    /// A payload from outside.
    Hook {
        /// The operation's number.
        op: u64,
        /// The hook's name.
        name: String,
        /// When the wait ends without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The end of a child.
    Child {
        /// The operation's number.
        op: u64,
        /// The child's workflow.
        workflow: String,
        /// The child.
        run: RunId,
        /// When the wait ends without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The end of a step that travels by its queue.
    Step {
        /// The operation's number.
        op: u64,
        /// The step's name.
        name: String,
        /// The queue.
        queue: String,
        /// The run that is the step.
        run: RunId,
    },
    /// The next attempt of a step.
    Retry {
        /// The operation's number.
        op: u64,
        /// The step's name.
        name: String,
        /// When the attempt is due.
        until: Timestamp,
    },
}

impl Wait {
    /// The operation that waits.
    pub fn op(&self) -> OpNumber {
        match self {
            Self::Timer { op, .. }
            | Self::Hook { op, .. }
            | Self::Child { op, .. }
            | Self::Step { op, .. }
            | Self::Retry { op, .. } => OpNumber(*op),
        }
    }

    /// Whether it is for a payload of this hook.
    pub fn is_for_hook(&self, hook: &str) -> bool {
        matches!(self, Self::Hook { name, .. } if name == hook)
    }

    /// When the wait ends by itself, if it does.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Timer { until, .. } | Self::Retry { until, .. } => Some(*until),
            Self::Hook { until, .. } | Self::Child { until, .. } => *until,
            Self::Step { .. } => None,
        }
    }
}

/// Why a run is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The sort of trouble.
    pub reason: StuckReason,
    /// What happened and what to do, for a person.
    pub message: String,
    /// The build that could not go on; workers of another build try again.
    pub build: String,
}

/// The sorts of trouble that end a turn without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckReason {
    /// The code asked for something else than history has.
    Diverged,
    /// The workflow's code panicked.
    Panicked,
    /// The workflow awaited something that is not an operation.
    ForeignAwait,
    /// The workflow called a step's function itself, instead of asking its context for the step.
    CalledDirectly,
    /// The context was used outside of the workflow's own code: in a step, in a spawned task, by another run.
    ContextOutside,
    /// The workflow asked for a step that this worker does not have.
    StepNotRegistered,
    /// Its worker crashed too often while it held the run.
    Poison,
    /// The history cannot be read by this build.
    Unreadable,
    /// A stored value cannot be read as the type that the code has for it.
    Undecodable,
    /// The world refuses what the run decided: a turn that is too large for it, say.
    Refused,
    /// A turn did not come back: the workflow loops without awaiting, or blocks its thread.
    Hung,
    /// The workflow was cancelled and goes on asking for operations, however often they are refused.
    IgnoresCancel,
    /// A reason that this build does not know. The message says more.
    #[serde(other)]
    Other,
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Diverged => "diverged",
            Self::Panicked => "panicked",
            Self::ForeignAwait => "foreign await",
            Self::CalledDirectly => "called directly",
            Self::ContextOutside => "context outside",
            Self::StepNotRegistered => "step not registered",
            Self::Poison => "poison",
            Self::Unreadable => "unreadable",
            Self::Undecodable => "undecodable",
            Self::Refused => "refused",
            Self::Hung => "hung",
            Self::IgnoresCancel => "ignores cancel",
            Self::Other => "other",
        })
    }
}

/// A run as the outside sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Its workflow's name.
    pub workflow: Arc<str>,
    /// Its workflow's version.
    pub version: u32,
    /// The queue it stands in.
    pub queue: Arc<str>,
    /// How urgent it is; 0 is usual, more is sooner.
    pub priority: u8,
    /// The caller's key.
    pub key: Option<String>,
    /// Where it is in its life.
    pub status: Status,
    /// The session that holds it.
    pub owner: Option<SessionId>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its row last changed: at start, claim, suspension, message, end.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a waiting run is due by itself.
    pub wake_at: Option<Timestamp>,
    /// What a waiting run waits for.
    pub waits: Vec<Wait>,
    /// How many messages its inbox was ever sent.
    pub sent: u64,
    /// How many of them it has consumed.
    pub consumed: u64,
    /// How many crashes of its worker count against it.
    pub crashes: u32,
    /// How many payloads for hooks it has received that nobody has taken.
    pub kept: u64,
    /// Whether it was asked to stop.
    pub is_cancel_requested: bool,
    /// The builds that could not continue it since it last progressed.
    pub failed_builds: FailedBuilds,
    /// The lowest format that a reader of the run needs.
    pub format: u32,
    /// Why it is stuck, if it is.
    pub stuck: Option<Stuck>,
    /// From when on a stuck run is given to a build that is not among those that failed.
    pub retry_at: Option<Timestamp>,
    /// The run that started it, if one did.
    pub parent: Option<Parent>,
    /// What it can be found by.
    pub tags: Tags,
    /// When it is told to stop, as long as that counts.
    pub deadline: Option<Timestamp>,
}

impl RunView {
    /// A view that shows the columns which only a run's holder changes. The world that has it adds the rest, so that it
    /// need not name these.
    pub fn of_columns(id: RunId, status: Status, columns: &HolderColumns) -> Self {
        Self {
            id,
            status,
            crashes: columns.crashes,
            kept: columns.kept,
            deadline: columns.deadline,
            stuck: columns.stuck.as_deref().filter(|_| status == Status::Stuck).cloned(),
            failed_builds: columns.failed_builds.clone(),
            workflow: "".into(),
            version: 0,
            queue: default_queue(),
            priority: 0,
            key: None,
            owner: None,
            created_at: Timestamp::from_micros(0),
            updated_at: Timestamp::from_micros(0),
            ended_at: None,
            retry_at: None,
            wake_at: None,
            waits: Vec::new(),
            sent: 0,
            consumed: 0,
            is_cancel_requested: false,
            format: 0,
            parent: None,
            tags: Tags::new(),
        }
    }

    /// The first of the run's line: its root, or the run itself.
    pub fn root(&self) -> RunId {
        self.parent.map_or(self.id, |parent| parent.root)
    }

    /// Whether its whole life is one step of another run, which travels by its queue.
    pub fn is_queued_step(&self) -> bool {
        step_of_workflow(&self.workflow).is_some()
    }
}

/// Which runs to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunQuery {
    /// Only runs in one of these statuses; all when empty.
    pub statuses: Vec<Status>,
    /// Only runs of this workflow.
    pub workflow: Option<Arc<str>>,
    /// Only runs of this queue.
    pub queue: Option<Arc<str>>,
    /// Whether runs are listed whose whole life is one step of another. A query for their workflow lists
    /// them in any case.
    pub queued_steps: QueuedSteps,
    /// Only the run that was started with this key.
    pub key: Option<String>,
    /// Only runs that this one started.
    pub parent: Option<RunId>,
    /// Only this run, and those that it or one of its children started.
    pub root: Option<RunId>,
    /// Only runs with all of these tags.
    pub tags: Tags,
    /// Only runs that were started at this moment or later.
    pub created_from: Option<Timestamp>,
    /// Only runs that were started before this moment.
    pub created_before: Option<Timestamp>,
    /// Only runs with this text in their id, workflow or key, in upper or lower case.
    pub text: Option<String>,
    /// How the list is sorted.
    pub order: ListOrder,
    /// Only runs behind this one, in the list's order.
    pub after: Option<RunId>,
    /// Only runs in front of this one, in the list's order; the page holds the last of them.
    pub before: Option<RunId>,
    /// How many at the most; at most [`PAGE_RUNS_MAX`](crate::limits::PAGE_RUNS_MAX).
    pub limit: usize,
}

/// Whether a list of runs has those whose whole life is one step of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuedSteps {
    /// They are left out.
    #[default]
    LeftOut,
    /// They are listed as all others.
    Listed,
}

impl RunQuery {
    /// Whether runs are left out because they are queued steps.
    pub fn leaves_out_queued_steps(&self) -> bool {
        self.queued_steps == QueuedSteps::LeftOut && self.workflow.is_none()
    }

    /// Whether a run is one of those to list, apart from its place in the list.
    pub fn wants(&self, run: &RunView) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow == *workflow)
            && self.queue.as_ref().is_none_or(|queue| run.queue == *queue)
            && !(self.leaves_out_queued_steps() && run.is_queued_step())
            && self.key.as_ref().is_none_or(|key| run.key.as_ref() == Some(key))
            && self.parent.is_none_or(|parent| run.parent.is_some_and(|of| of.run == parent))
            && self.root.is_none_or(|root| run.root() == root)
            && self.tags.iter().all(|(name, value)| run.tags.get(name) == Some(value))
            && self.created_from.is_none_or(|from| run.created_at >= from)
            && self.created_before.is_none_or(|before| run.created_at < before)
            && self.text.as_ref().is_none_or(|text| run.contains(text))
            && self.after.is_none_or(|after| self.order.is_behind(run.id, after))
            && self.before.is_none_or(|before| self.order.is_behind(before, run.id))
    }

    /// The page of runs that were found, which are those wanted, in the list's order from the side of
    /// the cursor, and one more than the limit if there are more.
    pub fn page(&self, runs: Vec<RunView>, limit: usize) -> Page {
        self.page_until(runs, limit, None)
    }

    /// The same, of a world that looked no further than at the run `edge`.
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
        // Towards the side that was looked at, the page ends where the looking did.
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

/// How a list of runs is sorted. Ids are time-ordered, so by id is by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// The newest run first.
    #[default]
    NewestFirst,
    /// The oldest run first.
    OldestFirst,
}

impl ListOrder {
    /// Whether `run` stands behind `other` in a list of this order.
    pub fn is_behind(self, run: RunId, other: RunId) -> bool {
        match self {
            Self::NewestFirst => run < other,
            Self::OldestFirst => run > other,
        }
    }
}

/// One page of a list.
///
/// A page may have fewer runs than were asked for, even none, and still name another one: a world looks at
/// no more than [`PAGE_LOOKS_MAX`](crate::limits::PAGE_LOOKS_MAX) runs at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The runs of the page.
    pub runs: Vec<RunView>,
    /// What to give as `after` for the next page; `None` on the last.
    pub next: Option<RunId>,
    /// What to give as `before` for the page in front; `None` on the first.
    pub prev: Option<RunId>,
}

/// What a call to forget finished runs came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// How many runs were forgotten.
    pub runs: u64,
    /// What to give as `after` for the next call; `None` when all were looked at.
    pub next: Option<RunId>,
}

/// How many runs are in each status. A status without runs may be missing.
pub type Counts = BTreeMap<Status, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_later_build_can_be_read() {
        let read = |text| serde_json::from_str::<StuckReason>(text).unwrap();
        assert_eq!(read("\"undecodable\""), StuckReason::Undecodable);
        assert_eq!(read("\"out of patience\""), StuckReason::Other);
    }
}
