//! Logging of outages: a worker or client logs that its world does not respond once per [`LOG_INTERVAL`], and not for
//! every call that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::WorldError;
use outlast_core::duration::duration_text;
use parking_lot::Mutex;

use crate::clock::monotonic;
use crate::telemetry::ProcessMetrics;

/// The minimum time between two log lines about outages. A call that has not failed for this time does not count as
/// failing any more.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The kinds of calls to the world. One may fail while others succeed: commits, when a disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Join,
    Claim,
    Beat,
    Commit,
    Read,
    Outcome,
    Streams,
}

/// Tracks which calls fail, and what was logged about it.
#[derive(Debug)]
pub(crate) struct Outage {
    /// What happens to the work during an outage, for log lines.
    consequence: &'static str,
    metrics: Arc<ProcessMetrics>,
    state: Mutex<OutageState>,
}

#[derive(Debug, Default)]
struct OutageState {
    /// The calls that fail, and when they failed last.
    failing: BTreeMap<Call, Duration>,
    /// When the outage began.
    since: Duration,
    /// Whether this outage was logged.
    is_logged: bool,
    /// When an outage was logged last.
    logged_at: Option<Duration>,
    /// When each call got its last response.
    answered_at: BTreeMap<Call, Duration>,
}

impl Outage {
    /// For the log of a worker.
    pub(crate) fn of_worker(metrics: Arc<ProcessMetrics>) -> Self {
        Self::new("this worker retries until the world responds", metrics)
    }

    /// For the log of a client.
    pub(crate) fn of_client(metrics: Arc<ProcessMetrics>) -> Self {
        Self::new("calls that wait for an output keep waiting", metrics)
    }

    fn new(consequence: &'static str, metrics: Arc<ProcessMetrics>) -> Self {
        Self { consequence, metrics, state: Mutex::default() }
    }

    /// Records that a call failed because the world is not available.
    pub(crate) fn failed(&self, call: Call, error: &WorldError) {
        self.metrics.world_error(error);
        let logged = self.state.lock().failed(call, monotonic());
        match logged {
            Some(Duration::ZERO) => {
                tracing::warn!(%error, "the world is not available; {}", self.consequence)
            }
            Some(lasted) => tracing::warn!(
                %error,
                "the world has not been available for {}; {}",
                whole_time(lasted),
                self.consequence
            ),
            None => tracing::debug!(?call, %error, "the world is not available"),
        }
    }

    /// Records that a call got a response.
    pub(crate) fn answered(&self, call: Call) {
        self.answered_at(call, monotonic());
    }

    /// Records that a call got a response at that time of [`monotonic`].
    pub(crate) fn answered_at(&self, call: Call, now: Duration) {
        let logged = self.state.lock().answered(call, now);
        if let Some(lasted) = logged {
            tracing::info!("the world is available again, after {}", whole_time(lasted));
        }
    }

    /// Whether a call of this kind got a response after that time of [`monotonic`].
    pub(crate) fn was_answered_since(&self, call: Call, since: Duration) -> bool {
        self.state.lock().answered_at.get(&call).is_some_and(|answered_at| *answered_at >= since)
    }
}

impl OutageState {
    /// Returns how long the outage has lasted, if that is to be logged now.
    fn failed(&mut self, call: Call, now: Duration) -> Option<Duration> {
        if self.failing.is_empty() {
            (self.since, self.is_logged) = (now, false);
        }
        self.failing.insert(call, now);
        if self.logged_at.is_some_and(|logged_at| now < logged_at + LOG_INTERVAL) {
            return None;
        }
        let lasted = now.saturating_sub(self.since);
        // Counted from the begin of the outage: otherwise the pauses between the calls would add up.
        let intervals = u32::try_from(lasted.as_secs() / LOG_INTERVAL.as_secs()).unwrap_or(u32::MAX);
        (self.is_logged, self.logged_at) = (true, Some(self.since + LOG_INTERVAL * intervals));
        Some(lasted)
    }

    /// Returns how long the outage lasted, if it has ended now and was logged.
    fn answered(&mut self, call: Call, now: Duration) -> Option<Duration> {
        self.answered_at.insert(call, now);
        if self.failing.is_empty() {
            return None;
        }
        // Failed calls of an earlier session do not matter after a join. A call that was given up never succeeds, so it
        // stops to count after a while.
        self.failing.retain(|failing, at| *failing != call && call != Call::Join && now < *at + LOG_INTERVAL);
        (self.failing.is_empty() && self.is_logged).then(|| now.saturating_sub(self.since))
    }
}

/// Writes a duration in whole seconds, or in milliseconds if it is shorter than a second.
pub(crate) fn whole_time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let whole = if seconds > 0 { seconds * 1_000 } else { u64::from(duration.subsec_millis()) };
    duration_text(Duration::from_millis(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// An hour of failing calls, five per second.
    #[test]
    fn an_outage_is_logged_at_once_then_every_ten_seconds_and_at_its_end() {
        let mut state = OutageState::default();
        let mut logged = Vec::new();
        for tenths in (1_000..37_000).step_by(2) {
            let now = Duration::from_millis(tenths * 100);
            for call in [Call::Claim, Call::Beat, Call::Commit] {
                logged.extend(state.failed(call, now));
            }
        }
        assert_eq!(logged, (0..360).map(|tens| at(tens * 10)).collect::<Vec<_>>());
        assert_eq!(state.answered(Call::Beat, at(3_700)), None, "claims and commits still fail");
        assert_eq!(state.answered(Call::Commit, at(3_700)), None);
        assert_eq!(state.answered(Call::Claim, at(3_701)), Some(at(3_601)));
        assert_eq!(state.answered(Call::Claim, at(3_702)), None, "the end is logged once");
        assert_eq!(state.failed(Call::Claim, at(3_800)), Some(at(0)), "another outage");
    }

    #[test]
    fn short_outages_in_a_row_are_logged_at_the_interval() {
        let mut state = OutageState::default();
        let mut lines = 0;
        for tenths in 0..1_000 {
            let now = Duration::from_millis(tenths * 100);
            lines += usize::from(state.failed(Call::Commit, now).is_some());
            lines += usize::from(state.answered(Call::Commit, now).is_some());
        }
        assert_eq!(lines, 20, "in a hundred seconds");
    }

    #[test]
    fn a_call_that_was_given_up_does_not_keep_an_outage_open() {
        let mut state = OutageState::default();
        assert_eq!(state.failed(Call::Commit, at(0)), Some(at(0)));
        assert_eq!(state.answered(Call::Beat, at(2)), None);
        assert_eq!(state.answered(Call::Beat, at(10)), Some(at(10)));

        let mut state = OutageState::default();
        state.failed(Call::Commit, at(20));
        state.failed(Call::Beat, at(20));
        assert_eq!(state.answered(Call::Join, at(21)), Some(at(1)), "they belonged to another session");
    }

    #[test]
    fn durations_are_logged_in_whole_units() {
        assert_eq!(whole_time(Duration::from_millis(61_234)), "1m1s");
        assert_eq!(whole_time(Duration::from_micros(250_999)), "250ms");
    }
}
