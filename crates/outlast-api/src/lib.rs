//! Requests and responses of the Outlast HTTP API, as types.
//!
//! The server, the command line and other surfaces use the same types, so the JSON of all of them is the same. With the
//! feature `service`, the crate also has the service that answers every request on a client of a world; the
//! surfaces only translate.
//!
//! | item | what it is |
//! |---|---|
//! | [`Action`] | everything that a person can do to runs |
//! | [`RunJson`], [`OperationJson`], [`EventJson`], … | responses |
//! | [`StartRequest`], [`SendRequest`], [`RunFilter`], … | bodies and queries of requests |
//! | [`Problem`], [`ProblemCode`] | refusals, as documents of RFC 9457 |
//! | [`ItemPage`], [`Cursor`] | pages of lists |
//!
//! Names of statuses, kinds, marks and flags in responses are text: a client must accept names that it does not know, and
//! ignore fields that it does not know. Requests with unknown fields are refused.
//!
//! ```
//! use outlast_api::{QueryPairs, RunFilter};
//!
//! let filter = RunFilter { workflow: Some("checkout".into()), ..RunFilter::default() };
//! assert_eq!(filter.to_query(), "workflow=checkout");
//! ```

mod action;
mod audit;
mod role;

mod problem;

mod cursor;
mod page;
mod query;

mod payload;
mod rfc3339;

mod event;
mod explanation;
mod failure;
mod failure_group;
mod hook;
mod operation;
mod output;
mod queue;
mod run;
mod runs;
mod schedule;
mod stats;
mod stream;
mod worker;
mod workflow;
mod world;

mod bulk;
mod control;
mod fork;
mod retry;
mod send;
mod start;

mod live;

#[cfg(feature = "service")]
mod service;

pub use action::Action;
pub use audit::{AuditFilter, AuditJson, AuditOutcome};
pub use bulk::{
    BulkAction, BulkJson, BulkPreview, BulkProblemJson, BulkRequest, BulkRunFilter, BulkStopJson,
    BulkStopRequest,
};
pub use control::{
    CancelRequest, ControlledJson, DidWhat, PauseRequest, PruneRequest, PrunedJson, RestartRequest,
    TerminateRequest, WakeRequest,
};
pub use cursor::{Cursor, CursorError, PageDirection};
pub use event::{EventFilter, EventJson, EventOrder};
pub use explanation::ExplanationJson;
pub use failure::{FailedCompensationJson, FailureJson};
pub use failure_group::{FailureDetailJson, FailureFilter, FailureGroupJson, FailureListJson};
pub use fork::{ForkPlanJson, ForkRequest, PlannedOutputJson};
pub use hook::{HookFilter, HookKind, OpenHookJson, WebhookJson};
pub use live::{ByeJson, EndJson, GoneJson, HelloJson, LiveFilter, LiveTopic, ResetJson, RestartedJson};
pub use operation::{AttemptJson, OperationFilter, OperationJson, RejectionJson};
pub use output::{OutputJson, OutputQuery, StateJson};
pub use page::{ChildrenJson, ItemPage, PageRequest};
pub use payload::{PAYLOAD_PREVIEW_BYTES, PayloadAmount, PayloadJson};
pub use problem::{FieldProblem, Problem, ProblemCode, ProblemDocument};
pub use query::{QueryPairs, QueryReader, QueryWriter, path_segment};
pub use queue::{QueueDetailJson, QueueJson, QueueListJson};
pub use retry::{PlannedOperationJson, RetryPlanJson, RetryRunRequest};
pub use rfc3339::{InvalidTime, Rfc3339};
pub use role::{InvalidRole, Role};
pub use run::{InboxJson, ParentJson, RunFailureJson, RunJson, StuckJson, WaitJson};
pub use runs::{CountsJson, ResolveJson, ResolveQuery, RunFilter, RunFlag, RunListOrder};
pub use schedule::{
    BackfillRequest, BackfilledJson, BacklogJson, CatchUpRule, FiredJson, FiringCountsJson, FiringJson,
    FiringRefusalJson, OverlapRule, ScheduleControlledJson, ScheduleDefinition, ScheduleFilter, ScheduleJson,
    SchedulePauseJson, SchedulePauseRequest, SchedulePreviewJson, SchedulePreviewRequest, ScheduleResult,
    SchedulesControlledJson, SchedulesRequest,
};
pub use send::{SendRequest, SentJson};
pub use start::{BatchJson, BatchRequest, BatchResult, StartRequest, TimeOrDuration};
pub use stats::{StatsJson, StatsPointJson, StatsQuery};
pub use stream::{ChunkFilter, ChunkJson, ChunkListJson, StreamJson, StreamListJson};
pub use worker::{WorkerJson, WorkerListJson, WorkflowCodeJson};
pub use workflow::{
    EndedRunsJson, OpenRunsJson, OpenVersionJson, WorkflowDefinitionJson, WorkflowDetailJson, WorkflowJson,
    WorkflowListJson,
};
pub use world::{MeJson, ReadinessJson, WorldJson};

#[cfg(feature = "service")]
pub use service::{
    Caller, EventTail, MomentKind, NewAudit, RunMoment, RunTimeline, Service, StartedJson, StreamFollower,
    StreamFrame, body_without_tokens, local_minute, preview_schedule,
};
