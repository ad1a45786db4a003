//! The basic types of Outlast: ids, events, history, inbox, turns, limits, and the [`World`] contract.
//!
//! This crate does no I/O, has no runtime and reads no clock. Everything that can be computed from values is computed
//! here, so that all worlds behave the same.

pub mod backoff;
pub mod change_signal;
pub mod compensation;
pub mod cut;
pub mod definition;
pub mod duration;
pub mod error;
pub mod event;
mod exact_json;
pub mod failed_builds;
pub mod failure;
pub mod forked;
pub mod format;
pub mod history;
pub mod id;
pub mod iteration;
pub mod limits;
pub mod marks;
pub mod message;
pub mod paging;
pub mod payload;
pub mod queue;
pub mod recently_started;
pub mod record;
pub mod refusal;
pub mod reply;
pub mod report;
pub mod retried;
pub mod retry;
pub mod run;
pub mod run_map;
pub mod secret;
pub mod sql;
pub mod state;
pub mod strategy;
pub mod stream;
pub mod takeover;
pub mod time;
pub mod token;
pub mod transaction;
pub mod turn;
pub mod view;
pub mod work;
pub mod world;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use backoff::Backoff;
pub use change_signal::{ChangeSignal, RunWatch, RunWatchers, Waiters};
pub use compensation::{Compensation, CompensationState, Compensations, UndoneStep};
pub use cut::{CarriedChild, EventPlace, ReplayHistory, RunContinued};
pub use definition::{DefinitionView, WorkflowSummary};
pub use duration::IntoDuration;
pub use error::{Cause, ErrorText, WorldError};
pub use event::{
    ChildStarted, CompensationInput, CompensationRegistered, Ended, Event, Judgement, OpNumber, Outcome,
    Queued, RunRetrying, RunStarted, TokenRequested, TurnRecord,
};
pub use failed_builds::FailedBuilds;
pub use failure::{
    CANCELLED_BY_WORKFLOW, ErrorClass, FailedCompensation, FailedCompensations, Failure, FailureKind,
    FailureOrigin,
};
pub use forked::{
    Fork, ForkOrigin, ForkPlan, ForkPoint, ForkRefusal, PlannedOutput, RunForked, pending_fork,
};
pub use history::History;
pub use id::{AttemptId, IdSource, MessageId, RunId, SessionId, TurnId};
pub use iteration::{IterationCut, IterationEnded, SkippedRange};
pub use marks::{MarkCounts, Marks, count_marks};
pub use message::{
    ACTOR_HEADER, EndableWithoutCode, Headers, HookAddress, Message, MessageBody, NewMessage, Sent,
};
pub use payload::{Codec, Payload, PayloadError, PlainJson};
pub use queue::QueueView;
pub use recently_started::RecentlyStarted;
pub use record::{NewRecord, RecordQuery, StoredRecord};
pub use reply::{NewReply, Reply, StoredReply};
pub use report::{Report, UncommittedRuns, WorkerStatus};
pub use retried::{
    AdoptableChild, PlannedOperation, PlannedToken, RenewedWait, Reopen, RestartedRun, RetryPlan,
    RetryRefusal, RetryRequest, RunRetried,
};
pub use retry::{Policy, Retry};
pub use run::{
    BuiltInRuns, Counts, FORKED_FROM, FailureQuery, FlagCounts, FlagFilter, KeyPolicy, ListOrder, Page,
    Parent, ParentEnd, Pruned, QueuedSteps, RESTARTED_FROM, Requester, RunFailure, RunQuery, RunView, Start,
    StartKey, Started, Status, Stuck, StuckReason, Tags, Wait, complete_counts,
};
pub use run_map::{RunMap, RunSet};
pub use secret::{SECRET_FIELD, SECRET_SHOWN, without_secrets};
pub use state::{
    CommitTerms, HolderColumns, Position, Readiness, ReadyAt, ReleaseReason, Released, RowChange,
    TurnColumns, Verdict,
};
pub use strategy::{EndPlan, EndStep, EndingRun, FailureStrategy, RunEnd};
pub use stream::{
    Binary, ChunkContent, ChunkError, ChunkKind, ChunkOrigin, EntryBody, PublishedState, StateView,
    StateWrite, StreamAppend, StreamEntry, StreamPage, StreamView, StreamWrite, StreamWritten,
    WorkflowWrites,
};
pub use time::{Busy, Clock, Timestamp, TimestampOutOfRange};
pub use token::{
    CarriedToken, FreedToken, InvalidTokenHash, NewToken, SignatureTerms, StoredToken, TokenChanges,
    TokenHash, TokenOwner, TokenView, WebhookReply, WebhookResponse, WebhookTerms,
};
pub use transaction::{OutcomeSlot, Transacted};
pub use turn::{Committed, HeldRun, NewChild, Outbox, Then, Turn};
pub use view::{AttemptView, OperationKind, OperationStatus, OperationView, Rejection};
pub use work::{
    Beat, ClaimRequest, Claimed, ClaimedHistory, Code, HeartbeatDetails, Join, SuspectRoom, UnreadMessages,
    Work, WorkerView,
};
pub use world::{
    Delivered, Description, Effects, QuarantineChange, World, WorldMethod, WorldWrapper, innermost,
};
