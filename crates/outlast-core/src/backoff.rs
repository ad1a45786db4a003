//! Pauses between the tries of a call that fails for a temporary reason.

use std::time::Duration;

/// The pauses between the tries of one call: they double from a minimum to a maximum, and each is shortened by a random
/// part, so that processes that failed together do not try again together.
///
/// It neither sleeps nor draws random numbers: the caller does both, so that a simulation is reproducible.
///
/// ```
/// use std::time::Duration;
/// use outlast_core::Backoff;
///
/// const fn ms(millis: u64) -> Duration {
///     Duration::from_millis(millis)
/// }
///
/// let mut backoff = Backoff::new(ms(100), ms(300));
/// let longest: Vec<_> = (0..4).map(|_| backoff.next_pause(1.0)).collect();
/// assert_eq!(longest, [ms(100), ms(200), ms(300), ms(300)]);
/// assert_eq!(backoff.next_pause(0.0), ms(150), "at least half of it");
/// backoff.reset();
/// assert_eq!(backoff.next_pause(1.0), ms(100));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
    pauses: u32,
}

impl Backoff {
    /// Pauses that begin with at most `min`, and are never longer than `max`.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min, pauses: 0 }
    }

    /// Pauses of one length, for calls whose tries need not become rarer.
    pub const fn constant(pause: Duration) -> Self {
        Self::new(pause, pause)
    }

    /// The next pause. `chance`, a random number from 0 to 1, determines its length: from half to all of the current
    /// step.
    pub fn next_pause(&mut self, chance: f64) -> Duration {
        let whole = self.next.min(self.max);
        self.next = whole.saturating_mul(2).min(self.max);
        self.pauses = self.pauses.saturating_add(1);
        whole.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
    }

    /// The number of pauses since the first try, or since the last [reset](Self::reset).
    pub fn pauses(&self) -> u32 {
        self.pauses
    }

    /// Begins again, after a call that succeeded.
    pub fn reset(&mut self) {
        (self.next, self.pauses) = (self.min, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_between_half_and_all_of_its_step() {
        let step = Duration::from_secs(2);
        let pause = |chance| Backoff::new(step, step).next_pause(chance);
        assert_eq!([pause(0.0), pause(0.5), pause(1.0)], [step / 2, step * 3 / 4, step]);
        assert_eq!([pause(-1.0), pause(7.0)], [step / 2, step], "a chance outside of its range is limited");
    }

    #[test]
    fn pauses_are_counted_until_a_reset() {
        let mut backoff = Backoff::constant(Duration::from_millis(1));
        assert_eq!(backoff.pauses(), 0);
        backoff.next_pause(0.0);
        backoff.next_pause(0.0);
        assert_eq!(backoff.pauses(), 2);
        backoff.reset();
        assert_eq!(backoff.pauses(), 0);
    }

    #[test]
    fn very_many_pauses_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::MAX);
        let longest = (0..100).map(|_| backoff.next_pause(0.0)).max();
        assert_eq!(longest, Some(Duration::MAX.mul_f64(0.5)));
    }
}
