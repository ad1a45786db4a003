//! Connections to the file.

/// Opening the file, and the settings of every connection.
pub(crate) mod file;

/// Whether the file is still at its path.
pub(crate) mod opened_file;

/// Taking turns with other processes that write.
pub(crate) mod fair_lock;

/// Which process holds the write lock.
pub(crate) mod lock_holder;

/// Errors of SQLite as errors of the world.
pub(crate) mod error;

/// The permission that this user lacks for a file.
pub(crate) mod permissions;

/// Threads that end with their world.
pub(crate) mod thread;

/// A clock that never goes back.
pub(crate) mod clock;

/// Counts statements, for tests.
pub(crate) mod statement_counter;
