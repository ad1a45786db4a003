//! One transaction, and the state that the changes in it share.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use outlast_core::{Ended, RunId, SessionId, Status, Timestamp};
use rusqlite::{Connection, Error, Params};

use crate::read::id_clock_skew::IdClockSkew;
use crate::schema::row::number_or_null;
use crate::schema::sql;
use crate::sessions::session_locks::SessionLocks;
use crate::write::lease_cache::{CachedLease, LeaseCache};

/// A transaction in progress.
pub(crate) struct Tx<'a> {
    pub(crate) connection: &'a Connection,
    /// The time of the transaction. It is read after the transaction began, so that no message in it is older than a
    /// turn of an earlier transaction.
    pub(crate) now: Timestamp,
    pub(crate) locks: &'a SessionLocks,
    pub(crate) after_commit: AfterCommit,
    lease_cache: &'a mut LeaseCache,
    id_skew: &'a mut IdClockSkew,
    session_owners: HashMap<SessionId, SessionOwner>,
    /// How much the number of runs in each status changes.
    counts: BTreeMap<&'static str, i64>,
    /// The lowest rules of all joined sessions, after the first query for them.
    rules: Option<Option<u32>>,
}

/// What the writer does after the transaction is durable.
#[derive(Debug, Default)]
pub(crate) struct AfterCommit {
    /// Whether a run may have become ready, so that waiting workers must be woken.
    pub(crate) wakes_workers: bool,
    /// Runs that have ended.
    pub(crate) ended_runs: Vec<Ended>,
    /// Runs whose streams or state have changed.
    pub(crate) written_runs: Vec<RunId>,
    /// Sessions that have ended. The lock is that of a dead process, if the takeover acquired it.
    pub(crate) ended_sessions: Vec<(SessionId, Option<File>)>,
}

/// Which process joined a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionOwner {
    /// This process.
    ThisProcess,
    /// Another process.
    OtherProcess,
    /// None: the session has ended, and has no row.
    Ended,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        now: Timestamp,
        locks: &'a SessionLocks,
        lease_cache: &'a mut LeaseCache,
        id_skew: &'a mut IdClockSkew,
    ) -> Self {
        let (after_commit, session_owners, counts, rules) = Default::default();
        Self { connection, now, locks, after_commit, lease_cache, id_skew, session_owners, counts, rules }
    }

    /// Executes a statement, and returns how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.connection.prepare_cached(sql)?.execute(params)
    }

    /// Which process joined the session. The row of the session is read once per transaction.
    pub(crate) fn session_owner(&mut self, session: SessionId) -> Result<SessionOwner, Error> {
        if let Some(owner) = self.session_owners.get(&session) {
            return Ok(*owner);
        }
        let id = session.to_string();
        let mut row = self.connection.prepare_cached(sql::SESSION_FOREIGN_WRITES)?;
        let foreign_writes = row.query_map([&id], |row| row.get::<_, i64>(0))?.next().transpose()?;
        let owner = match foreign_writes {
            None => {
                self.lease_cache.remove_session(session);
                SessionOwner::Ended
            }
            Some(foreign_writes) if self.locks.holds(session) => {
                self.lease_cache.check_foreign_writes(session, foreign_writes);
                SessionOwner::ThisProcess
            }
            Some(_) => {
                self.execute(sql::SESSION_ADD_FOREIGN_WRITE, [&id])?;
                SessionOwner::OtherProcess
            }
        };
        self.session_owners.insert(session, owner);
        Ok(owner)
    }

    /// Discards what is cached about a session that joined or ended in this transaction.
    pub(crate) fn session_changed(&mut self, session: SessionId) {
        self.session_owners.remove(&session);
        self.rules = None;
        self.lease_cache.remove_session(session);
    }

    /// The lowest rules that every joined session supports; `None` if no session is joined.
    pub(crate) fn lowest_rules(&mut self) -> Result<Option<u32>, Error> {
        if let Some(rules) = self.rules {
            return Ok(rules);
        }
        let mut lowest = self.connection.prepare_cached(sql::RULES_LOWEST)?;
        let rules = lowest.query_row([], |row| number_or_null(row, 0))?;
        self.rules = Some(rules);
        Ok(rules)
    }

    /// The cached state of a run that the session holds.
    pub(crate) fn cached_lease(&self, run: outlast_core::RunId, session: SessionId) -> Option<CachedLease> {
        self.lease_cache.get(run, session)
    }

    /// Caches a run that a session of this process holds.
    pub(crate) fn cache_lease(&mut self, run: outlast_core::RunId, lease: CachedLease) {
        if self.session_owners.get(&lease.session) == Some(&SessionOwner::ThisProcess) {
            self.lease_cache.put(run, lease);
        }
    }

    /// Removes a run that no session holds any more from the cache.
    pub(crate) fn drop_lease(&mut self, run: outlast_core::RunId) {
        self.lease_cache.remove(run);
    }

    /// Counts a new run.
    pub(crate) fn count_new(&mut self, status: Status) {
        *self.counts.entry(status.as_str()).or_default() += 1;
    }

    /// Records the difference between the time in the id of a new run and the time of its start.
    pub(crate) fn record_id_skew(&mut self, run: outlast_core::RunId) -> Result<(), Error> {
        self.id_skew.record(self.connection, run, self.now)
    }

    /// Counts a run that changes its status.
    pub(crate) fn count_move(&mut self, from: Status, to: Status) {
        *self.counts.entry(from.as_str()).or_default() -= 1;
        *self.counts.entry(to.as_str()).or_default() += 1;
    }

    /// Counts a run that is deleted.
    pub(crate) fn count_deleted(&mut self, status: Status) {
        *self.counts.entry(status.as_str()).or_default() -= 1;
    }

    /// Writes the changed counts, and returns what to do after the commit.
    pub(crate) fn finish(mut self) -> Result<AfterCommit, Error> {
        for (status, change) in std::mem::take(&mut self.counts) {
            if change != 0 {
                self.execute(sql::COUNTS_ADD, (status, change))?;
            }
        }
        Ok(self.after_commit)
    }
}
