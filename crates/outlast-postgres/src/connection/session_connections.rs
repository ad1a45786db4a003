//! Connections for the commits of one session and its claims of single runs, driven by the worker's own runtime.
//!
//! The I/O runtime is another thread, so each statement on its connections wakes that thread and is woken by it. A worker
//! waits for its commits all the time, and two thread switches take about as long as the statement. Its commits therefore
//! use connections that the worker's runtime drives: that runtime lives as long as the worker and has to be awake anyway
//! to use the answer. A claim of a run that was just started uses them too: a caller waits for the result of that run.
//!
//! A call from elsewhere uses the shared pool, also if its session has such connections: the runtime that drives them may
//! have ended, or all its threads may be blocked by a workflow that does not return, which is what the watchdog's call
//! is about to report.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use outlast_core::{SessionId, WorldError};
use parking_lot::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::connector::Connector;
use super::database::Database;

/// The number of sessions with connections of their own. In more sessions than that, nobody waits for a single commit.
const SESSIONS_MAX: usize = 16;

/// After this time without such a call, a session may lose its connections to another one.
const IDLE: Duration = Duration::from_secs(60);

/// The connections of each session that has committed or has claimed a single run.
#[derive(Debug)]
pub(crate) struct SessionConnections {
    /// `None` if the world makes no connections, or its clock is virtual.
    connector: Option<Connector>,
    /// The number of connections of a session.
    size: usize,
    sessions: Mutex<HashMap<SessionId, SessionEntry>>,
}

#[derive(Debug)]
struct SessionEntry {
    /// `None` if the session uses the shared pool.
    database: Option<Database>,
    used_at: Instant,
}

impl SessionEntry {
    /// The connections of the session, if the caller's runtime drives them.
    fn database_of_caller(&self) -> Option<Database> {
        let own = self.database.as_ref()?;
        let caller = Handle::try_current().ok()?;
        (own.handle.id() == caller.id()).then(|| own.clone())
    }
}

/// What is known about a session that makes such a call.
enum EntryState {
    /// It has made one before; with its connections, if the caller may use them.
    Known(Option<Database>),
    /// It makes its first one.
    New,
    /// It makes its first one, and too many others have connections of their own.
    NoRoom,
}

impl SessionConnections {
    pub(crate) fn new(connector: Option<Connector>, size: usize) -> Self {
        Self { connector, size, sessions: Mutex::default() }
    }

    /// The database for a call of a session: with connections that the caller's runtime drives, or `shared`.
    #[allow(clippy::disallowed_methods, reason = "idle connections of a real server")]
    pub(crate) async fn database(
        &self,
        session: SessionId,
        shared: &Database,
    ) -> Result<Database, WorldError> {
        let Some(connector) = &self.connector else { return Ok(shared.clone()) };
        let now = Instant::now();
        match self.entry(session, now) {
            EntryState::Known(own) => return Ok(own.unwrap_or_else(|| shared.clone())),
            EntryState::NoRoom => return Ok(shared.clone()),
            EntryState::New => {}
        }
        let mut own = None;
        if let Some(handle) = driving_runtime().await {
            let pool = connector.on_runtime(handle.clone()).pool(self.size)?;
            own = Some(Database { pool, handle, ..shared.clone() });
        }
        let mut sessions = self.sessions.lock();
        let entry = sessions.entry(session).or_insert(SessionEntry { database: own, used_at: now });
        Ok(entry.database_of_caller().unwrap_or_else(|| shared.clone()))
    }

    /// What is known about a session that makes a call now. If too many sessions have connections, those of idle ones are
    /// closed.
    fn entry(&self, session: SessionId, now: Instant) -> EntryState {
        let mut sessions = self.sessions.lock();
        if let Some(entry) = sessions.get_mut(&session) {
            entry.used_at = now;
            return EntryState::Known(entry.database_of_caller());
        }
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, entry| now.duration_since(entry.used_at) < IDLE);
        }
        if sessions.len() >= SESSIONS_MAX { EntryState::NoRoom } else { EntryState::New }
    }

    /// Closes the connections of a session that has ended.
    pub(crate) fn forget(&self, session: SessionId) {
        self.sessions.lock().remove(&session);
    }

    /// Closes all connections.
    pub(crate) fn close(&self) {
        self.sessions.lock().clear();
    }
}

/// The caller's runtime, if it can drive connections. A runtime with one thread is not used: it may be one that runs only
/// now and then.
async fn driving_runtime() -> Option<Handle> {
    let handle = Handle::try_current().ok()?;
    if handle.runtime_flavor() != RuntimeFlavor::MultiThread {
        return None;
    }
    // A runtime that was built without I/O panics here.
    let has_io = handle.spawn(async { tokio::net::UdpSocket::bind("127.0.0.1:0").await }).await;
    has_io.is_ok().then_some(handle)
}
