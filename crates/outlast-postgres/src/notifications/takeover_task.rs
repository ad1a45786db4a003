//! The task that searches for dead workers of other processes between the beats of this process's own workers.
//!
//! A worker calls `takeover` with its beats, which are seconds apart. This task calls it more often, so that the runs
//! of a dead worker are released within two seconds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{SessionId, WorldError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::subscribers::Subscribers;
use crate::clock::TimeSource;
use crate::connection::connector::pause;
use crate::connection::database::Database;
use crate::write::session::{LOCK_FREE_TIME, takeover};

/// How long after the last takeover of this process the task makes another one. Together with [`LOCK_FREE_TIME`], a
/// dead worker's runs are released within two seconds.
const TAKEOVER_INTERVAL: Duration = Duration::from_millis(800);

/// The interval when a session was found with a free lock: slightly longer than [`LOCK_FREE_TIME`].
const RECHECK_INTERVAL: Duration = Duration::from_millis(LOCK_FREE_TIME.as_millis() as u64 + 20);

/// The task's state.
#[derive(Debug)]
pub(crate) struct TakeoverTask {
    pub(crate) database: Database,
    pub(crate) time: TimeSource,
    pub(crate) subscribers: Subscribers,
    /// The sessions of this process; without any there is no takeover.
    pub(crate) sessions: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Notified when a worker of this process has called `takeover` itself, and no session has a free lock.
    pub(crate) takeover_done: Arc<Notify>,
}

impl TakeoverTask {
    /// Makes a takeover after each interval, until the I/O runtime ends.
    pub(crate) async fn run(self) {
        let mut wait = TAKEOVER_INTERVAL;
        loop {
            tokio::select! {
                biased;
                // A worker of this process has just made one, so the interval begins again.
                () = self.takeover_done.notified() => continue,
                () = pause(&self.database.handle, wait) => {}
            }
            wait = self.take_over().await;
        }
    }

    /// Ends the sessions of dead workers, in the name of one session of this process. Returns the time until the next
    /// takeover.
    async fn take_over(&self) -> Duration {
        let sessions = self.sessions.lock().clone();
        // The session that joined last is the least likely to have ended.
        for session in sessions.into_iter().rev() {
            match takeover(&self.database, &self.time, session).await {
                Ok(result) => {
                    if result.sessions > 0 || result.runs > 0 {
                        self.subscribers.publish_work();
                    }
                    return if result.unlocked > 0 { RECHECK_INTERVAL } else { TAKEOVER_INTERVAL };
                }
                Err(WorldError::Fenced(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot search for dead workers now; trying again");
                    return TAKEOVER_INTERVAL;
                }
            }
        }
        TAKEOVER_INTERVAL
    }
}
