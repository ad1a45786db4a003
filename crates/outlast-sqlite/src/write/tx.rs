//! One transaction: what the changes in it share.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use outlast_core::{Ended, SessionId, Status, Timestamp};
use rusqlite::{Connection, Error, Params};

use crate::read::id_clock_skew::Skew;
use crate::schema::row::maybe_number;
use crate::schema::sql;
use crate::sessions::session_locks::Locks;
use crate::write::lease_cache::{Holding, Holdings};

/// A transaction under way.
pub(crate) struct Tx<'a> {
    pub(crate) connection: &'a Connection,
    /// Read after the transaction began, so that no message in it is older than a turn before it.
    pub(crate) now: Timestamp,
    pub(crate) locks: &'a Locks,
    pub(crate) after: After,
    holdings: &'a mut Holdings,
    skew: &'a mut Skew,
    standings: HashMap<SessionId, Standing>,
    counts: BTreeMap<&'static str, i64>,
    /// The lowest rules of all joined sessions, once they were asked for.
    rules: Option<Option<u32>>,
}

/// What happens once the transaction is durable.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// Something may have become ready.
    pub(crate) rings: bool,
    /// Runs that have ended.
    pub(crate) ended: Vec<Ended>,
    /// Sessions that have ended, with their locks if those were taken from the dead.
    pub(crate) left: Vec<(SessionId, Option<File>)>,
}

/// How a session stands with this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It was joined here.
    Ours,
    /// Another process joined it.
    Strangers,
    /// It has no row.
    Gone,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(
        connection: &'a Connection,
        now: Timestamp,
        locks: &'a Locks,
        holdings: &'a mut Holdings,
        skew: &'a mut Skew,
    ) -> Self {
        let (after, standings, counts, rules) = Default::default();
        Self { connection, now, locks, after, holdings, skew, standings, counts, rules }
    }

    /// Executes a statement, and answers how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> Result<usize, Error> {
        self.connection.prepare_cached(sql)?.execute(params)
    }

    /// How the session stands, asked of the file once per transaction.
    pub(crate) fn standing(&mut self, session: SessionId) -> Result<Standing, Error> {
        if let Some(standing) = self.standings.get(&session) {
            return Ok(*standing);
        }
        let id = session.to_string();
        let mut row = self.connection.prepare_cached(sql::SESSION_ROW)?;
        let strangers = row.query_map([&id], |row| row.get::<_, i64>(0))?.next().transpose()?;
        let standing = match strangers {
            None => {
                self.holdings.end(session);
                Standing::Gone
            }
            Some(strangers) if self.locks.holds(session) => {
                self.holdings.compare_strangers(session, strangers);
                Standing::Ours
            }
            Some(_) => {
                self.execute(sql::SESSION_STRANGER, [&id])?;
                Standing::Strangers
            }
        };
        self.standings.insert(session, standing);
        Ok(standing)
    }

    /// Forgets how the session stands: it joined or left in this transaction.
    pub(crate) fn changed_standing(&mut self, session: SessionId) {
        self.standings.remove(&session);
        self.rules = None;
        self.holdings.end(session);
    }

    /// The lowest rules that every joined session knows; `None` when none is joined.
    pub(crate) fn lowest_rules(&mut self) -> Result<Option<u32>, Error> {
        if let Some(rules) = self.rules {
            return Ok(rules);
        }
        let mut lowest = self.connection.prepare_cached(sql::RULES_LOWEST)?;
        let rules = lowest.query_row([], |row| maybe_number(row, 0))?;
        self.rules = Some(rules);
        Ok(rules)
    }

    /// What is known of a run that the session holds.
    pub(crate) fn holding(&self, run: outlast_core::RunId, session: SessionId) -> Option<Holding> {
        self.holdings.get(run, session)
    }

    /// Notes that the session holds the run.
    pub(crate) fn hold(&mut self, run: outlast_core::RunId, holding: Holding) {
        if self.standings.get(&holding.session) == Some(&Standing::Ours) {
            self.holdings.put(run, holding);
        }
    }

    /// Notes that nobody holds the run.
    pub(crate) fn let_go(&mut self, run: outlast_core::RunId) {
        self.holdings.remove(run);
    }

    /// Counts a run in its first status.
    pub(crate) fn count_new(&mut self, status: Status) {
        *self.counts.entry(status.as_str()).or_default() += 1;
    }

    /// Notes how far the id of a new run lies from its start.
    pub(crate) fn note_skew(&mut self, run: outlast_core::RunId) -> Result<(), Error> {
        self.skew.note(self.connection, run, self.now)
    }

    /// Counts a run out of one status and into another.
    pub(crate) fn count_move(&mut self, from: Status, to: Status) {
        *self.counts.entry(from.as_str()).or_default() -= 1;
        *self.counts.entry(to.as_str()).or_default() += 1;
    }

    /// Counts a run out that is forgotten.
    pub(crate) fn count_gone(&mut self, status: Status) {
        *self.counts.entry(status.as_str()).or_default() -= 1;
    }

    /// Writes the counts, and answers what is left to do after the commit.
    pub(crate) fn finish(mut self) -> Result<After, Error> {
        for (status, change) in std::mem::take(&mut self.counts) {
            if change != 0 {
                self.execute(sql::COUNTS_ADD, (status, change))?;
            }
        }
        Ok(self.after)
    }
}
