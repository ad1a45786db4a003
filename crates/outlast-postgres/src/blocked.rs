//! Turns that wait for a row that somebody else has locked: connections of their own, so that the others go on, and
//! who it is that they wait for.

use std::collections::HashMap;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use outlast_core::{RunId, Turn, WorldError};
use parking_lot::Mutex;

use crate::connect::pause;
use crate::refused::Refused;
use crate::row::get;
use crate::store::{Failed, Store};

/// How many connections wait for locks at the same time.
pub(crate) const LANE_CONNECTIONS: usize = 2;

/// How long a turn has waited when it is asked for whom.
const ASK_AFTER: Duration = Duration::from_millis(300);

/// How long a table is locked when that is said.
const TELL_AFTER: Duration = Duration::from_secs(2);

/// How often it is looked who has a row, and the pause between: a statement of our own may have it for a moment.
const LOOKS: usize = 3;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// So many runs are remembered with whom they waited for: the turns of several full batches, since one locked run may
/// block all of them.
const BLOCKERS_MAX: usize = 20_000;

/// The connections that wait, and whom the last of them waited for.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) store: Store,
    /// What asks: another connection than the one that waits.
    asks: Store,
    blockers: Mutex<HashMap<RunId, String>>,
    /// Who has locked a table.
    table: Mutex<Option<TableLock>>,
    /// The turns that the database refused and that are tried again.
    pub(crate) refused: Refused,
}

/// A table that somebody else has locked as a whole: nothing can be written.
#[derive(Debug)]
struct TableLock {
    who: String,
    since: Instant,
    /// When it was last looked.
    seen: Instant,
    is_told: bool,
}

impl TableLock {
    #[allow(clippy::disallowed_methods, reason = "for how long others have a lock, in real time")]
    fn new(who: String) -> Self {
        let now = Instant::now();
        Self { who, since: now, seen: now, is_told: false }
    }

    #[allow(clippy::disallowed_methods, reason = "for how long others have a lock, in real time")]
    fn see(&mut self, who: &str) {
        who.clone_into(&mut self.who);
        self.seen = Instant::now();
    }
}

impl Lane {
    pub(crate) fn new(store: Store, asks: Store) -> Self {
        let refused = Refused::default();
        Self { store, asks, blockers: Mutex::default(), table: Mutex::default(), refused }
    }

    /// Waits for a statement about runs, named after the first, and learns meanwhile whom it waits for.
    pub(crate) async fn wait<T>(
        &self,
        runs: &[RunId],
        statement: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let statement = std::pin::pin!(statement);
        match select(statement, std::pin::pin!(pause(&self.store.handle, ASK_AFTER))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), statement)) => {
                let (answer, ()) = futures_util::future::join(statement, self.ask(runs)).await;
                answer
            }
        }
    }

    /// Who keeps turns of the run from being written, in whatever process: who has locked a table, whom a connection waits
    /// for that tries to write one, or who has locked the row.
    pub(crate) async fn blocker(&self, run: RunId) -> Result<Option<String>, WorldError> {
        if let Some(who) = self.table_lock().await? {
            return Ok(Some(who));
        }
        if let Some(who) = self.waiting_for(run).await? {
            return Ok(Some(who));
        }
        // A turn may wait for another run that it sends to. A connection that waits for several is named after one of them:
        // this process knows the others.
        let known = self.blockers.lock().get(&run).filter(|who| !who.is_empty()).cloned();
        match known {
            Some(who) => Ok(Some(who)),
            None => self.row_lock(run).await,
        }
    }

    /// Who has the row of the run for longer than a statement of our own.
    async fn row_lock(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let run = run.to_string();
        let mut is_ours = false;
        for _ in 0..LOOKS {
            let rows = self.asks.call(&self.asks.sql.row_lock, &[&run]).await?;
            let Some(row) = rows.first() else { return Ok(None) };
            let (is_touched, who, is_own): (bool, Option<&str>, bool) = (row.get(0), row.get(1), row.get(2));
            if !is_touched || !self.asks.call(&self.asks.sql.row_is_free, &[&run]).await?.is_empty() {
                return Ok(None);
            }
            if let Some(who) = who.filter(|_| !is_own) {
                return Ok(Some(who.to_owned()));
            }
            is_ours = is_own;
            pause(&self.store.handle, LOOK_PAUSE).await;
        }
        // Several transactions have it, say.
        let unknown = "another transaction, whose process cannot be told";
        Ok((!is_ours).then(|| unknown.to_owned()))
    }

    /// Who has locked a table as a whole, if anybody has. Said once, when it takes long.
    pub(crate) async fn table_lock(&self) -> Result<Option<String>, WorldError> {
        let rows = self.asks.call(&self.asks.sql.table_locks, &[&self.asks.sql.schema]).await?;
        let who = rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten());
        let mut table = self.table.lock();
        let Some(who) = who else {
            *table = None;
            return Ok(None);
        };
        let lock = table.get_or_insert_with(|| TableLock::new(who.to_owned()));
        lock.see(who);
        if !lock.is_told && lock.since.elapsed() >= TELL_AFTER {
            lock.is_told = true;
            tracing::warn!(blocker = %who, "nothing can be committed: somebody else has locked a table");
        }
        Ok(Some(who.to_owned()))
    }

    async fn waiting_for(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let rows = self.asks.call(&self.asks.sql.blockers, &[&run.to_string()]).await?;
        Ok(rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten().map(str::to_owned)))
    }

    /// Asks whom the runs wait for, and says it in the log when that is new.
    async fn ask(&self, runs: &[RunId]) {
        let Some(first) = runs.first() else { return };
        if let Ok(Some(_)) = self.table_lock().await {
            return;
        }
        let Ok(Some(who)) = self.waiting_for(*first).await else { return };
        let mut new = Vec::new();
        {
            let mut blockers = self.blockers.lock();
            for run in runs {
                // Who it is says also what that does at the moment, which changes.
                let process = |who: &str| who.split_once(" (").map(|(process, _)| process.to_owned());
                let before = blockers.insert(*run, who.clone());
                if before.as_deref().and_then(process) != process(&who) {
                    new.push(run);
                }
            }
        }
        for run in new {
            tracing::warn!(%run, blocker = %who, "a run cannot be written: somebody else has it locked");
        }
    }

    /// These turns were written: nobody blocks their runs any more.
    pub(crate) fn written<'a>(&self, turns: impl Iterator<Item = &'a Turn> + Clone) {
        self.refused.written(turns.clone());
        let mut blockers = self.blockers.lock();
        if !blockers.is_empty() {
            turns.for_each(|turn| drop(blockers.remove(&turn.run)));
        }
    }

    /// Whether a turn of the run was blocked before, and has not been written since.
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.blockers.lock().contains_key(&run)
    }

    /// What a turn is answered whose run somebody else has locked.
    pub(crate) fn error(&self, run: RunId) -> WorldError {
        let is_new = |lock: &&TableLock| lock.seen.elapsed() < TELL_AFTER;
        let table = self.table.lock().as_ref().filter(is_new).map(|lock| lock.who.clone());
        let who = {
            let mut blockers = self.blockers.lock();
            if blockers.len() >= BLOCKERS_MAX {
                blockers.clear();
            }
            table.unwrap_or(blockers.entry(run).or_default().clone())
        };
        let who = if who.is_empty() { who } else { format!(" by {who}") };
        WorldError::Blocked(format!(
            "run {run}, or one that it sends to, is locked{who}; end that transaction, the run goes on by itself then"
        ))
    }
}
