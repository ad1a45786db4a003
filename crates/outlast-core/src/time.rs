//! Timestamps and the clock of a world.

mod convert;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

pub use convert::TimestampOutOfRange;

/// A time of a world's clock: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A time later than any that a clock reaches.
    pub const NEVER: Self = Self(i64::MAX);

    /// The time this many microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time `duration` later, or [`Timestamp::NEVER`] if that is out of range.
    pub fn plus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// The time `duration` earlier.
    pub fn minus(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(micros))
    }

    /// The duration since `earlier`; zero if this time is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    /// Writes the time as RFC 3339 in UTC, with microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The proleptic Gregorian date of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    // Count in years that begin on 1 March, so that the leap day is the last of its year.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// The clock of a world, from which workers, clients and worlds read the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// Completes when the clock reaches `at`. The caller holds the returned [`Busy`] during the work that follows.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>>;

    /// Marks work as in progress until the returned value is dropped.
    fn busy(&self) -> Busy;

    /// Whether a test controls this clock. If so, nothing expires and nothing is polled automatically.
    fn is_virtual(&self) -> bool;
}

/// Waits for an event, or for a time to come: `time` is from [`Clock::sleep_until`]. If both are ready, the event is
/// returned.
///
/// # Errors
///
/// The output of `time` if that comes first.
pub async fn event_or_time<T>(
    event: impl Future<Output = T>,
    time: impl Future<Output = Busy>,
) -> Result<T, Busy> {
    let (mut event, mut time) = (pin!(event), pin!(time));
    poll_fn(|cx| {
        if let Poll::Ready(happened) = event.as_mut().poll(cx) {
            return Poll::Ready(Ok(happened));
        }
        time.as_mut().poll(cx).map(Err)
    })
    .await
}

/// Work in progress, which a virtual clock counts; a real clock ignores it.
///
/// A virtual clock advances automatically only when no work is in progress.
#[derive(Default)]
pub struct Busy(Option<Arc<dyn CountBusy>>);

impl Busy {
    /// Work that is not counted.
    pub const fn uncounted() -> Self {
        Self(None)
    }

    /// Work that `counter` counts until the value is dropped.
    pub fn counted(counter: Arc<dyn CountBusy>) -> Self {
        counter.began();
        Self(Some(counter))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(counter) = self.0.take() {
            counter.ended();
        }
    }
}

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Busy(counted)" } else { "Busy(uncounted)" })
    }
}

/// Counts work in progress, for a virtual clock.
pub trait CountBusy: Send + Sync {
    /// One more piece of work began.
    fn began(&self);
    /// One piece of work ended.
    fn ended(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (4_102_444_799_999_999, "2099-12-31T23:59:59.999999Z"),
            (-1, "1969-12-31T23:59:59.999999Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
        }
    }

    #[test]
    fn moments_saturate_instead_of_wrapping() {
        assert_eq!(Timestamp::from_micros(1).plus(Duration::MAX), Timestamp::NEVER);
        assert_eq!(Timestamp::from_micros(1).since(Timestamp::NEVER), Duration::ZERO);
    }
}
