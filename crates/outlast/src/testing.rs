//! Runs without a world or a worker, for tests of workflow code.

#[cfg(feature = "bench")]
pub mod bench;
pub mod frozen;
pub(crate) mod history;
pub mod rehearse;
