//! Counts the statements of a world, for tests: the counter exists only with the feature `test-support`.

use rusqlite::Connection;

/// Counts the statements of connections, if a test asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatementCounter {
    #[cfg(feature = "test-support")]
    count: Option<std::sync::Arc<std::sync::atomic::AtomicU64>>,
}

#[cfg(feature = "test-support")]
impl StatementCounter {
    /// Adds every statement to `count`.
    pub(crate) fn new(count: std::sync::Arc<std::sync::atomic::AtomicU64>) -> Self {
        Self { count: Some(count) }
    }

    /// Counts the statements of a connection from now on, without those that begin and end transactions.
    pub(crate) fn attach(&self, connection: &mut Connection) -> Result<(), rusqlite::Error> {
        use rusqlite::trace::{TraceEvent, TraceEventCodes};
        let Some(count) = self.count.clone() else { return Ok(()) };
        let count_event = move |event: TraceEvent<'_>| {
            if let TraceEvent::Stmt(_, sql) = event
                && !matches!(sql, "BEGIN" | "BEGIN IMMEDIATE" | "COMMIT")
            {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(count_event))
    }
}

#[cfg(not(feature = "test-support"))]
impl StatementCounter {
    /// Counts nothing.
    #[allow(clippy::unnecessary_wraps, reason = "like the one that counts")]
    pub(crate) fn attach(&self, _: &mut Connection) -> Result<(), rusqlite::Error> {
        Ok(())
    }
}
