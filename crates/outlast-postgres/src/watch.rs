//! Looking after the workers of other processes: one that died is noticed here, sooner than by the beats of
//! those that live.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{SessionId, WorldError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Time;
use crate::connect::pause;
use crate::session::{LOCK_FREE_TIME, takeover};
use crate::store::Store;
use crate::told::Told;

/// How long nobody of this process has looked when it is time to. With the time that a suspect is given, a
/// dead worker's runs are free within two seconds.
const LOOK: Duration = Duration::from_millis(800);

/// A little more than the time that a suspect is given.
const SECOND_LOOK: Duration = Duration::from_millis(LOCK_FREE_TIME.as_millis() as u64 + 20);

/// What looks.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) store: Store,
    pub(crate) time: Time,
    pub(crate) told: Told,
    /// The sessions of this process; without any it does not look.
    pub(crate) sessions: Arc<Mutex<BTreeSet<SessionId>>>,
    /// ChangedSince when a worker of this process has looked by itself.
    pub(crate) looked: Arc<Notify>,
}

impl Watch {
    /// Looks, until the world's own thread ends.
    pub(crate) async fn work(self) {
        let mut wait = LOOK;
        loop {
            tokio::select! {
                biased;
                () = self.looked.notified() => continue,
                () = pause(&self.store.handle, wait) => {}
            }
            wait = self.look().await;
        }
    }

    /// Takes over from who is gone; answers when to look again.
    async fn look(&self) -> Duration {
        let sessions = self.sessions.lock().clone();
        // The last to join is the least likely to be gone itself.
        for session in sessions.into_iter().rev() {
            match takeover(&self.store, &self.time, session).await {
                Ok(taken) => {
                    if taken.sessions > 0 || taken.runs > 0 {
                        self.told.ring();
                    }
                    return if taken.unlocked > 0 { SECOND_LOOK } else { LOOK };
                }
                Err(WorldError::Fenced(_)) => {}
                Err(error) => {
                    tracing::debug!(%error, "the workers of other processes cannot be looked after now");
                    return LOOK;
                }
            }
        }
        LOOK
    }
}
