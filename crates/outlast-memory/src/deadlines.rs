//! The deadlines of runs that no session holds. A run that is overdue for long is ended without its code.

use std::collections::BTreeSet;

use outlast_core::limits::DEADLINE_GRACE;
use outlast_core::{RunId, Timestamp};

/// When each run is overdue: its deadline plus [`DEADLINE_GRACE`].
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeSet<(Timestamp, RunId)>);

impl Deadlines {
    /// Adds a run. Returns whether waiting workers must be woken: the run is overdue, or will be before the others.
    pub(crate) fn insert(&mut self, deadline: Timestamp, run: RunId, now: Timestamp) -> bool {
        let overdue_at = deadline.plus(DEADLINE_GRACE);
        self.0.insert((overdue_at, run)) && (overdue_at <= now || self.next_due(now, now) == Some(overdue_at))
    }

    pub(crate) fn remove(&mut self, deadline: Timestamp, run: RunId) {
        self.0.remove(&(deadline.plus(DEADLINE_GRACE), run));
    }

    /// The overdue runs, the earliest deadline first.
    pub(crate) fn overdue(&self, now: Timestamp) -> impl Iterator<Item = RunId> {
        self.0.iter().take_while(move |(at, _)| *at <= now).map(|(_, run)| *run)
    }

    /// When the next run can be claimed as overdue, if overdue runs can be claimed from `from` on.
    pub(crate) fn next_due(&self, now: Timestamp, from: Timestamp) -> Option<Timestamp> {
        let already_overdue = if from <= now { now.as_micros() } else { i64::MIN };
        let next = Timestamp::from_micros(already_overdue.saturating_add(1));
        let (at, _) = self.0.range((next, RunId::from_bits(0))..).next()?;
        Some(*at.max(&from)).filter(|at| *at < Timestamp::NEVER)
    }
}
