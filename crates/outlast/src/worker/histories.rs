//! Histories that a claim left out: those of all its runs are read together.

use std::sync::Arc;

use futures_util::FutureExt;
use outlast_core::limits::HISTORIES_READ_MAX;
use outlast_core::{Claimed, ClaimedHistory, TurnRecord, WorldError};
use tokio::sync::oneshot;

use super::committer::patiently;
use super::session::Session;

/// A history that is being read.
type Reading = oneshot::Receiver<Result<Vec<TurnRecord>, WorldError>>;

/// A claimed run, and its history if that is being read.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) claimed: Claimed,
    reading: Option<Reading>,
}

impl Given {
    /// A claimed run as the claim brought it.
    pub(super) fn new(claimed: Claimed) -> Self {
        Self { claimed, reading: None }
    }

    /// Waits for the history that is being read, if any.
    pub(super) async fn history_read(&mut self) {
        let Some(reading) = self.reading.take() else { return };
        // A reader that is gone says nothing: whoever needs the history reads it.
        if let Ok(read) = reading.await {
            self.claimed.history = match read {
                Ok(history) => ClaimedHistory::Whole(history),
                Err(error @ WorldError::Corrupt(_)) => ClaimedHistory::Unreadable(error.to_string()),
                Err(_) => ClaimedHistory::LeftOut,
            };
        }
    }
}

/// The claimed runs, with the histories that are missing on their way.
pub(super) fn with_histories(session: &Arc<Session>, claimed: Vec<Claimed>) -> Vec<Given> {
    let mut given: Vec<_> = claimed.into_iter().map(Given::new).collect();
    let mut missing = Vec::new();
    for given in &mut given {
        let Claimed { run, turn, history, .. } = &given.claimed;
        let is_left_out = matches!(history, ClaimedHistory::LeftOut);
        // A run that is live here was released a moment ago, and is about to leave its future.
        if is_left_out && !session.cache.lock().has(*run, *turn) && !session.is_live(*run) {
            let (answer, reading) = oneshot::channel();
            missing.push((*run, answer));
            given.reading = Some(reading);
        }
    }
    while !missing.is_empty() {
        let part: Vec<_> = missing.drain(..missing.len().min(HISTORIES_READ_MAX)).collect();
        let session = session.clone();
        session.runtime.clone().spawn(async move {
            let _busy = session.busy();
            let (runs, answers): (Vec<_>, Vec<_>) = part.into_iter().unzip();
            let read = patiently(&session.settings.outage, || session.world.histories(&runs).boxed());
            let read = read.await.unwrap_or_else(|error| vec![Err(error); runs.len()]);
            for (answer, history) in answers.into_iter().zip(read) {
                // The run may have been ended without its history.
                let _ = answer.send(history);
            }
        });
    }
    given
}
