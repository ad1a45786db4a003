//! Bad days: what goes wrong around a worker, each with what a person sees and how it ends.
//!
//! * [`neighbours`]: processes that share a file hear of each other at once.
//! * [`idle`]: a worker with nothing to do asks for next to nothing.
//! * [`hang`]: workflow code that does not come back.
//! * [`signals`]: SIGTERM, once and twice.
//! * [`clocks`]: a clock that is set.
//! * [`frozen`]: a process stopped for longer than its session.
//! * `killed`: a process that is gone.
//! * [`last_details`]: what a killed process leaves of its heartbeats.
//! * `late`: a process that is cut off, and what it had sent.
//! * [`scarce`]: no file descriptors, no memory.
//! * [`full`]: no room on the disk, and room again.
//! * [`panics`]: user code that panics, wherever there is some.
//! * [`metrics`]: what a worker counts.
//!
//! Where a test needs a process of its own, that is this test binary again: [`child_program`]. Signals
//! are tested on a file and on a server ([`process::Ground`]).

#![cfg(all(unix, feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test")]

mod clocks;
mod frozen;
mod full;
mod hang;
mod idle;
#[cfg(feature = "postgres")]
mod killed;
mod last_details;
#[cfg(feature = "postgres")]
mod late;
mod metrics;
mod neighbours;
mod panics;
mod process;
mod scarce;
mod signals;

/// What a child process runs; nothing when the test command runs it.
#[test]
fn child_program() {
    process::obey();
}
