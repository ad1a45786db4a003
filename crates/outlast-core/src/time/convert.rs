//! Conversions between [`Timestamp`] and the types of other libraries.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Timestamp;

impl From<SystemTime> for Timestamp {
    /// The same moment, cut to microseconds; the earliest or latest moment when it is out of range.
    fn from(time: SystemTime) -> Self {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::from_micros(micros(after)),
            Err(error) => Self::from_micros(-micros(error.duration())),
        }
    }
}

impl TryFrom<Timestamp> for SystemTime {
    type Error = TimestampOutOfRange;

    fn try_from(moment: Timestamp) -> Result<Self, Self::Error> {
        let micros = moment.as_micros();
        let distance = Duration::from_micros(micros.unsigned_abs());
        let time =
            if micros < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        time.ok_or(TimestampOutOfRange(moment))
    }
}

#[cfg(feature = "jiff")]
impl From<jiff::Timestamp> for Timestamp {
    fn from(time: jiff::Timestamp) -> Self {
        Self::from_micros(time.as_microsecond())
    }
}

#[cfg(feature = "jiff")]
impl TryFrom<Timestamp> for jiff::Timestamp {
    type Error = TimestampOutOfRange;

    fn try_from(moment: Timestamp) -> Result<Self, Self::Error> {
        Self::from_microsecond(moment.as_micros()).map_err(|_| TimestampOutOfRange(moment))
    }
}

#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> From<chrono::DateTime<Tz>> for Timestamp {
    fn from(time: chrono::DateTime<Tz>) -> Self {
        Self::from_micros(time.timestamp_micros())
    }
}

#[cfg(feature = "chrono")]
impl TryFrom<Timestamp> for chrono::DateTime<chrono::Utc> {
    type Error = TimestampOutOfRange;

    fn try_from(moment: Timestamp) -> Result<Self, Self::Error> {
        Self::from_timestamp_micros(moment.as_micros()).ok_or(TimestampOutOfRange(moment))
    }
}

/// A moment that another type of time cannot express, such as [`Timestamp::NEVER`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the moment {} microseconds after 1970 is outside of the range of the other type", .0.as_micros())]
pub struct TimestampOutOfRange(Timestamp);

#[cfg(test)]
mod tests {
    use super::*;

    /// Before, at and after the epoch, and a moment with microseconds.
    const MOMENTS: [Timestamp; 4] = [
        Timestamp::from_micros(-1),
        Timestamp::from_micros(0),
        Timestamp::from_micros(951_782_400_000_001),
        Timestamp::from_micros(-62_135_596_800_000_000),
    ];

    #[test]
    fn a_system_time_is_the_same_moment() {
        for moment in MOMENTS {
            assert_eq!(Timestamp::from(SystemTime::try_from(moment).unwrap()), moment);
        }
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_secs(1)), Timestamp::from_micros(1_000_000));
    }

    #[cfg(feature = "jiff")]
    #[test]
    fn a_timestamp_of_jiff_is_the_same_moment() {
        for moment in MOMENTS {
            assert_eq!(Timestamp::from(jiff::Timestamp::try_from(moment).unwrap()), moment);
        }
        assert_eq!(jiff::Timestamp::try_from(Timestamp::NEVER), Err(TimestampOutOfRange(Timestamp::NEVER)));
    }

    #[cfg(feature = "chrono")]
    #[test]
    fn a_date_of_chrono_is_the_same_moment() {
        for moment in MOMENTS {
            assert_eq!(Timestamp::from(chrono::DateTime::try_from(moment).unwrap()), moment);
        }
        assert_eq!(chrono::DateTime::try_from(Timestamp::NEVER), Err(TimestampOutOfRange(Timestamp::NEVER)));
    }
}
