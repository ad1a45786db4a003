//! Crash tests: real child processes are killed with SIGKILL, on one SQLite file; [`sweep`], [`schedules`],
//! [`transfers`] and [`two_processes`] also run on Postgres.
//!
//! * [`sweep`]: a program killed at every commit point, one point per child.
//! * [`repeated_kills`]: a program killed from outside at random times, repeatedly.
//! * [`during_sleep`]: a run whose process dies while it sleeps.
//! * [`between_attempts`]: a step whose process dies between two of its attempts.
//! * [`streaming`]: a step whose process dies while it writes to a stream that another process reads.
//! * [`schedules`]: three processes that serve schedules and are killed repeatedly.
//! * [`transfers`]: transactional steps, killed at every point and at random times.
//! * [`two_processes`]: two processes on one file, one of which dies.
//!
//! A child is this test binary again, with environment variables that select a program: [`child_program`]. It logs the
//! effects of steps to plain files ([`process_folder`]), which the tests compare with the histories in the database
//! ([`snapshot`]). If a child does not end, the test prints what it waits for ([`diagnosis`]).

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod between_attempts;
mod chain_program;
mod child;
mod compensating_program;
mod diagnosis;
mod during_sleep;
mod failing_program;
mod forked_program;
mod long_program;
mod mixed_program;
mod orchestrated_program;
mod postgres_schema;
mod process_folder;
mod repeated_kills;
mod retried_program;
mod schedules;
mod snapshot;
mod streaming;
mod sweep;
mod token_program;
mod transfers;
mod two_processes;

/// The entry point of child processes. Without their environment variables it does nothing.
#[test]
fn child_program() {
    let Some(args) = child::ChildArgs::from_environment() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(child::run_child(args)).unwrap();
}
