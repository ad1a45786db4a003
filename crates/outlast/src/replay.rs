//! Replay: the pure engine that turns history and code into operations.
//!
//! It does no I/O, reads no clock and knows no world. The code of workflows is behind the trait [`ReplayCode`].
//!
//! A [`Machine`] contains the future of a run and the state that the future shares with the engine ([`RunState`]). It
//! receives *deliveries*, which are recorded as events, and returns *decisions* of the workflow as events. A live run
//! and a replay execute the same code, so that a replay repeats every decision. If it does not, the run has diverged.

mod code;
mod handle;
mod machine;
pub(crate) mod state;

mod delivery;
mod operation_map;
mod operation_table;

mod cancel;
mod cancel_operation;
mod carried;
mod children;
mod compensation;
mod forked;
mod generation;
mod hooks;
mod iteration;
mod queued;
mod random;
mod recorded_requests;
mod recorded_values;
mod replies;
mod restore;
mod retried;
mod run_end;
mod saga;
mod startable;
mod strategy;
mod tokens;

mod cursor;
mod divergence;
mod divergence_report;
mod history_index;
mod log_suppression;
mod unrecorded_requests;

mod misuse;
mod names;
pub(crate) mod polling;
mod waker;

mod holder_columns;
mod summary;
mod waits;
mod writes;

#[cfg(test)]
mod tests;

pub(crate) use carried::{ChildOptions, ChildText};
pub(crate) use code::{DropInBackground, InputError, ReplayCode, WorkflowFuture};
pub(crate) use delivery::Delivery;
pub(crate) use handle::OpHandle;
pub(crate) use hooks::{Arrival, CanRead, SentPayload, can_read};
#[cfg(any(test, feature = "test-support"))]
pub(crate) use machine::FOREIGN_AWAIT_REMEDY;
pub(crate) use machine::{Machine, panic_text};
pub(crate) use misuse::used_in_step;
pub(crate) use queued::QUEUED_VERSION;
pub(crate) use replies::ReplySlot;
pub(crate) use retried::PendingRetry;
pub(crate) use saga::{NewCompensation, Saga, failed_compensation};
pub(crate) use startable::StepToAttempt;
pub(crate) use state::RunState;
pub(crate) use tokens::{TokenHandle, TokenOptions};
#[cfg(any(test, feature = "test-support"))]
pub(crate) use writes::add_writes;
pub(crate) use writes::workflow_stream_name;
