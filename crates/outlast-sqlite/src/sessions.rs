//! Sessions of workers, and the runs that they claim.

/// Joining, beating, leaving, and taking over the runs of dead workers.
pub(crate) mod session;

/// The lock files that show whether the process of a session is alive.
pub(crate) mod session_locks;

/// The heartbeat details of attempts.
pub(crate) mod heartbeat;

/// Claiming runs.
pub(crate) mod claim;

/// The search for runs that a session can claim.
pub(crate) mod ready;
