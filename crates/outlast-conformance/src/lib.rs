//! For authors of worlds: checks that a world keeps the contract of
//! [`World`](outlast_core::World), and that the engine works on it.
//!
//! * [`suite!`]: one `#[test]` for every rule of the contract.
//! * [`model`]: random calls to a world, compared with a naive model.
//! * [`simulation`]: the whole engine on one thread and in virtual time, with faults that a seed decides.
//! * `KillerWorld`: a world that kills its own process at a chosen point, for crash tests.

pub mod model;
pub mod simulation;
pub mod suite;

#[cfg(unix)]
mod killer;

#[cfg(unix)]
pub use killer::KillerWorld;
pub use suite::WorldUnderTest;
