//! Runs without a world or a worker, for tests of workflow code.

#[cfg(any(test, feature = "test-support"))]
pub mod frozen;
pub(crate) mod history;
#[cfg(any(test, feature = "test-support"))]
pub mod rehearse;
