//! Histories that a claim omitted: they are read in batches, while the tasks of their runs start.

use std::sync::Arc;

use futures_util::FutureExt;
use outlast_core::limits::HISTORIES_READ_MAX;
use outlast_core::{Claimed, ClaimedHistory, TurnRecord, WorldError};
use tokio::sync::oneshot;

use super::Session;
use crate::worker::committer::retry_while_unavailable;

/// Receives a history that is being read.
type HistoryReceiver = oneshot::Receiver<Result<Vec<TurnRecord>, WorldError>>;

/// A claimed run, and the receiver of its history if that is being read.
#[derive(Debug)]
pub(in crate::worker) struct ClaimedRun {
    pub(in crate::worker) claimed: Claimed,
    reading: Option<HistoryReceiver>,
}

impl ClaimedRun {
    /// A claimed run whose history is not being read.
    pub(in crate::worker) fn unread(claimed: Claimed) -> Self {
        Self { claimed, reading: None }
    }

    /// Waits for the history, if it is being read.
    pub(in crate::worker) async fn wait_for_history(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        // If the reading task was dropped, the history stays omitted, and the run's task reads it itself.
        if let Ok(read) = reading.await {
            self.claimed.history = match read {
                Ok(history) => ClaimedHistory::Whole(history),
                Err(error @ WorldError::Corrupt(_)) => ClaimedHistory::Unreadable(error.to_string()),
                Err(_) => ClaimedHistory::LeftOut,
            };
        }
    }
}

/// Begins to read the histories that the claim omitted and that are needed.
pub(in crate::worker) fn read_missing_histories(
    session: &Arc<Session>,
    claimed: Vec<Claimed>,
) -> Vec<ClaimedRun> {
    let mut runs: Vec<_> = claimed.into_iter().map(ClaimedRun::unread).collect();
    let mut missing = Vec::new();
    for claimed_run in &mut runs {
        let Claimed { run, turn, history, .. } = &claimed_run.claimed;
        let is_omitted = matches!(history, ClaimedHistory::LeftOut);
        // The task of a run that is live here has just released the run, and is about to put its future into the cache.
        if is_omitted && !session.cache.lock().has(*run, *turn) && !session.is_live(*run) {
            let (sender, reading) = oneshot::channel();
            missing.push((*run, sender));
            claimed_run.reading = Some(reading);
        }
    }
    while !missing.is_empty() {
        let batch: Vec<_> = missing.drain(..missing.len().min(HISTORIES_READ_MAX)).collect();
        let session = session.clone();
        session.runtime.clone().spawn(async move {
            let _busy = session.busy();
            let (runs, senders): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let read =
                retry_while_unavailable(&session.settings.outage, || session.world.histories(&runs).boxed());
            let read = read.await.unwrap_or_else(|error| vec![Err(error); runs.len()]);
            for (sender, history) in senders.into_iter().zip(read) {
                // The run may have been ended without its history.
                let _ = sender.send(history);
            }
        });
    }
    runs
}
