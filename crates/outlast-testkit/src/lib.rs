//! For tests: rehearsals of workflows, worlds under virtual time, and the conformance suite for worlds.
//!
//! * [`Rehearsal`]: one workflow function, driven by the test, with no world and no runtime.
//! * [`TestWorld`]: a world under virtual time with a worker, in which steps can be mocked.
//! * [`assert_replays`]: recorded histories, replayed with today's code.
//! * [`TestClock`]: virtual time, which passes only when the test says so.
//! * `KillerWorld`: a world that kills its own process at a chosen point, for crash tests.
//! * [`conformance!`]: one `#[test]` for every rule of the World contract.
//! * [`sim`]: the whole engine on one thread, in virtual time, while things go wrong by a seed.
//! * [`model`]: random calls to a world, compared with a naive model.

mod rehearsal;
mod replays;
mod watchdog;
mod world;

pub mod clock;
pub mod conformance;
pub mod model;
pub mod sim;

#[cfg(unix)]
mod killer;

pub use clock::TestClock;
#[cfg(unix)]
pub use killer::KillerWorld;
pub use rehearsal::Rehearsal;
pub use replays::assert_replays;
pub use world::{TestWorld, TestWorldBuilder};
