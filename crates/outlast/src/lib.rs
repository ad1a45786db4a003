//! Durable workflows: async Rust functions that outlast the process that started them.
//!
//! A workflow is an ordinary `async fn`. Outlast records the operations that it requests and their outcomes, so a run
//! continues after a crash, a deploy or a year of sleep.
//!
//! ```
//! use outlast::prelude::*;
//!
//! #[step(attempts = 5, timeout = "30s")]
//! async fn charge(cents: u64) -> Result<String, StepError> {
//!     Ok(format!("payment of {cents}"))
//! }
//!
//! #[workflow]
//! async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
//!     let payment = ctx.step(charge, &cents).await?;
//!     ctx.sleep("10ms").await?; // or "3d": nothing is held in memory meanwhile
//!     Ok(payment)
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! let world = outlast::open("memory:").await?; // or "sqlite:shop.db"
//! let worker = Worker::builder(world.clone()).register((checkout, charge)).start().await?;
//! let run = Client::new(world).start(checkout, &4200).key("order-42").await?;
//! assert_eq!(run.output().await?, "payment of 4200");
//! worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! | item | what it is for |
//! |---|---|
//! | [`macro@workflow`], [`macro@step`] | turn functions into workflows and steps |
//! | [`Context`] | the operations that a workflow can request: steps, timers, hooks, children |
//! | [`StepContext`] | what a step knows: the worker's state, its idempotency key, whether to stop |
//! | [`open`] | opens a *world*, the place where runs are stored |
//! | [`Worker`] | executes runs |
//! | [`Client`] | starts runs, sends to them, stops them and inspects them |
//! | [`Error`], [`StepError`] | errors of workflows and clients, and of steps |
//!
//! The guide in the repository (`docs/guide`) explains the concepts one by one.

// The macros refer to this crate as `::outlast`, also in its own tests.
#[cfg(test)]
extern crate self as outlast;

// What users write: workflows, steps, and the operations that a workflow awaits.
mod authoring;
// What programs call: start, send, cancel, inspect.
mod client;
// Rules that start runs repeatedly, and the built-in workflow that does it.
mod schedule;
// From history and code to operations, without I/O.
mod replay;
// Claims runs, executes turns and attempts, commits.
mod worker;
// What happens, for operators: metrics and traces.
mod telemetry;

// Requests as a built-in step.
#[cfg(feature = "http")]
pub mod http;

// Hooks whose payloads are HTTP requests, and their signatures.
#[cfg(feature = "webhooks")]
pub mod webhook;

#[cfg(any(feature = "http", feature = "webhooks"))]
mod stored_body;

mod bulk;
mod clock;
mod error;
mod ids;
mod name_map;
mod open;
mod testing;

pub use outlast_core as core;
pub use outlast_core::{
    AttemptId, AttemptView, Binary, ChunkKind, ChunkOrigin, Codec, Counts, DefinitionView, EndPlan, EndStep,
    ErrorClass, FailedCompensation, FailureKind, FailureQuery, FailureStrategy, FlagCounts, FlagFilter,
    ForkPlan, Headers, IntoDuration, ListOrder, MarkCounts, Marks, MessageId, OpNumber, OperationKind,
    OperationStatus, OperationView, Page, ParentEnd, Payload, PayloadError, PlannedOperation, PlannedOutput,
    PlannedToken, Policy, QueueView, Rejection, Retry, RetryPlan, RunEnd, RunFailure, RunId, RunQuery,
    RunView, Status, StreamView, Stuck, StuckReason, Tags, Timestamp, TimestampOutOfRange, Wait, WorkerView,
    World, WorldError,
};
pub use outlast_macros::{select, step, workflow};
pub use outlast_memory::MemoryWorld;
#[cfg(feature = "postgres")]
pub use outlast_postgres::{self as postgres, PgTx};
#[cfg(feature = "sqlite")]
pub use outlast_sqlite::{self as sqlite, SqliteTx};

pub use authoring::attempt::{Attempt, StopReason};
pub use authoring::compensation::Undo;
pub use authoring::context::Context;
pub use authoring::current::{Current, CurrentStep, current};
pub use authoring::hook::{AskFor, Hook, HookFor, HookName};
pub use authoring::input::Input;
pub use authoring::iterate::Next;
pub use authoring::json::IntoJson;
pub use authoring::open_hook::{OpenHook, OpenHookOperation};
pub use authoring::operation::{
    AbandonedChild, ChildOperation, HookOperation, Received, ReceivedOperation, StepOperation, TimerOperation,
};
pub use authoring::other_runs::{AskOperation, CANCEL, RunCancel, RunMessage, SEND};
pub use authoring::race::{RaceError, RaceOk, race_ok};
pub use authoring::reconcile::ReconcileFn;
pub use authoring::register::Register;
pub use authoring::registry::Registry;
pub use authoring::retry::{retry, retry_with_clock};
#[cfg(feature = "schema")]
pub use authoring::schema::{HasSchema, Schema, schema_of};
pub use authoring::secret::Secret;
pub use authoring::step::{ByName, Step, StepCode, StepContext, StepDefinition, StepFn, StepHandle};
pub use authoring::stream::{StepStream, WorkflowStream};
pub use authoring::workflow::{RunFuture, Workflow, WorkflowDefinition, WorkflowFn, WorkflowHandle};
pub use bulk::{BulkProblem, BulkProgress, BulkState, BulkStop};
pub use client::{
    AskCall, Attempting, Because, Bulk, BulkCall, BulkHandle, BulkRefusal, Cancel, Chunk, ChunkPage, Client,
    Compensating, ComputedSchedule, ConfirmedSchedule, Controlled, DurableBulkCall, EventView, EventsCall,
    Explanation, ForkCall, JoinedWorker, KeyedRun, ListCall, NextTry, OperationsCall, PauseCall, PostedAsk,
    Probe, RestartCall, Retried, RetryCall, RunHandle, ScheduleBuilder, ScheduleCall, ScheduleHandle,
    SchedulePage, SchedulesCall, SendCall, StartAndSendCall, StartCall, StartManyCall, StateWatch, Stopping,
    StreamCall, StreamItem, StreamTail, TerminateCall, TokenDelivery, TokenSendCall, Waiting, Within, backup,
};
pub use clock::SystemClock;
pub use error::{Error, ErrorKind, StepError};
pub use open::{open, open_with_clock};
pub use schedule::{
    CatchUp, Firing, FiringView, Overlap, ScheduleAnswer, ScheduleCounts, ScheduleInput, SchedulePause,
    ScheduleRefusal, ScheduleTiming, ScheduleView,
};
#[cfg(feature = "attempt-log")]
pub use telemetry::AttemptLogLayer;
pub use telemetry::{
    HistogramValue, MetricFamily, MetricKind, MetricSample, MetricValue, SpanConnection, TraceBridge,
    TraceBridgeInstalled, TraceContext, continue_trace, install_trace_bridge,
};
pub use testing::history::replay;
pub use worker::{
    CheckCall, CheckFinding, CheckReport, CheckedWorkflow, Metrics, RetryNotice, Times, Worker, WorkerBuilder,
};

#[cfg(any(test, feature = "test-support"))]
pub mod test_support;

#[doc(hidden)]
pub mod __private;

/// The items that a module with workflows usually needs.
///
/// `join!` and `try_join!` are those of `futures-util`, which poll their branches in order, so a replay is identical.
pub mod prelude {
    #[cfg(feature = "postgres")]
    pub use crate::PgTx;
    #[cfg(feature = "sqlite")]
    pub use crate::SqliteTx;
    pub use crate::{
        Client, Context, Error, ErrorClass, Hook, Next, ParentEnd, Retry, RunHandle, Step, StepContext,
        StepError, Undo, Worker, Workflow, race_ok, select, step, workflow,
    };
    pub use futures_util::future::{join_all, try_join_all};
    pub use futures_util::stream::{FuturesUnordered, StreamExt};
    pub use futures_util::{join, try_join};
}

/// The code in the README, which is compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
