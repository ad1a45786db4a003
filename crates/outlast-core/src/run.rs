//! Runs from the view of clients: starts, status, waits, lists and counts.

mod failure;
mod flags;
mod query;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{Event, OpNumber, RunStarted, TurnRecord, format_of_rules};
use crate::failed_builds::FailedBuilds;
use crate::id::{MessageId, RunId, SessionId, TurnId};
use crate::marks::Marks;
use crate::message::{Headers, MessageBody, NewMessage};
use crate::payload::Payload;
use crate::queue::{BUILT_IN_PREFIX, default_queue, step_of_workflow};
use crate::retry::Policy;
use crate::state::HolderColumns;
use crate::strategy::EndPlan;
use crate::time::Timestamp;

pub use failure::{FailureQuery, RunFailure};
pub use flags::{FlagCounts, FlagFilter};
pub use query::{BuiltInRuns, ListOrder, Page, QueuedSteps, RunQuery};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// No worker holds it, and it waits for one to claim it.
    Pending,
    /// A worker holds it.
    Running,
    /// Suspended: a timer, a hook or a retry will wake it.
    Waiting,
    /// Its code could not continue it; another build or `resume` retries it.
    Stuck,
    /// Final: the workflow returned an output.
    Completed,
    /// Final: the workflow returned an error.
    Failed,
    /// Final: the workflow returned an error after a cancel, or never began, or was terminated.
    Cancelled,
}

impl Status {
    /// Every status, in the usual order.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Running,
        Self::Waiting,
        Self::Stuck,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The status as text.
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

    /// Whether the status is final.
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

/// A start of a run. Its id is chosen before the first call, so that a repeated start is recognised.
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
    /// The version of the engine's semantics, which the run keeps; at most [`RULES`](crate::event::RULES).
    pub rules: u32,
    /// Its queue: only workers that serve it claim the run.
    pub queue: Arc<str>,
    /// Its priority, from 0 (the default) to [`PRIORITY_MAX`](crate::limits::PRIORITY_MAX) (the most urgent).
    pub priority: u8,
    /// The caller's key: a later start with it returns this run.
    pub key: Option<StartKey>,
    /// The input of the workflow.
    pub input: Payload,
    /// The headers of the run.
    pub headers: Headers,
    /// The tags of the run.
    pub tags: Tags,
    /// The run that starts it, if there is one.
    pub parent: Option<Parent>,
    /// When it may begin, if it is delayed.
    pub not_before: Option<Timestamp>,
    /// When it is cancelled, if it has not ended by then.
    pub deadline: Option<Timestamp>,
    /// The policy of the step, when the run is a queued step and the policy is not the default.
    pub policy: Option<Box<Policy>>,
    /// The run that requested the step, when the run is a queued step.
    pub requester: Option<Box<Requester>>,
    /// What is decided about its end. Most starts decide nothing.
    pub ending: Option<Box<EndPlan>>,
}

/// What the code of a queued step can find out about the run that requested it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The workflow of that run.
    #[serde(serialize_with = "write_text", deserialize_with = "read_text")]
    pub workflow: Arc<str>,
    /// The tags that the run had when it requested the step.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
}

pub(crate) fn write_text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

pub(crate) fn read_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
    String::deserialize(deserializer).map(Into::into)
}

/// Tags of a run: names with values, set at its start and by its workflow. Runs can be found by them.
pub type Tags = BTreeMap<String, String>;

/// The run that started a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The parent.
    pub run: RunId,
    /// The operation of the parent that requested the run.
    pub op: OpNumber,
    /// The topmost ancestor: the root of the parent, or the parent itself.
    pub root: RunId,
    /// Whether the parent awaits the outcome of the run.
    pub awaits: bool,
}

/// What happens to a child when its parent ends before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ParentEnd {
    /// It is cancelled.
    #[default]
    Cancel,
    /// The parent waits for it before it ends.
    Wait,
    /// It continues.
    Abandon,
}

impl ParentEnd {
    /// The choice as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Wait => "wait",
            Self::Abandon => "abandon",
        }
    }
}

/// A caller's key, and the digest by which a later start with the same key is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartKey {
    /// The key.
    pub text: String,
    /// The digest of the plain input, before any codec.
    pub digest: u128,
    /// How long the key names the run of an earlier start; without limit if `None`.
    pub window: Option<Duration>,
    /// Whether the key of a run that has ended is free.
    pub policy: KeyPolicy,
}

/// Whether a start may take the key of another run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeyPolicy {
    /// The key names the run until it is pruned, also after its end.
    #[default]
    Kept,
    /// The key names the run only while it lives: a start after its end gets the key.
    WhileRunning,
    /// The start gets the key from any run. A run that has not ended is asked to stop in the same change.
    Replace,
}

impl Start {
    /// The event that a history begins with.
    pub fn event(&self) -> Event {
        Event::from(RunStarted {
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
            requester: self.requester.clone(),
            ending: self.ending.clone(),
            forked: None,
        })
    }

    /// The lowest format that a reader of the run needs.
    pub fn format(&self) -> u32 {
        if self.ending.is_some() { 3 } else { format_of_rules(self.rules) }
    }

    /// The cancel of a run from which this start takes the key, with [`KeyPolicy::Replace`]. Its id follows from the
    /// start.
    pub fn cancel_of_replaced(&self, replaced: RunId) -> NewMessage {
        NewMessage {
            id: MessageId::from_bits(self.run.bits()),
            run: replaced,
            body: MessageBody::Cancel { reason: self.replaced_reason() },
            headers: Headers::new(),
        }
    }

    /// Why a run is cancelled from which this start takes the key.
    pub fn replaced_reason(&self) -> String {
        format!("run {} with the same key replaces it", self.run)
    }

    /// Whether the start takes its key from a run that has not ended.
    pub fn replaces(&self) -> bool {
        self.key.as_ref().is_some_and(|key| key.policy == KeyPolicy::Replace)
    }

    /// The turn that records a start by a client.
    pub fn first_turn(&self, at: Timestamp) -> TurnRecord {
        TurnRecord { id: self.turn, seq: 0, at, build: "".into(), events: vec![self.event()] }
    }
}

/// The result of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The run of this start, or of an earlier start with the same key.
    pub run: RunId,
    /// Whether this start created it.
    pub is_new: bool,
}

/// One wait of a waiting run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "on", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wait {
    /// A timer.
    Timer {
        /// The operation's number.
        op: u64,
        /// When it is due.
        until: Timestamp,
    },
    /// A payload for a hook.
    Hook {
        /// The operation's number.
        op: u64,
        /// The hook's name.
        name: String,
        /// When the wait times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
        /// The token to which the payload is sent, if the hook has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// The end of a child.
    Child {
        /// The operation's number.
        op: u64,
        /// The child's workflow.
        workflow: String,
        /// The child.
        run: RunId,
        /// When the wait times out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The end of a queued step.
    Step {
        /// The operation's number.
        op: u64,
        /// The step's name.
        name: String,
        /// The queue.
        queue: String,
        /// The run that executes the step.
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
    /// The operation.
    pub fn op(&self) -> OpNumber {
        match self {
            Self::Timer { op, .. }
            | Self::Hook { op, .. }
            | Self::Child { op, .. }
            | Self::Step { op, .. }
            | Self::Retry { op, .. } => OpNumber(*op),
        }
    }

    /// Whether it waits for a payload of this hook.
    pub fn is_for_hook(&self, hook: &str) -> bool {
        matches!(self, Self::Hook { name, .. } if name == hook)
    }

    /// When the wait is due or times out, if it does.
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
#[non_exhaustive]
pub struct Stuck {
    /// The reason.
    pub reason: StuckReason,
    /// The message, with the remedy.
    pub message: String,
    /// The build that could not continue it; workers with another build retry it.
    pub build: String,
}

impl Stuck {
    /// Stuck for this reason, in a build that [`in_build`](Self::in_build) sets.
    pub fn new(reason: StuckReason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), build: String::new() }
    }

    /// The same, with the build that could not continue the run.
    #[must_use]
    pub fn in_build(self, build: impl Into<String>) -> Self {
        Self { build: build.into(), ..self }
    }
}

/// The reasons why a run is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StuckReason {
    /// The requests of the code do not match the history.
    Diverged,
    /// The workflow's code panicked.
    Panicked,
    /// The workflow awaited something that is not an operation.
    ForeignAwait,
    /// The workflow called a step's function directly, instead of `ctx.step`.
    CalledDirectly,
    /// The context was used outside of the workflow's own code: in a step, in a spawned task, by another run.
    ContextOutside,
    /// The workflow requested a step that this worker does not have.
    StepNotRegistered,
    /// Its worker crashed too often while it held the run.
    Poison,
    /// The history cannot be read by this build.
    Unreadable,
    /// A stored value cannot be decoded as the type that the code expects.
    Undecodable,
    /// The world refuses the turn of the run, for example because it is too large.
    Refused,
    /// A turn did not return: the workflow loops without awaiting, or blocks its thread.
    Hung,
    /// The workflow was cancelled, and keeps requesting operations although they are refused.
    IgnoresCancel,
    /// A reason that this build does not know; see the message.
    #[serde(other)]
    Other,
}

impl StuckReason {
    /// Its name as worlds store it.
    pub fn stored_name(self) -> String {
        let name = serde_json::to_string(&self).unwrap_or_default();
        name.trim_matches('"').to_owned()
    }

    /// The reason with a stored name. A name that this build does not know is [`Other`](Self::Other).
    pub fn of_stored_name(name: &str) -> Self {
        serde_json::from_value(name.into()).unwrap_or(Self::Other)
    }
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

/// A run, as clients see it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RunView {
    /// The run.
    pub id: RunId,
    /// Its workflow's name.
    pub workflow: Arc<str>,
    /// Its workflow's version.
    pub version: u32,
    /// Its queue.
    pub queue: Arc<str>,
    /// Its priority; 0 is the default, higher is more urgent.
    pub priority: u8,
    /// The caller's key.
    pub key: Option<String>,
    /// Its status.
    pub status: Status,
    /// The session that holds it.
    pub owner: Option<SessionId>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When its row last changed: at start, claim, suspension, message, end.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When a waiting run is due without a message.
    pub wake_at: Option<Timestamp>,
    /// The waits of a waiting run.
    pub waits: Vec<Wait>,
    /// The number of messages that were sent to it.
    pub sent: u64,
    /// The number of messages that it has consumed.
    pub consumed: u64,
    /// The number of worker crashes that count against it.
    pub crashes: u32,
    /// The number of kept payloads.
    pub kept: u64,
    /// Whether it was asked to stop.
    pub is_cancel_requested: bool,
    /// The builds that could not continue it since it last progressed.
    pub failed_builds: FailedBuilds,
    /// Its generation: 1, and one more for each time it has continued as a new one.
    pub generation: u64,
    /// The lowest format that a reader of the run needs.
    pub format: u32,
    /// Why it is stuck, if it is.
    pub stuck: Option<Stuck>,
    /// Why it failed, if it did: a summary. The output and the history have the whole failure.
    pub failure: Option<Box<RunFailure>>,
    /// Whether it waits for the next attempt of a step. A run that a worker holds shows this only in its operations.
    pub is_retrying: bool,
    /// From this time on a build that has not failed can claim the stuck run.
    pub retry_at: Option<Timestamp>,
    /// The run that started it, if one did.
    pub parent: Option<Parent>,
    /// Its tags.
    pub tags: Tags,
    /// When it is cancelled; `None` once it was cancelled or has ended.
    pub deadline: Option<Timestamp>,
    /// Its marks.
    pub marks: Marks,
}

impl RunView {
    /// A view with the holder's columns. The world adds the other columns, so that its code need not name these.
    pub fn of_columns(id: RunId, status: Status, columns: &HolderColumns) -> Self {
        Self {
            id,
            status,
            crashes: columns.crashes,
            kept: columns.kept,
            deadline: columns.deadline,
            stuck: columns.stuck.as_deref().filter(|_| status == Status::Stuck).cloned(),
            failure: columns.failure.clone().filter(|_| status == Status::Failed),
            is_retrying: columns.is_retrying && status == Status::Waiting,
            failed_builds: columns.failed_builds.clone(),
            marks: columns.marks,
            generation: columns.continued + 1,
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

    /// The status as lists show it: the most important mark of the run, or its status if it has none.
    ///
    /// ```
    /// # use outlast_core::{HolderColumns, Marks, RunId, RunView, Status};
    /// let mut run = RunView::of_columns(RunId::from_bits(1), Status::Waiting, &HolderColumns::default());
    /// assert_eq!(run.shown_status(), "waiting");
    /// run.marks = Marks::PAUSED;
    /// assert_eq!(run.shown_status(), "paused");
    /// ```
    pub fn shown_status(&self) -> &'static str {
        self.marks.names().next().unwrap_or(self.status.as_str())
    }

    /// The run that this one was restarted from, if it was.
    pub fn restarted_from(&self) -> Option<RunId> {
        self.tags.get(RESTARTED_FROM).and_then(|run| run.parse().ok())
    }

    /// The run that this one was forked from, if it was.
    pub fn forked_from(&self) -> Option<RunId> {
        self.tags.get(FORKED_FROM).and_then(|run| run.parse().ok())
    }

    /// The topmost ancestor of the run, or the run itself.
    pub fn root(&self) -> RunId {
        self.parent.map_or(self.id, |parent| parent.root)
    }

    /// Whether its workflow belongs to the engine: it is a schedule, for example.
    pub fn is_built_in(&self) -> bool {
        self.workflow.starts_with(BUILT_IN_PREFIX)
    }

    /// Whether it is a queued step: it executes one step of another run.
    pub fn is_queued_step(&self) -> bool {
        step_of_workflow(&self.workflow).is_some()
    }
}

/// The tag of a run that was restarted: the run that it was restarted from.
pub const RESTARTED_FROM: &str = "outlast:restarted_from";

/// The tag of a run that is a fork: the run whose events it has copied.
pub const FORKED_FROM: &str = "outlast:forked_from";

/// The result of pruning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The number of deleted runs.
    pub runs: u64,
    /// The cursor for `after` of the next call; `None` when all runs were examined.
    pub next: Option<RunId>,
}

/// The number of runs in each status. Every status is listed, also those without runs: see [`complete_counts`].
pub type Counts = BTreeMap<Status, u64>;

/// The counts with these numbers, and 0 for every other status.
pub fn complete_counts(numbers: impl IntoIterator<Item = (Status, u64)>) -> Counts {
    let mut counts: Counts = Status::ALL.into_iter().map(|status| (status, 0)).collect();
    counts.extend(numbers);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_a_later_build_can_be_read() {
        let read = |text| serde_json::from_str::<StuckReason>(text).unwrap();
        assert_eq!(read("\"undecodable\""), StuckReason::Undecodable);
        assert_eq!(read("\"out of patience\""), StuckReason::Other);
        assert_eq!(StuckReason::of_stored_name("out of patience"), StuckReason::Other);
        for reason in [StuckReason::Diverged, StuckReason::StepNotRegistered, StuckReason::Other] {
            assert_eq!(StuckReason::of_stored_name(&reason.stored_name()), reason);
        }
        assert_eq!(StuckReason::StepNotRegistered.stored_name(), "step_not_registered");
    }
}
