//! For tests of workflows: rehearsals, worlds under virtual time, and replays of recorded histories.
//!
//! * [`Rehearsal`]: one workflow function, driven by the test, with no world and no runtime.
//! * [`TestWorld`]: a world under virtual time with a worker, in which steps can be mocked and the worker can crash.
//! * [`torture`]: crashes a workflow at every commit, and compares what it does with an undisturbed run.
//! * [`assert_replays`]: replays recorded histories with the current code.
//! * [`TestClock`]: virtual time, which passes only when the test moves it.
//!
//! Authors of worlds find the conformance suite in the crate `outlast-conformance`.

mod rehearsal;
mod replays;
mod torture;
mod world;

pub mod clock;

// Also used by `outlast-conformance`. No stable interface.
#[doc(hidden)]
pub mod watchdog;

pub use clock::TestClock;
pub use rehearsal::Rehearsal;
pub use replays::assert_replays;
pub use torture::{Torture, TortureReport, torture};
pub use world::{CrashPoint, TestWorld, TestWorldBuilder};
