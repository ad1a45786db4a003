//! Runs that this process has just started and whose end it would have heard of: who waits for one of them need not
//! look first.

use std::collections::{HashSet, VecDeque};

use outlast_core::RunId;
use parking_lot::Mutex;

/// So many are remembered.
const YOUNG_MAX: usize = 1_000;

/// The runs. Whoever hears of an end takes the run away and then tells those who wait for it; who waits registers
/// and then looks here: one of them sees the other. An end that nobody says is found by the slow poll, as for all
/// who wait.
#[derive(Debug, Default)]
pub(crate) struct Young(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    /// Whether ends are heard of.
    listens: bool,
    runs: HashSet<RunId>,
    /// The oldest first. Some of them may be gone.
    order: VecDeque<RunId>,
}

impl Young {
    /// From now on ends are heard of, or no more; what was before may have been missed.
    pub(crate) fn listens(&self, listens: bool) {
        *self.0.lock() = Runs { listens, ..Runs::default() };
    }

    /// Remembers runs that are about to be started: before that, since then they may end at any time.
    pub(crate) fn add(&self, starting: impl Iterator<Item = RunId>) {
        let mut young = self.0.lock();
        if !young.listens {
            return;
        }
        for run in starting {
            if young.order.len() == YOUNG_MAX
                && let Some(oldest) = young.order.pop_front()
            {
                young.runs.remove(&oldest);
            }
            young.order.push_back(run);
            young.runs.insert(run);
        }
    }

    /// Forgets a run: it ended, or was not started.
    pub(crate) fn remove(&self, run: RunId) {
        self.0.lock().runs.remove(&run);
    }

    /// Whether nothing was heard of the run's end yet, which would have been.
    pub(crate) fn contains(&self, run: RunId) -> bool {
        self.0.lock().runs.contains(&run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_runs_whose_end_would_be_heard_are_young() {
        let [one, two] = [1, 2].map(RunId::from_bits);
        let young = Young::default();
        young.add([one].into_iter());
        assert!(!young.contains(one), "nobody listens");
        young.listens(true);
        young.add([one, two].into_iter());
        young.remove(one);
        assert!(!young.contains(one) && young.contains(two));
        young.listens(true);
        assert!(!young.contains(two), "what happened while nobody listened may be missed");
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let young = Young::default();
        young.listens(true);
        young.add((0..=YOUNG_MAX as u128).map(RunId::from_bits));
        assert!(!young.contains(RunId::from_bits(0)) && young.contains(RunId::from_bits(1)));
    }
}
