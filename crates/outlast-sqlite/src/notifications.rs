//! Changes by other processes: noticing them, and sending hints about our own.

/// The thread that notices changes by other processes.
pub(crate) mod change_watcher;

/// The sockets through which processes send each other hints.
#[cfg(unix)]
pub(crate) mod hint_socket;

/// A replacement for systems without Unix sockets.
#[cfg(not(unix))]
#[path = "notifications/no_hint_socket.rs"]
pub(crate) mod hint_socket;

/// The thread that waits for commits of callers' own transactions.
pub(crate) mod tx_watcher;
