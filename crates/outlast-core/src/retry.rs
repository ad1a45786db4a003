//! Retries: when a failed step is attempted again. Pure arithmetic.

use std::time::Duration;

use crate::failure::FailureKind;

/// How a step is attempted: how often, how long, and with what pauses between.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// Attempts in all, the first included; at least 1.
    pub attempts: u32,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// The pause after the first failed attempt.
    pub initial: Duration,
    /// By how much each pause is longer than the one before.
    pub multiplier: f64,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Policy {
    /// Five attempts without a time limit; pauses of 200 ms, 400 ms, 800 ms and so on, at most a minute.
    pub const DEFAULT: Self = Self {
        attempts: 5,
        timeout: None,
        initial: Duration::from_millis(200),
        multiplier: 2.0,
        pause_max: Duration::from_secs(60),
    };

    /// The pause after failed attempt number `attempt` (from 1); `None` when that was the last, or
    /// another attempt could not end better.
    pub fn pause_after(&self, attempt: u32, kind: FailureKind) -> Option<Duration> {
        if attempt >= self.attempts || !kind.is_retryable() {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.multiplier.powi(exponent);
        let pause = Duration::try_from_secs_f64(seconds).unwrap_or(self.pause_max);
        Some(pause.min(self.pause_max))
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_their_maximum() {
        let policy = Policy { attempts: u32::MAX, ..Policy::DEFAULT };
        let pauses: Vec<_> = [1, 2, 3, 9, 10, u32::MAX - 1]
            .map(|n| policy.pause_after(n, FailureKind::Error).unwrap().as_millis())
            .into();
        assert_eq!(pauses, [200, 400, 800, 51_200, 60_000, 60_000]);
    }

    #[test]
    fn the_last_attempt_and_fatal_failures_have_no_successor() {
        assert_eq!(Policy::DEFAULT.pause_after(5, FailureKind::Error), None);
        assert_eq!(Policy::DEFAULT.pause_after(1, FailureKind::Fatal), None);
        assert_eq!(Policy { attempts: 1, ..Policy::DEFAULT }.pause_after(1, FailureKind::Error), None);
    }
}
