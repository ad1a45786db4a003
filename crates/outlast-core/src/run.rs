//! Runs as the outside sees them: status, what they wait for, lists and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::event::{Event, FORMAT, OpNumber, RunStarted, TurnRecord};
use crate::id::{RunId, SessionId, TurnId};
use crate::message::Headers;
use crate::payload::Payload;
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
    /// Final: the workflow returned an error after a cancel, or never began.
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
        match event {
            Event::RunCompleted { .. } => Some(Self::Completed),
            Event::RunFailed { .. } => Some(Self::Failed),
            Event::RunCancelled { .. } => Some(Self::Cancelled),
            _ => None,
        }
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
    /// The caller's key: a later start with it returns this run.
    pub key: Option<StartKey>,
    /// What the workflow is called with.
    pub input: Payload,
    /// What travels with the run.
    pub headers: Headers,
}

/// A caller's key, and what tells whether a later start with it asks for the same thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartKey {
    /// The key.
    pub text: String,
    /// The digest of the plain input, before any codec.
    pub digest: u128,
}

impl Start {
    /// The event that a history begins with.
    pub fn event(&self) -> Event {
        Event::RunStarted(RunStarted {
            workflow: self.workflow.clone(),
            version: self.version,
            format: FORMAT,
            key: self.key.as_ref().map(|key| key.text.clone()),
            input: self.input.clone(),
            headers: self.headers.clone(),
        })
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
        op: u32,
        /// When it is due.
        until: Timestamp,
    },
    /// A payload from outside.
    Hook {
        /// The operation's number.
        op: u32,
        /// The hook's name.
        name: String,
        /// When the wait ends without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The next attempt of a step.
    Retry {
        /// The operation's number.
        op: u32,
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
            Self::Timer { op, .. } | Self::Hook { op, .. } | Self::Retry { op, .. } => OpNumber(*op),
        }
    }

    /// When the wait ends by itself, if it does.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Timer { until, .. } | Self::Retry { until, .. } => Some(*until),
            Self::Hook { until, .. } => *until,
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
    /// The workflow asked for a step that this worker does not have.
    StepNotRegistered,
    /// The run was aboard when its worker crashed, too often.
    Poison,
    /// The history cannot be read by this build.
    Unreadable,
    /// The world refuses what the run decided: a turn that is too large for it, say.
    Refused,
}

impl fmt::Display for StuckReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Diverged => "diverged",
            Self::Panicked => "panicked",
            Self::ForeignAwait => "foreign await",
            Self::StepNotRegistered => "step not registered",
            Self::Poison => "poison",
            Self::Unreadable => "unreadable",
            Self::Refused => "refused",
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
    /// How often its worker crashed with it aboard, since its last commit.
    pub crashes: u32,
    /// Why it is stuck, if it is.
    pub stuck: Option<Stuck>,
}

/// Which runs to list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunQuery {
    /// Only runs in one of these statuses; all when empty.
    pub statuses: Vec<Status>,
    /// Only runs of this workflow.
    pub workflow: Option<Arc<str>>,
    /// Only the run that was started with this key.
    pub key: Option<String>,
    /// How the list is sorted.
    pub order: Order,
    /// Only runs behind this one, in the list's order.
    pub after: Option<RunId>,
    /// How many at the most; at most [`PAGE_RUNS_MAX`](crate::limits::PAGE_RUNS_MAX).
    pub limit: usize,
}

impl RunQuery {
    /// Whether a run is one of those to list, apart from its place in the list.
    pub fn wants(&self, run: &RunView) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&run.status))
            && self.workflow.as_ref().is_none_or(|workflow| run.workflow == *workflow)
            && self.key.as_ref().is_none_or(|key| run.key.as_ref() == Some(key))
            && self.after.is_none_or(|after| match self.order {
                Order::NewestFirst => run.id < after,
                Order::OldestFirst => run.id > after,
            })
    }
}

/// How a list of runs is sorted. Ids are time-ordered, so by id is by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The newest run first.
    #[default]
    NewestFirst,
    /// The oldest run first.
    OldestFirst,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The runs of the page.
    pub runs: Vec<RunView>,
    /// What to give as `after` for the next page; `None` on the last.
    pub next: Option<RunId>,
}

/// How many runs are in each status. A status without runs may be missing.
pub type Counts = BTreeMap<Status, u64>;
