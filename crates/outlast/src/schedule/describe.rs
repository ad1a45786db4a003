//! Rules in words, and their next instants.

use std::time::Duration;

use outlast_core::Timestamp;
use outlast_core::duration::duration_text;
use outlast_core::limits::SCHEDULE_NEXT_MAX;

use super::cron::{check_cron, check_timezone, cron_in_words, local_minute};
use super::instants::Instants;
use super::rule::ScheduleTiming;
use crate::error::Error;

impl ScheduleTiming {
    /// Checks the expression and the time zone.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the remedy.
    pub fn check(&self) -> Result<(), Error> {
        match self {
            Self::Cron { expression, timezone } => {
                check_cron(expression).and_then(|()| check_timezone(timezone)).map_err(Error::invalid)
            }
            Self::Every { micros } => {
                super::check_interval(Duration::from_micros(*micros)).map_err(Error::invalid)
            }
        }
    }

    /// Says in words when it fires.
    ///
    /// ```
    /// use outlast::ScheduleTiming;
    ///
    /// let timing = ScheduleTiming::Cron { expression: "0 3 * * *".into(), timezone: "Europe/Berlin".into() };
    /// assert_eq!(timing.in_words()?, "At 03:00, Europe/Berlin");
    /// assert_eq!(ScheduleTiming::Every { micros: 30_000_000 }.in_words()?, "Every 30s");
    /// # Ok::<(), outlast::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn in_words(&self) -> Result<String, Error> {
        self.check()?;
        match self {
            Self::Cron { expression, timezone } => {
                let words = cron_in_words(expression).map_err(Error::invalid)?;
                Ok(format!("{words}, {timezone}"))
            }
            Self::Every { micros } => Ok(format!("Every {}", duration_text(Duration::from_micros(*micros)))),
        }
    }

    /// Returns an instant in the time zone of the rule, to the minute; `None` for an interval, which has no time zone.
    ///
    /// ```
    /// use outlast::{ScheduleTiming, Timestamp};
    ///
    /// let timing = ScheduleTiming::Cron { expression: "0 3 * * *".into(), timezone: "Europe/Berlin".into() };
    /// let instant = timing.next_instants(Timestamp::from_micros(0), 1)?[0];
    /// assert_eq!(timing.local_minute(instant).as_deref(), Some("1970-01-01 03:00"));
    /// # Ok::<(), outlast::Error>(())
    /// ```
    pub fn local_minute(&self, instant: Timestamp) -> Option<String> {
        match self {
            Self::Cron { timezone, .. } => local_minute(timezone, instant).ok(),
            Self::Every { .. } => None,
        }
    }

    /// Returns the first instants later than `after`, at most 1,000. Intervals are counted from `after`.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn next_instants(&self, after: Timestamp, count: usize) -> Result<Vec<Timestamp>, Error> {
        self.check()?;
        let instants = Instants::new(self, after).map_err(Error::invalid)?;
        Ok(instants.following(after).take(count.min(SCHEDULE_NEXT_MAX)).collect())
    }
}
