//! The basic types of Outlast: ids, events, history, inbox, turns, limits, and the [`World`] contract.
//!
//! This crate does no I/O, has no runtime and reads no clock. Everything that can be computed from values is computed
//! here, so that all worlds behave the same.

pub mod backoff;
pub mod change_signal;
pub mod duration;
pub mod error;
pub mod event;
mod exact_json;
pub mod failed_builds;
pub mod failure;
pub mod format;
pub mod history;
pub mod id;
pub mod limits;
pub mod message;
pub mod paging;
pub mod payload;
pub mod queue;
pub mod refusal;
pub mod report;
pub mod retry;
pub mod run;
pub mod run_map;
pub mod state;
pub mod takeover;
pub mod time;
pub mod turn;
pub mod view;
pub mod work;
pub mod world;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use backoff::Backoff;
pub use change_signal::{ChangeSignal, Waiters};
pub use duration::IntoDuration;
pub use error::{Cause, ErrorText, WorldError};
pub use event::{ChildStarted, Ended, Event, Judgement, OpNumber, Outcome, Queued, RunStarted, TurnRecord};
pub use failed_builds::FailedBuilds;
pub use failure::{CANCELLED_BY_WORKFLOW, ErrorClass, Failure, FailureKind};
pub use history::History;
pub use id::{AttemptId, IdSource, MessageId, RunId, SessionId, TurnId};
pub use message::{EndableWithoutCode, Headers, Message, MessageBody, NewMessage, Sent};
pub use payload::{Codec, Payload, PayloadError, PlainJson};
pub use report::{Report, UncommittedRuns, WorkerStatus};
pub use retry::{Policy, Retry};
pub use run::{
    Counts, ListOrder, Page, Parent, ParentEnd, Pruned, QueuedSteps, Requester, RunQuery, RunView, Start,
    StartKey, Started, Status, Stuck, StuckReason, Tags, Wait, complete_counts,
};
pub use run_map::{RunMap, RunSet};
pub use state::{
    CommitTerms, HolderColumns, Position, Readiness, ReadyAt, ReleaseReason, Released, RowChange,
    TurnColumns, Verdict,
};
pub use time::{Busy, Clock, Timestamp, TimestampOutOfRange};
pub use turn::{Committed, HeldRun, NewChild, Outbox, Then, Turn};
pub use view::{OperationKind, OperationStatus, OperationView, Rejection};
pub use work::{
    Beat, ClaimRequest, Claimed, ClaimedHistory, Code, HeartbeatDetails, Join, SuspectRoom, UnreadMessages,
    Work, WorkerView,
};
pub use world::{Delivered, Description, Effects, World, WorldMethod, WorldWrapper};
