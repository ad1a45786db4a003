//! Turns that wait for a row that somebody else has locked: connections of their own, so that the others go on, and
//! who it is that they wait for.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

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
    /// The turns that the database refused and that are tried again.
    pub(crate) refused: Refused,
}

impl Lane {
    pub(crate) fn new(store: Store, asks: Store) -> Self {
        Self { store, asks, blockers: Mutex::default(), refused: Refused::default() }
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

    /// Whom a connection waits for that tries to write a turn of the run, in whatever process.
    pub(crate) async fn blocker(&self, run: RunId) -> Result<Option<String>, WorldError> {
        if let Some(who) = self.waiting_for(run).await? {
            return Ok(Some(who));
        }
        // A connection that waits for several is named after one of them: this process knows the others.
        Ok(self.blockers.lock().get(&run).filter(|who| !who.is_empty()).cloned())
    }

    async fn waiting_for(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let rows = self.asks.call(&self.asks.sql.blockers, &[&run.to_string()]).await?;
        Ok(rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten().map(str::to_owned)))
    }

    /// Asks whom the runs wait for, and says it in the log when that is new.
    async fn ask(&self, runs: &[RunId]) {
        let Some(first) = runs.first() else { return };
        let Ok(Some(who)) = self.waiting_for(*first).await else { return };
        let mut new = Vec::new();
        {
            let mut blockers = self.blockers.lock();
            for run in runs {
                if blockers.insert(*run, who.clone()).as_deref() != Some(&*who) {
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
        let who = {
            let mut blockers = self.blockers.lock();
            if blockers.len() >= BLOCKERS_MAX {
                blockers.clear();
            }
            blockers.entry(run).or_default().clone()
        };
        let who = if who.is_empty() { who } else { format!(" by {who}") };
        WorldError::Blocked(format!(
            "run {run}, or one that it sends to, is locked{who}; end that transaction, the run goes on by itself then"
        ))
    }
}
