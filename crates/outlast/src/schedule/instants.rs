//! The instants of a schedule: all of them, without regard to its begin and end.

use outlast_core::Timestamp;

use super::cron::ZonedCron;
use super::rule::ScheduleTiming;

/// The instants at which a schedule fires.
#[derive(Debug)]
pub(crate) enum Instants {
    Cron(Box<ZonedCron>),
    /// The multiples of an interval before and after this time.
    Every {
        micros: i128,
        anchor: Timestamp,
    },
}

impl Instants {
    /// The instants of a schedule whose intervals are counted from `anchor`.
    ///
    /// # Errors
    ///
    /// The expression or the time zone cannot be read on this machine.
    pub(crate) fn new(timing: &ScheduleTiming, anchor: Timestamp) -> Result<Self, String> {
        match timing {
            ScheduleTiming::Cron { expression, timezone } => {
                Ok(Self::Cron(Box::new(ZonedCron::new(expression, timezone)?)))
            }
            ScheduleTiming::Every { micros } => {
                Ok(Self::Every { micros: i128::from(*micros).max(1), anchor })
            }
        }
    }

    /// The first instant later than `after`.
    pub(crate) fn after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Cron(cron) => cron.after(after),
            Self::Every { micros, anchor } => {
                nth_instant(*anchor, *micros, nth_until(*anchor, *micros, after) + 1)
            }
        }
    }

    /// The instants later than `after`, earliest first.
    pub(crate) fn following(&self, after: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.after(after), |last| self.after(*last))
    }

    /// The instants not later than `until`, latest first.
    pub(crate) fn backwards(&self, until: Timestamp) -> Box<dyn Iterator<Item = Timestamp> + '_> {
        match self {
            Self::Cron(cron) => Box::new(cron.backwards(until)),
            Self::Every { micros, anchor } => {
                let (micros, anchor) = (*micros, *anchor);
                let last = nth_until(anchor, micros, until);
                Box::new((0..).map_while(move |back| nth_instant(anchor, micros, last - back)))
            }
        }
    }
}

/// The number of the last interval that has ended at `until`.
fn nth_until(anchor: Timestamp, micros: i128, until: Timestamp) -> i128 {
    (i128::from(until.as_micros()) - i128::from(anchor.as_micros())).div_euclid(micros)
}

fn nth_instant(anchor: Timestamp, micros: i128, nth: i128) -> Option<Timestamp> {
    let instant = i128::from(anchor.as_micros()) + nth * micros;
    i64::try_from(instant).ok().map(Timestamp::from_micros)
}
