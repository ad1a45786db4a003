//! A cache of runs that this process has just started, and of whose end it would have been notified.
//!
//! A caller that waits for the end of such a run does not have to read the world's storage first. The cache is correct
//! because of the order of two steps: a waiter registers and then looks into the cache; an end removes the run from the
//! cache and then wakes the waiters. So either the waiter sees that the run is gone from the cache, or the end finds the
//! waiter. An end whose notification is lost is found by the slow poll, as for every other waiter.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::id::RunId;
use crate::run_map::RunSet;

/// The number of runs in the cache: about as many as can be between their start and the call that waits for their end.
const RUNS_MAX: usize = 10_000;

/// Runs that this process has just started.
#[derive(Debug, Default)]
pub struct RecentlyStarted(Mutex<StartedRuns>);

#[derive(Debug, Default)]
struct StartedRuns {
    /// Whether notifications of ends are received.
    is_listening: bool,
    runs: RunSet,
    /// The order of insertion, oldest first. Some of these runs may have been removed from `runs`.
    order: VecDeque<RunId>,
}

impl RecentlyStarted {
    /// Notes that notifications are received from now on, or no longer. Clears the cache: ends may have been missed.
    pub fn set_listening(&self, is_listening: bool) {
        *self.0.lock() = StartedRuns { is_listening, ..StartedRuns::default() };
    }

    /// Adds runs that are about to be started. They must be added before the start, since a started run may end at any
    /// time.
    pub fn add(&self, starting: impl Iterator<Item = RunId>) {
        let mut cache = self.0.lock();
        if !cache.is_listening {
            return;
        }
        for run in starting {
            if cache.order.len() == RUNS_MAX
                && let Some(oldest) = cache.order.pop_front()
            {
                cache.runs.remove(&oldest);
            }
            cache.order.push_back(run);
            cache.runs.insert(run);
        }
    }

    /// Removes a run that has ended or was not started.
    pub fn remove(&self, run: RunId) {
        self.0.lock().runs.remove(&run);
    }

    /// Whether the run was just started, and no notification of its end has been received.
    pub fn contains(&self, run: RunId) -> bool {
        self.0.lock().runs.contains(&run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cached_only_while_notifications_are_received() {
        let [one, two] = [1, 2].map(RunId::from_bits);
        let cache = RecentlyStarted::default();
        cache.add([one].into_iter());
        assert!(!cache.contains(one), "there is no listener");
        cache.set_listening(true);
        cache.add([one, two].into_iter());
        cache.remove(one);
        assert!(!cache.contains(one) && cache.contains(two));
        cache.set_listening(true);
        assert!(!cache.contains(two), "an end may have been missed while there was no listener");
    }

    #[test]
    fn a_full_cache_drops_the_oldest_run() {
        let cache = RecentlyStarted::default();
        cache.set_listening(true);
        cache.add((0..=RUNS_MAX as u128).map(RunId::from_bits));
        assert!(!cache.contains(RunId::from_bits(0)) && cache.contains(RunId::from_bits(1)));
    }
}
