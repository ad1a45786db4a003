//! For tests: a clock that the test moves, and the conformance suite for worlds.
//!
//! * [`TestClock`]: virtual time, which passes only when the test says so.
//! * `KillerWorld`: a world that kills its own process at a chosen point, for crash tests.
//! * [`conformance!`]: one `#[test]` for every rule of the World contract.
//! * [`model`]: random calls to a world, compared with a naive model.

mod watchdog;

pub mod clock;
pub mod conformance;
pub mod model;

#[cfg(unix)]
mod killer;

pub use clock::TestClock;
#[cfg(unix)]
pub use killer::KillerWorld;
