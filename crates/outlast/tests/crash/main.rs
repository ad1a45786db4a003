//! Crash tests: real child processes, really killed with SIGKILL, on one SQLite file; [`sweep`] and
//! [`sharing`] on Postgres too.
//!
//! * [`sweep`]: a program killed at every commit point, one point per child.
//! * [`loops`]: a program killed from outside at random instants, again and again.
//! * [`sleeping`]: a run whose process dies while it sleeps.
//! * [`pausing`]: a step whose process dies between two of its attempts.
//! * [`sharing`]: two processes on one file, one of which dies.
//!
//! A child is this test binary again, told by its environment to be a program: [`child_program`]. What
//! it does to the outside it writes to plain files ([`ledger`]), which the tests compare with the
//! histories in the database ([`picture`]).

#![cfg(all(unix, feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod chains;
mod ledger;
mod loops;
mod medley;
mod pausing;
mod picture;
mod process;
#[cfg(feature = "postgres")]
mod server;
mod sharing;
mod sleeping;
mod sweep;
mod troubles;

/// What a child process runs; nothing when the test command runs it.
#[test]
fn child_program() {
    let Some(orders) = process::Orders::from_environment() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(process::obey(orders)).unwrap();
}
