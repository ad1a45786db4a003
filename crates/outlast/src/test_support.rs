//! What the tests of this repository, `outlast-testkit` and `outlast-conformance` need of the engine. It changes in any
//! release: tests of programs use `outlast-testkit`.
//!
//! The feature `test-support` also adds methods to [`Worker`](crate::Worker),
//! [`WorkerBuilder`](crate::WorkerBuilder) and the worlds.

pub use crate::ids::Simulated;
pub use crate::testing::{frozen, rehearse};
