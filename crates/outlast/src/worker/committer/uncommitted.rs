//! The turns that the world refuses for a temporary reason, and that are tried again: for explanations, the report of
//! the worker, and the log.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::limits::{REPORT_ERROR_BYTES_MAX, REPORT_UNCOMMITTED_MAX};
use outlast_core::{RunId, UncommittedRuns, WorldError};
use parking_lot::Mutex;

use crate::clock::monotonic;
use crate::worker::log_limit::RunLogs;

/// The minimum time between two log lines about the same turn.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The turns that are tried again, by their runs. A run has at most one.
#[derive(Debug, Default)]
pub(in crate::worker) struct UncommittedTurns(Mutex<BTreeMap<RunId, UncommittedTurn>>);

#[derive(Debug)]
struct UncommittedTurn {
    error: WorldError,
    since: Duration,
    logged_at: Option<Duration>,
}

impl UncommittedTurns {
    /// Records that the world refused a turn of the run with this error.
    pub(super) fn refused(&self, run: RunId, error: &WorldError) {
        let mut turns = self.0.lock();
        let turn = turns.entry(run).or_insert_with(|| UncommittedTurn {
            error: error.clone(),
            since: monotonic(),
            logged_at: None,
        });
        turn.error = error.clone();
    }

    /// Records that the turn of the run is not tried again: it was committed, or given up. Logs it if its refusal was
    /// logged.
    pub(super) fn answered(&self, run: RunId, is_committed: bool) {
        let turn = {
            let mut turns = self.0.lock();
            // Most turns are never refused.
            if turns.is_empty() {
                return;
            }
            turns.remove(&run)
        };
        if let Some(turn) = turn.filter(|turn| is_committed && turn.logged_at.is_some()) {
            RunLogs::committed_after(run, monotonic().saturating_sub(turn.since));
        }
    }

    /// Logs the refusal of the run's turn, unless that was logged a short time ago.
    pub(super) fn log(&self, run: RunId, logs: &RunLogs) {
        let error = {
            let (mut turns, now) = (self.0.lock(), monotonic());
            let Some(turn) = turns.get_mut(&run) else { return };
            if turn.logged_at.is_some_and(|logged_at| now < logged_at + LOG_INTERVAL) {
                return;
            }
            turn.logged_at = Some(now);
            turn.error.clone()
        };
        logs.not_committed(run, &error);
    }

    /// The number of runs with such a turn.
    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The error of the last try, if a turn of the run is tried again.
    pub(in crate::worker) fn error(&self, run: RunId) -> Option<String> {
        self.0.lock().get(&run).map(|turn| turn.error.to_string())
    }

    /// The first runs with such a turn, for the report; `None` if there are none.
    pub(in crate::worker) fn report(&self) -> Option<UncommittedRuns> {
        let turns = self.0.lock();
        let latest = turns.values().max_by_key(|turn| turn.since)?;
        let mut error = latest.error.to_string();
        error.truncate(error.floor_char_boundary(REPORT_ERROR_BYTES_MAX));
        Some(UncommittedRuns::new(error, turns.keys().take(REPORT_UNCOMMITTED_MAX).copied().collect()))
    }
}
