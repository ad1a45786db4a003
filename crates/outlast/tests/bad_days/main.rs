//! Failures around a worker: what a user sees, and how the worker recovers.
//!
//! * [`neighbours`]: processes that share a file notify each other at once.
//! * [`idle`]: an idle worker makes almost no calls.
//! * [`hanging_code`]: workflow code that does not return.
//! * [`signals`]: SIGTERM, once and twice.
//! * [`clocks`]: a clock that is moved forward.
//! * [`frozen`]: a process stopped for longer than its session.
//! * `killed`: a process that is killed.
//! * [`last_details`]: the heartbeat details of a killed process.
//! * `late_commit`: a disconnected process, and its late commit.
//! * [`scarce_resources`]: no file descriptors, no memory.
//! * [`full_disk`]: no space on the disk, and space again.
//! * [`lost_file`]: a file that is removed, or a schema that is dropped, while it is used.
//! * [`panics`]: user code that panics.
//! * [`metrics`]: the counters of a worker.
//!
//! A child process of a test is this test binary again: [`child_program`]. Signals are tested on a file and on a server
//! ([`child::WorldLocation`]).

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

mod child;
mod clocks;
mod frozen;
mod full_disk;
mod hanging_code;
mod idle;
mod killed;
mod last_details;
mod late_commit;
mod lost_file;
mod metrics;
mod neighbours;
mod panics;
mod scarce_resources;
mod signals;

/// The entry point of child processes. Without their environment variables it does nothing.
#[test]
fn child_program() {
    child::run_child_program();
}
