//! Retries: when a failed step is attempted again. Pure arithmetic.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration::IntoDuration;
use crate::failure::{ErrorClass, Failure};
use crate::limits::JITTER_MAX;

/// The policy for the attempts at a step: retries, timeouts, concurrency and queue.
///
/// The policy of a queued step is stored with its run as JSON; missing fields have the values of
/// [`DEFAULT`](Self::DEFAULT). Its queue and priority are those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Policy {
    /// The retry policy.
    pub retry: Retry,
    /// The maximum duration of one attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The maximum time between two heartbeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout: Option<Duration>,
    /// The maximum number of concurrent attempts at the step on one worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Whether the code blocks its thread, and therefore runs on the blocking pool.
    #[serde(rename = "blocking", skip_serializing_if = "is_false")]
    pub is_blocking: bool,
    /// Whether at most one attempt is made.
    #[serde(rename = "at_most_once", skip_serializing_if = "is_false")]
    pub is_at_most_once: bool,
    /// Whether the effect of an attempt and its outcome are one transaction.
    #[serde(rename = "transactional", skip_serializing_if = "is_false")]
    pub is_transactional: bool,
    /// The queue of the step. `None` means that the worker that holds the run attempts it.
    #[serde(skip)]
    pub queue: Option<&'static str>,
    /// The priority of the step in its queue; by default the priority of its run.
    #[serde(skip)]
    pub priority: Option<u8>,
}

impl Policy {
    /// [`Retry::DEFAULT`], without timeouts or limits.
    pub const DEFAULT: Self = Self {
        retry: Retry::DEFAULT,
        timeout: None,
        heartbeat_timeout: None,
        limit: None,
        is_blocking: false,
        is_at_most_once: false,
        is_transactional: false,
        queue: None,
        priority: None,
    };

    /// The effective retry policy: no retries for an at-most-once step.
    pub fn retry(&self) -> Retry {
        if self.is_at_most_once { Retry::none() } else { self.retry }
    }
}

// serde's `skip_serializing_if` passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The retry policy of a step: how often, after which pauses, and for which errors a failed attempt is repeated.
///
/// ```
/// use outlast_core::{ErrorClass, Retry};
///
/// let patient = Retry::exponential().attempts(10).initial("1s").max("5m").jitter(0.0..=0.10);
/// let picky = Retry::api().only(&[ErrorClass::Network, ErrorClass::RateLimit]);
/// # assert_ne!(patient, picky);
/// ```
///
/// Its methods panic on invalid values, because these are mistakes in the code; `#[step(attempts = 0)]` does not
/// compile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[must_use = "a retry does nothing by itself; give it to a step with `.retry(…)`, or to `outlast::retry`"]
#[non_exhaustive]
pub struct Retry {
    attempts: u32,
    growth: Growth,
    initial: Duration,
    multiplier: f64,
    max: Duration,
    jitter_min: f64,
    jitter_max: f64,
    only: Classes,
    unless: Classes,
}

/// How pauses grow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Growth {
    Constant,
    Linear,
    Exponential,
}

impl Retry {
    /// Five attempts; pauses of 200 ms, 400 ms, 800 ms and so on, at most a minute, without jitter.
    pub const DEFAULT: Self = Self {
        attempts: 5,
        growth: Growth::Exponential,
        initial: Duration::from_millis(200),
        multiplier: 2.0,
        max: Duration::from_secs(60),
        jitter_min: 0.0,
        jitter_max: 0.0,
        only: Classes::NONE,
        unless: Classes::NONE,
    };

    /// The default of compensations: pauses from 1 s, doubled up to 10 minutes, plus up to 10 % jitter, for at least 24
    /// hours.
    pub const COMPENSATION: Self = Self {
        attempts: 154,
        initial: Duration::from_secs(1),
        max: Duration::from_secs(600),
        jitter_max: JITTER_MAX,
        ..Self::DEFAULT
    };

    /// The default of workflows that are retried: three tries, with pauses of 5 s and 10 s, plus up to 10 % jitter.
    pub const WORKFLOW: Self = Self {
        attempts: 3,
        initial: Duration::from_secs(5),
        max: Duration::from_secs(600),
        jitter_max: JITTER_MAX,
        ..Self::DEFAULT
    };

    /// Exponential backoff: 200 ms, 400 ms, 800 ms. The default.
    pub const fn exponential() -> Self {
        Self::DEFAULT
    }

    /// Linear backoff: 200 ms, 400 ms, 600 ms.
    pub const fn linear() -> Self {
        Self { growth: Growth::Linear, ..Self::DEFAULT }
    }

    /// Constant pauses of 200 ms.
    pub const fn constant() -> Self {
        Self { growth: Growth::Constant, ..Self::DEFAULT }
    }

    /// A single attempt without retries.
    pub const fn none() -> Self {
        Self { attempts: 1, ..Self::DEFAULT }
    }

    /// For calls of external services: five attempts; pauses of 1 s, 2 s, 4 s and 8 s, plus up to 10 % jitter.
    pub const fn api() -> Self {
        Self { initial: Duration::from_secs(1), jitter_max: JITTER_MAX, ..Self::DEFAULT }
    }

    /// For a database that is busy or restarts: eight attempts; pauses from 100 ms, doubled up to 5 s, plus up to 10 %
    /// jitter.
    pub const fn database() -> Self {
        Self {
            attempts: 8,
            initial: Duration::from_millis(100),
            max: Duration::from_secs(5),
            jitter_max: JITTER_MAX,
            ..Self::DEFAULT
        }
    }

    /// For unreliable connections: ten attempts; pauses from 500 ms, doubled up to 30 s, plus up to 10 % jitter.
    pub const fn network() -> Self {
        Self {
            attempts: 10,
            initial: Duration::from_millis(500),
            max: Duration::from_secs(30),
            jitter_max: JITTER_MAX,
            ..Self::DEFAULT
        }
    }

    /// For work that somebody waits for: three attempts; pauses of 100 ms and 200 ms, plus up to 10 % jitter.
    pub const fn quick() -> Self {
        Self { attempts: 3, initial: Duration::from_millis(100), jitter_max: JITTER_MAX, ..Self::DEFAULT }
    }

    /// For most work: five attempts; pauses of 500 ms, 1 s, 2 s and 4 s, plus up to 10 % jitter.
    pub const fn standard() -> Self {
        Self { initial: Duration::from_millis(500), jitter_max: JITTER_MAX, ..Self::DEFAULT }
    }

    /// For work that must succeed soon after its cause is gone: twenty attempts; pauses from 100 ms, doubled up to
    /// 10 s, plus up to 10 % jitter.
    pub const fn aggressive() -> Self {
        Self {
            attempts: 20,
            initial: Duration::from_millis(100),
            max: Duration::from_secs(10),
            jitter_max: JITTER_MAX,
            ..Self::DEFAULT
        }
    }

    /// The maximum number of attempts, including the first.
    ///
    /// # Panics
    ///
    /// When `attempts` is 0.
    #[track_caller]
    pub const fn attempts(self, attempts: u32) -> Self {
        assert!(attempts > 0, "a step needs at least one attempt; `Retry::none()` is one without another");
        Self { attempts, ..self }
    }

    /// The pause after the first failed attempt. The maximum pause is raised to it if it is shorter.
    ///
    /// # Panics
    ///
    /// When the text is not a duration.
    #[track_caller]
    pub fn initial(self, pause: impl IntoDuration) -> Self {
        let initial = pause.into_duration().unwrap_or_else(|error| panic!("{error}"));
        Self { initial, max: self.max.max(initial), ..self }
    }

    /// The factor between two consecutive pauses, with exponential backoff.
    ///
    /// # Panics
    ///
    /// When `multiplier` is not a number of at least 1, or the backoff is not exponential.
    #[track_caller]
    pub fn multiplier(self, multiplier: f64) -> Self {
        assert!(
            multiplier.is_finite() && multiplier >= 1.0,
            "a multiplier is a number of at least 1, and {multiplier} is not; pauses do not shrink"
        );
        assert!(
            self.growth == Growth::Exponential,
            "only exponential pauses have a multiplier; begin with `Retry::exponential()`"
        );
        Self { multiplier, ..self }
    }

    /// The maximum pause, before jitter.
    ///
    /// # Panics
    ///
    /// When the text is not a duration, or is shorter than the first pause.
    #[track_caller]
    pub fn max(self, pause: impl IntoDuration) -> Self {
        let max = pause.into_duration().unwrap_or_else(|error| panic!("{error}"));
        assert!(
            max >= self.initial,
            "the longest pause is shorter than the first; set `initial` before `max`"
        );
        Self { max, ..self }
    }

    /// The fraction by which each pause is extended, at random within the range, so that steps that failed together
    /// are not retried together: `0.0..=0.10` is up to 10 %.
    ///
    /// The random number is drawn when an attempt fails, and the time of the next attempt is recorded, so that a
    /// replay gives the same result.
    ///
    /// # Panics
    ///
    /// When the range is empty, or not within 0 and 0.10.
    #[track_caller]
    pub fn jitter(self, range: RangeInclusive<f64>) -> Self {
        let (jitter_min, jitter_max) = range.into_inner();
        assert!(
            0.0 <= jitter_min && jitter_min <= jitter_max && jitter_max <= JITTER_MAX,
            "jitter is a range within 0.0..=0.10, and {jitter_min}..={jitter_max} is not"
        );
        Self { jitter_min, jitter_max, ..self }
    }

    /// Retries these classes of errors only; an error of no class is not retried.
    ///
    /// [`ErrorClass::Transient`] stands for all classes. Without a call, every error is retried.
    ///
    /// # Panics
    ///
    /// When there are no classes; [`Retry::none`] retries nothing.
    #[track_caller]
    pub fn only(self, classes: &[ErrorClass]) -> Self {
        assert!(!classes.is_empty(), "`only` without classes retries nothing; `Retry::none()` says so");
        Self { only: Classes::of(classes), ..self }
    }

    /// Does not retry these classes of errors, even those that [`only`](Self::only) names.
    pub fn unless(self, classes: &[ErrorClass]) -> Self {
        Self { unless: Classes::of(classes), ..self }
    }

    /// The maximum number of attempts.
    pub const fn attempts_max(&self) -> u32 {
        self.attempts
    }

    /// Whether failed attempt number `attempt` (from 1) was the last.
    pub fn is_exhausted(&self, attempt: u32) -> bool {
        attempt >= self.attempts
    }

    /// The pause after failed attempt number `attempt` (from 1); `None` when that was the last, or the failure is not
    /// retried. `chance`, from 0 to 1, determines the jitter.
    pub fn pause_after(&self, attempt: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        if self.is_exhausted(attempt) || !failure.kind.is_retryable() || !self.wants(failure) {
            return None;
        }
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = match self.growth {
            Growth::Constant => 1.0,
            Growth::Linear => f64::from(attempt),
            Growth::Exponential => self.multiplier.powi(exponent),
        };
        let pause = Duration::try_from_secs_f64(self.initial.as_secs_f64() * factor).unwrap_or(self.max);
        let part = self.jitter_min + (self.jitter_max - self.jitter_min) * chance.clamp(0.0, 1.0);
        let pause = pause.min(self.max);
        Some(
            pause.saturating_add(Duration::try_from_secs_f64(pause.as_secs_f64() * part).unwrap_or_default()),
        )
    }

    fn wants(&self, failure: &Failure) -> bool {
        let class = failure.class();
        (self.only == Classes::NONE || self.only.has(class)) && !self.unless.has(class)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A set of classes: one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Classes(u8);

impl Classes {
    const NONE: Self = Self(0);

    fn of(classes: &[ErrorClass]) -> Self {
        Self(classes.iter().fold(0, |bits, class| bits | Self::bits(*class)))
    }

    fn has(self, class: Option<ErrorClass>) -> bool {
        class.is_some_and(|class| self.0 & Self::bits(class) == Self::bits(class))
    }

    /// `Transient` is all bits, so that it contains every other class.
    fn bits(class: ErrorClass) -> u8 {
        match class {
            ErrorClass::Network => 1,
            ErrorClass::RateLimit => 2,
            ErrorClass::Server => 4,
            ErrorClass::Transient => 15,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn failure(kind: FailureKind) -> Failure {
        Failure::new(kind, "no")
    }

    /// The pauses after these attempts, in milliseconds.
    fn pauses(retry: Retry, attempts: &[u32]) -> Vec<u128> {
        let pause = |n: &u32| retry.pause_after(*n, &failure(FailureKind::Error), 0.0).unwrap().as_millis();
        attempts.iter().map(pause).collect()
    }

    #[test]
    fn pauses_grow_up_to_their_maximum() {
        let attempts = [1, 2, 3, 9, 10, u32::MAX - 1];
        let for_ever = |retry: Retry| retry.attempts(u32::MAX);
        assert_eq!(pauses(for_ever(Retry::DEFAULT), &attempts), [200, 400, 800, 51_200, 60_000, 60_000]);
        assert_eq!(pauses(for_ever(Retry::linear()), &attempts), [200, 400, 600, 1_800, 2_000, 60_000]);
        assert_eq!(pauses(for_ever(Retry::constant()).initial("3s"), &attempts), [3_000; 6]);
        let slow = for_ever(Retry::exponential()).initial("1s").multiplier(1.5).max("2s");
        assert_eq!(pauses(slow, &attempts), [1_000, 1_500, 2_000, 2_000, 2_000, 2_000]);
    }

    #[test]
    fn a_compensation_is_retried_for_a_day() {
        let attempts: Vec<_> = (1..Retry::COMPENSATION.attempts_max()).collect();
        let pauses: u128 = pauses(Retry::COMPENSATION, &attempts).into_iter().sum();
        assert!((86_400_000..87_100_000).contains(&pauses), "{pauses}");
    }

    #[test]
    fn presets_have_their_pauses() {
        assert_eq!(pauses(Retry::quick(), &[1, 2]), [100, 200]);
        assert_eq!(pauses(Retry::standard(), &[1, 2, 3, 4]), [500, 1_000, 2_000, 4_000]);
        assert_eq!(pauses(Retry::aggressive(), &[1, 2, 7, 8, 19]), [100, 200, 6_400, 10_000, 10_000]);
        let attempts =
            [Retry::quick(), Retry::standard(), Retry::aggressive()].map(|retry| retry.attempts_max());
        assert_eq!(attempts, [3, 5, 20]);
    }

    #[test]
    fn a_long_first_pause_raises_the_maximum() {
        assert_eq!(pauses(Retry::constant().initial("5m"), &[1, 2]), [300_000; 2]);
    }

    #[test]
    fn the_last_attempt_and_fatal_failures_have_no_successor() {
        let (error, fatal) = (failure(FailureKind::Error), failure(FailureKind::Fatal));
        assert_eq!(Retry::DEFAULT.pause_after(5, &error, 0.0), None);
        assert_eq!(Retry::DEFAULT.pause_after(1, &fatal, 0.0), None);
        assert_eq!(Retry::none().pause_after(1, &error, 0.0), None);
    }

    #[test]
    fn jitter_makes_a_pause_longer_within_its_range() {
        let retry = Retry::constant().initial("1s").jitter(0.02..=0.10);
        let at = |chance| {
            retry.pause_after(1, &failure(FailureKind::Error), chance).unwrap().as_secs_f64() * 1_000.0
        };
        assert_eq!([0.0, 0.5, 1.0].map(|chance| at(chance).round()), [1_020.0, 1_060.0, 1_100.0]);
        let capped = Retry::exponential().initial("1s").max("1s").jitter(0.1..=0.1);
        assert_eq!(pauses(capped, &[3]), [1_100], "the maximum is before jitter");
    }

    #[test]
    fn classes_choose_what_is_retried() {
        use ErrorClass::{Network, RateLimit, Server, Transient};
        let retried = |retry: Retry| {
            let classes = [None, Some(Network), Some(RateLimit), Some(Server), Some(Transient)];
            classes.map(|class| {
                let failure = Failure { class, ..failure(FailureKind::Error) };
                u8::from(retry.pause_after(1, &failure, 0.0).is_some())
            })
        };
        let retry = Retry::DEFAULT;
        assert_eq!(retried(retry), [1, 1, 1, 1, 1]);
        assert_eq!(retried(retry.only(&[Network])), [0, 1, 0, 0, 0]);
        assert_eq!(retried(retry.only(&[Network, Server])), [0, 1, 0, 1, 0]);
        assert_eq!(retried(retry.only(&[Transient])), [0, 1, 1, 1, 1]);
        assert_eq!(retried(retry.unless(&[RateLimit])), [1, 1, 0, 1, 1]);
        assert_eq!(retried(retry.only(&[Network, RateLimit]).unless(&[RateLimit])), [0, 1, 0, 0, 0]);
        assert_eq!(retried(retry.unless(&[Transient])), [1, 0, 0, 0, 0]);
    }

    #[test]
    fn an_attempt_that_took_too_long_is_transient() {
        let retry = Retry::DEFAULT.only(&[ErrorClass::Transient]);
        assert!(retry.pause_after(1, &failure(FailureKind::Timeout), 0.0).is_some());
        assert!(retry.pause_after(1, &failure(FailureKind::Panic), 0.0).is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused_clearly() {
        fn refused(make: impl FnOnce() -> Retry + std::panic::UnwindSafe) -> String {
            let panic = std::panic::catch_unwind(make).unwrap_err();
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap()
        }
        let texts = [
            refused(|| Retry::api().attempts(0)),
            refused(|| Retry::api().multiplier(0.5)),
            refused(|| Retry::api().multiplier(f64::NAN)),
            refused(|| Retry::linear().multiplier(2.0)),
            refused(|| Retry::api().jitter(0.0..=0.11)),
            refused(|| Retry::api().jitter(-0.1..=0.1)),
            refused(|| Retry::api().initial("soon")),
            refused(|| Retry::api().initial("2s").max("1s")),
            refused(|| Retry::api().only(&[])),
        ];
        expect_test::expect![[r#"
            a step needs at least one attempt; `Retry::none()` is one without another
            a multiplier is a number of at least 1, and 0.5 is not; pauses do not shrink
            a multiplier is a number of at least 1, and NaN is not; pauses do not shrink
            only exponential pauses have a multiplier; begin with `Retry::exponential()`
            jitter is a range within 0.0..=0.10, and 0..=0.11 is not
            jitter is a range within 0.0..=0.10, and -0.1..=0.1 is not
            `soon` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`
            the longest pause is shorter than the first; set `initial` before `max`
            `only` without classes retries nothing; `Retry::none()` says so"#]]
        .assert_eq(&texts.join("\n"));
    }
}
