//! The work on one run, from the claim or start until the session does not hold the run any more.
//!
//! Two objects work on a run, and each live run has one of both:
//!
//! * [`task::RunTask`] exists as long as the run is live. It loads the run, and handles its exit: it puts a released
//!   future into the cache, or marks the run as stuck.
//! * [`live_run::LiveRun`] exists while the task has the run's machine: the future and its operations. It waits for
//!   something new, computes turns and commits them, until the run [exits](exit::Exit).
//!
//! New information takes three forms on its way to the workflow's code:
//!
//! 1. A [`mailbox::MailboxItem`] is what the session passes to the run's task: a message, a new claim, or the request
//!    to stop.
//! 2. A [`fact::Fact`] is one new thing that a turn is computed from: a message, the end of an attempt, a due timer.
//!    Facts are sorted by time.
//! 3. A [`Delivery`](crate::replay::Delivery) is what the machine receives for a fact, and records as an event.

pub(super) mod task;

pub(super) mod mailbox;

pub(super) mod exit;

pub(super) mod position;

pub(super) mod live_run;

pub(super) mod fact;

pub(super) mod turn;

mod submitted_turn;

mod parts;

mod skipped_turns;

mod compensate;

mod turn_log;

mod turn_metrics;

mod replay_check;

mod lost_worker;

mod unrecorded_outcomes;

mod recorded_outcomes;

mod pause;

pub(super) mod pending_retry;

pub(super) mod crash_suspects;

pub(super) mod machine_cache;
