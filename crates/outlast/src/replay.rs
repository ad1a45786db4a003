//! Replay: the pure engine that turns history and code into operations.
//!
//! It does no I/O, reads no clock and knows no world. A [`Machine`] is a run's future with what it
//! shares with the engine. It is fed *deliveries* (events that the run was told) and answers with
//! *decisions* (events that the run asked for). Live and in replay the same code runs, so what was
//! decided once is decided again; where it is not, the run has diverged.

pub(crate) mod again;
#[cfg(feature = "bench")]
pub mod bench;
mod cancel;
mod cell;
mod children;
mod cursor;
mod delivery;
mod divergence;
mod ends;
mod holder;
mod hooks;
mod known;
mod machine;
mod misuse;
mod ops;
pub(crate) mod polling;
mod queued;
mod quiet;
pub(crate) mod state;
#[cfg(test)]
mod tests;
mod trail;
mod unrecorded;
mod waits;
mod waker;

pub(crate) use delivery::{Delivery, terminated};
pub(crate) use hooks::{Arrival, CanRead, SentPayload, can_read};
pub(crate) use machine::{Machine, StepToAttempt, USUAL_SUSPECTS, panic_text};
pub(crate) use misuse::used_in_step;
pub(crate) use queued::QUEUED_VERSION;
pub(crate) use state::RunState;
