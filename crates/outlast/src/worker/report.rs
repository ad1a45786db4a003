//! The report: what a worker says of itself with every beat.

use outlast_core::{Report, WorkerStatus};

use super::session::Session;

impl Session {
    /// What the worker says of itself now.
    pub(super) fn report(&self) -> Report {
        let meter = &self.settings.meter;
        let is_stopping = self.stopping.is_cancelled();
        Report {
            status: if is_stopping { WorkerStatus::Draining } else { WorkerStatus::Working },
            live: self.live_count() as u64,
            waiting_futures: self.cache.lock().len() as u64,
            turns: meter.turns.get(),
            replays: meter.replays.get(),
            ..Report::default()
        }
    }
}
