//! The one voice in which a worker or a client says that its world does not answer, so that a server that is down for an
//! hour is a few lines and not thousands.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_core::WorldError;
use outlast_core::duration::duration_text;
use parking_lot::Mutex;

use crate::clock::monotonic;

/// At most so often it is said that the world does not answer; a call that has not failed for so long is over.
const PACE: Duration = Duration::from_secs(10);

/// What the world was asked for. One may fail while others work: commits, when a disk is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Join,
    Claim,
    Beat,
    Commit,
    Read,
    Outcome,
}

/// What is known of an outage of the world, and what was said of it.
#[derive(Debug)]
pub(crate) struct Outage {
    /// What becomes of the work meanwhile.
    meanwhile: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The calls that fail, and when they did last.
    failing: BTreeMap<Call, Duration>,
    /// Since when there are any.
    since: Duration,
    /// Whether this outage was spoken of.
    is_told: bool,
    /// When one was last spoken of.
    told_at: Option<Duration>,
}

impl Outage {
    /// For a worker.
    pub(crate) fn of_worker() -> Self {
        Self::new("this worker keeps trying, and goes on by itself")
    }

    /// For a client.
    pub(crate) fn of_client() -> Self {
        Self::new("whoever awaits an output waits on")
    }

    fn new(meanwhile: &'static str) -> Self {
        Self { meanwhile, state: Mutex::default() }
    }

    /// A call got no answer.
    pub(crate) fn failed(&self, call: Call, error: &WorldError) {
        let told = self.state.lock().failed(call, monotonic());
        match told {
            Some(Duration::ZERO) => tracing::warn!(%error, "the world is not available; {}", self.meanwhile),
            Some(lasted) => tracing::warn!(
                %error,
                "the world has not been available for {}; {}",
                roughly(lasted),
                self.meanwhile
            ),
            None => tracing::debug!(?call, %error, "the world is not available"),
        }
    }

    /// A call got an answer.
    pub(crate) fn answered(&self, call: Call) {
        let told = self.state.lock().answered(call, monotonic());
        if let Some(lasted) = told {
            tracing::info!("the world is available again, after {}", roughly(lasted));
        }
    }
}

impl State {
    /// For how long the world does not answer, when that is to be said now.
    fn failed(&mut self, call: Call, now: Duration) -> Option<Duration> {
        if self.failing.is_empty() {
            (self.since, self.is_told) = (now, false);
        }
        self.failing.insert(call, now);
        if self.told_at.is_some_and(|told_at| now < told_at + PACE) {
            return None;
        }
        (self.is_told, self.told_at) = (true, Some(now));
        Some(now.saturating_sub(self.since))
    }

    /// How long the outage lasted that is over now, when it was spoken of.
    fn answered(&mut self, call: Call, now: Duration) -> Option<Duration> {
        if self.failing.is_empty() {
            return None;
        }
        // A new session has nothing to do with the calls of the last one; and nobody says of a call that was
        // given up that it is over.
        self.failing.retain(|failing, at| *failing != call && call != Call::Join && now < *at + PACE);
        (self.failing.is_empty() && self.is_told).then(|| now.saturating_sub(self.since))
    }
}

/// Whole seconds, or milliseconds when it is less than one.
fn roughly(duration: Duration) -> String {
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
    fn an_outage_is_said_at_once_then_every_ten_seconds_and_when_it_is_over() {
        let mut state = State::default();
        let mut told = Vec::new();
        for tenths in (1_000..37_000).step_by(2) {
            let now = Duration::from_millis(tenths * 100);
            for call in [Call::Claim, Call::Beat, Call::Commit] {
                told.extend(state.failed(call, now));
            }
        }
        assert_eq!(told, (0..360).map(|tens| at(tens * 10)).collect::<Vec<_>>());
        assert_eq!(state.answered(Call::Beat, at(3_700)), None, "claims and commits fail still");
        assert_eq!(state.answered(Call::Commit, at(3_700)), None);
        assert_eq!(state.answered(Call::Claim, at(3_701)), Some(at(3_601)));
        assert_eq!(state.answered(Call::Claim, at(3_702)), None, "that was said");
        assert_eq!(state.failed(Call::Claim, at(3_800)), Some(at(0)), "another outage");
    }

    #[test]
    fn a_world_that_comes_and_goes_is_not_spoken_of_all_the_time() {
        let mut state = State::default();
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
        let mut state = State::default();
        assert_eq!(state.failed(Call::Commit, at(0)), Some(at(0)));
        assert_eq!(state.answered(Call::Beat, at(2)), None);
        assert_eq!(state.answered(Call::Beat, at(10)), Some(at(10)));

        let mut state = State::default();
        state.failed(Call::Commit, at(20));
        state.failed(Call::Beat, at(20));
        assert_eq!(state.answered(Call::Join, at(21)), Some(at(1)), "they were of another session");
    }

    #[test]
    fn durations_are_told_roughly() {
        assert_eq!(roughly(Duration::from_millis(61_234)), "1m1s");
        assert_eq!(roughly(Duration::from_micros(250_999)), "250ms");
    }
}
