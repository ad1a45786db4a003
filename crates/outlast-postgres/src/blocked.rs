//! Turns that wait for a row that somebody else has locked: connections of their own, so that the others go on, and
//! who it is that they wait for.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use futures_util::future::{Either, select};
use outlast_core::{RunId, WorldError};
use parking_lot::Mutex;

use crate::connect::pause;
use crate::row::get;
use crate::store::{Failed, Store};

/// How many connections wait for locks at the same time.
pub(crate) const LANE_CONNECTIONS: usize = 2;

/// How long a turn has waited when it is asked for whom.
const ASK_AFTER: Duration = Duration::from_millis(300);

/// So many runs are remembered with whom they waited for.
const BLOCKERS_MAX: usize = 1_000;

/// The connections that wait, and whom the last of them waited for.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) store: Store,
    /// What asks: another connection than the one that waits.
    asks: Store,
    blockers: Mutex<HashMap<RunId, String>>,
}

impl Lane {
    pub(crate) fn new(store: Store, asks: Store) -> Self {
        Self { store, asks, blockers: Mutex::default() }
    }

    /// Waits for a statement about a run, and learns meanwhile whom it waits for.
    pub(crate) async fn wait<T>(
        &self,
        run: RunId,
        statement: impl Future<Output = Result<T, Failed>>,
    ) -> Result<T, Failed> {
        let statement = std::pin::pin!(statement);
        let answer = match select(statement, std::pin::pin!(pause(&self.store.handle, ASK_AFTER))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(((), statement)) => {
                let (answer, ()) = futures_util::future::join(statement, self.ask(run)).await;
                answer
            }
        };
        if answer.is_ok() {
            self.blockers.lock().remove(&run);
        }
        answer
    }

    /// Whom a connection waits for that tries to write a turn of the run, in whatever process.
    pub(crate) async fn blocker(&self, run: RunId) -> Result<Option<String>, WorldError> {
        let rows = self.asks.call(&self.asks.sql.blockers, &[&run.to_string()]).await?;
        Ok(rows.first().and_then(|row| get::<Option<&str>>(row, 0).ok().flatten().map(str::to_owned)))
    }

    /// Asks whom the run waits for, and says it in the log when that is new.
    async fn ask(&self, run: RunId) {
        let Ok(Some(who)) = self.blocker(run).await else { return };
        let is_new = self.blockers.lock().insert(run, who.clone()).as_deref() != Some(&*who);
        if is_new {
            tracing::warn!(%run, blocker = %who, "a run cannot be written: somebody else has it locked");
        }
    }

    /// Turns of these runs were written: nobody blocks them any more.
    pub(crate) fn written(&self, runs: impl Iterator<Item = RunId>) {
        let mut blockers = self.blockers.lock();
        if !blockers.is_empty() {
            runs.for_each(|run| drop(blockers.remove(&run)));
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
