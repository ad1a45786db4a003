//! Turns that are blocked: they need a row that another transaction has locked.
//!
//! They wait on connections of their own, so that other turns are not delayed. While one waits, this module finds out
//! which process blocks it, for the error of the commit, the log, and `World::blocked_by`.

use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use outlast_core::{RunId, Turn, WorldError};
use parking_lot::Mutex;

use crate::connection::connector::pause;
use crate::connection::database::{CallError, Database};
use crate::encoding::row::get;
use crate::write::rejected_turns::RejectedTurns;

/// The number of connections that wait for locks.
pub(crate) const BLOCKED_CONNECTIONS: usize = 2;

/// How long a turn waits before its blocker is determined.
const INSPECT_AFTER: Duration = Duration::from_millis(300);

/// How long a table must be locked before that is logged, and how long the last check of a table's lock is valid.
const TABLE_LOCK_DURATION: Duration = Duration::from_secs(2);

/// How often the holder of a row's lock is checked, and the pause between two checks: one of our own statements may
/// hold it for a moment.
const ROW_LOCK_CHECKS: usize = 3;
const ROW_LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The number of runs whose blocker is remembered: the turns of several full batches, since one locked run may block
/// all of them.
const BLOCKERS_MAX: usize = 20_000;

/// The connections that wait for locks, and the processes that hold these locks.
#[derive(Debug)]
pub(crate) struct BlockedTurns {
    /// The connections on which blocked turns wait.
    pub(crate) database: Database,
    /// The connections that inspect locks: a connection that waits cannot.
    inspector: Database,
    /// The runs with a blocked turn, and a description of the blocker; empty if it is not known yet.
    blockers: Mutex<HashMap<RunId, String>>,
    /// The lock on a whole table, if another transaction holds one.
    table_lock: Mutex<Option<TableLock>>,
    /// Turns that the database rejected and that are retried.
    pub(crate) rejected_turns: RejectedTurns,
}

/// A lock that another transaction holds on a whole table: no turn can be written.
#[derive(Debug)]
struct TableLock {
    holder: String,
    since: Instant,
    checked_at: Instant,
    is_logged: bool,
}

impl TableLock {
    #[allow(clippy::disallowed_methods, reason = "how long other transactions hold a lock, in real time")]
    fn new(holder: String) -> Self {
        let now = Instant::now();
        Self { holder, since: now, checked_at: now, is_logged: false }
    }

    #[allow(clippy::disallowed_methods, reason = "how long other transactions hold a lock, in real time")]
    fn update(&mut self, holder: &str) {
        holder.clone_into(&mut self.holder);
        self.checked_at = Instant::now();
    }
}

impl BlockedTurns {
    pub(crate) fn new(database: Database, inspector: Database) -> Self {
        let rejected_turns = RejectedTurns::default();
        Self { database, inspector, blockers: Mutex::default(), table_lock: Mutex::default(), rejected_turns }
    }

    /// Waits for a statement with turns of these runs. If it takes long, determines meanwhile who blocks it.
    ///
    /// The statement must set the application name of its connection to the id of the first run: by that name, other
    /// connections find it among those that wait for a lock.
    pub(crate) async fn wait<T>(
        &self,
        runs: &[RunId],
        statement: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let statement = std::pin::pin!(statement);
        match select(statement, std::pin::pin!(pause(&self.database.handle, INSPECT_AFTER))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), statement)) => {
                let (answer, ()) = futures_util::future::join(statement, self.record_blocker(runs)).await;
                answer
            }
        }
    }

    /// A description of the process that prevents turns of the run from being written, in any process: it holds a lock
    /// on a table, or a lock for which a connection with a turn of the run waits, or a lock on the run's row.
    pub(crate) async fn blocker(&self, run: RunId) -> Result<Option<String>, WorldError> {
        if let Some(holder) = self.table_lock_holder().await? {
            return Ok(Some(holder));
        }
        if let Some(holder) = self.awaited_lock_holder(run).await? {
            return Ok(Some(holder));
        }
        // A turn may also wait for the row of another run that it sends to. A connection that waits with several turns
        // has the name of one of their runs; this process knows the others.
        let known = self.blockers.lock().get(&run).filter(|holder| !holder.is_empty()).cloned();
        match known {
            Some(holder) => Ok(Some(holder)),
            None => self.row_lock_holder(run).await,
        }
    }

    /// The process that holds the lock on the run's row for longer than one of our own statements does.
    async fn row_lock_holder(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let sql = &self.inspector.sql;
        let run = run.to_string();
        let mut is_ours = false;
        for _ in 0..ROW_LOCK_CHECKS {
            let rows = self.inspector.call(&sql.row_lock, &[&run]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let (may_be_locked, holder, is_own): (bool, Option<&str>, bool) =
                (row.get(0), row.get(1), row.get(2));
            if !may_be_locked || !self.inspector.call(&sql.row_is_free, &[&run]).await?.is_empty() {
                return Ok(None);
            }
            if let Some(holder) = holder.filter(|_| !is_own) {
                return Ok(Some(holder.to_owned()));
            }
            is_ours = is_own;
            pause(&self.database.handle, ROW_LOCK_PAUSE).await;
        }
        // The holder is not known, for example, if several transactions share the lock.
        let unknown = "another transaction, whose process cannot be determined";
        Ok((!is_ours).then(|| unknown.to_owned()))
    }

    /// The process that holds a lock on a whole table, if there is one. Logs it once, if it holds the lock for long.
    pub(crate) async fn table_lock_holder(&self) -> Result<Option<String>, WorldError> {
        let sql = &self.inspector.sql;
        let rows = self.inspector.call(&sql.table_locks, &[&sql.schema]).await?;
        let holder = rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten());
        let mut table_lock = self.table_lock.lock();
        let Some(holder) = holder else {
            *table_lock = None;
            return Ok(None);
        };
        let lock = table_lock.get_or_insert_with(|| TableLock::new(holder.to_owned()));
        lock.update(holder);
        if !lock.is_logged && lock.since.elapsed() >= TABLE_LOCK_DURATION {
            lock.is_logged = true;
            tracing::warn!(blocker = %holder, "nothing can be committed: another transaction has locked a table");
        }
        Ok(Some(holder.to_owned()))
    }

    /// The process that holds the lock for which a connection with a turn of the run waits.
    async fn awaited_lock_holder(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let rows = self.inspector.call(&self.inspector.sql.blockers, &[&run.to_string()]).await?;
        Ok(rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten().map(str::to_owned)))
    }

    /// Determines and records who blocks turns of these runs. Logs runs whose blocker is new.
    async fn record_blocker(&self, runs: &[RunId]) {
        let Some(first) = runs.first() else { return };
        if let Ok(Some(_)) = self.table_lock_holder().await {
            return;
        }
        let Ok(Some(holder)) = self.awaited_lock_holder(*first).await else { return };
        let mut newly_blocked = Vec::new();
        {
            let mut blockers = self.blockers.lock();
            for run in runs {
                // Compare only the process: the description continues with its current state, which changes.
                let process = |holder: &str| holder.split_once(" (").map(|(process, _)| process.to_owned());
                let previous = blockers.insert(*run, holder.clone());
                if previous.as_deref().and_then(process) != process(&holder) {
                    newly_blocked.push(run);
                }
            }
        }
        for run in newly_blocked {
            tracing::warn!(%run, blocker = %holder, "a run cannot be written: another transaction has locked it");
        }
    }

    /// Forgets that turns were blocked or rejected, because they have been written.
    pub(crate) fn forget_written<'a>(&self, turns: impl Iterator<Item = &'a Turn> + Clone) {
        self.rejected_turns.forget_written(turns.clone());
        let mut blockers = self.blockers.lock();
        if !blockers.is_empty() {
            turns.for_each(|turn| drop(blockers.remove(&turn.run)));
        }
    }

    /// Whether a turn of the run was blocked, and none has been written since.
    pub(crate) fn was_blocked(&self, run: RunId) -> bool {
        self.blockers.lock().contains_key(&run)
    }

    /// The answer to a turn that is blocked. Remembers its run as blocked.
    pub(crate) fn blocked_error(&self, run: RunId) -> WorldError {
        let is_recent = |lock: &&TableLock| lock.checked_at.elapsed() < TABLE_LOCK_DURATION;
        let table_lock_holder =
            self.table_lock.lock().as_ref().filter(is_recent).map(|lock| lock.holder.clone());
        let holder = {
            let mut blockers = self.blockers.lock();
            if blockers.len() >= BLOCKERS_MAX {
                blockers.clear();
            }
            table_lock_holder.unwrap_or(blockers.entry(run).or_default().clone())
        };
        let by = if holder.is_empty() { holder } else { format!(" by {holder}") };
        WorldError::blocked(format!(
            "run {run}, or a run that it sends to, is locked{by}; end that transaction, then the run continues"
        ))
    }
}
