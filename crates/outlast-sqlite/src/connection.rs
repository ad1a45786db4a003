//! Connections to the file.

/// Opening the file, and the settings of every connection.
pub(crate) mod file;

/// Taking turns with other processes that write.
pub(crate) mod fair_lock;

/// Errors of SQLite as errors of the world.
pub(crate) mod error;

/// Threads that end with their world.
pub(crate) mod thread;

/// A clock that never goes back.
pub(crate) mod clock;

/// Counts statements, for tests.
pub(crate) mod statement_counter;
