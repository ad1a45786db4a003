//! Cron expressions and time zones.
//!
//! An expression matches *local* times. They are found without a time zone, and then converted: a local time that does
//! not exist, because clocks go forward, is the next valid instant; of one that exists twice, because clocks go back,
//! it is the first. This conversion is monotonic, so the order of local times is that of instants.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::ToSpan;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use outlast_core::Timestamp;
use outlast_core::limits::{CRON_BYTES_MAX, NAME_BYTES_MAX};

/// Local times further ahead than any change of clocks that are examined in a search backwards.
const CLOCK_CHANGE_HOURS_MAX: i64 = 25;

/// Checks a cron expression.
///
/// # Errors
///
/// The problem and the remedy.
pub(crate) fn check_cron(expression: &str) -> Result<(), String> {
    let cron = parse(expression)?;
    let begin = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
    cron.find_next_occurrence(&begin, true)
        .map(drop)
        .map_err(|_| format!("the cron expression `{expression}` matches no time; check its day and month"))
}

/// Checks the name of a time zone.
///
/// # Errors
///
/// The problem and the remedy.
pub(crate) fn check_timezone(name: &str) -> Result<(), String> {
    timezone(name).map(drop)
}

/// The times that match a cron expression, in words.
///
/// # Errors
///
/// The expression cannot be read.
pub(crate) fn cron_in_words(expression: &str) -> Result<String, String> {
    let words = parse(expression)?.describe();
    Ok(with_day_ranges(words.trim_end_matches('.')))
}

/// The days of the week, in the order of descriptions.
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Replaces a list of at least three days that follow each other: "Monday to Friday".
fn with_day_ranges(words: &str) -> String {
    for count in (3..=DAYS.len()).rev() {
        for days in DAYS.windows(count) {
            let (first, last) = (days[0], days[count - 1]);
            let list = format!("on {}, and {last}", days[..count - 1].join(", "));
            if words.contains(&list) {
                return words.replace(&list, &format!("on {first} to {last}"));
            }
        }
    }
    words.to_owned()
}

/// The local time of an instant, to the minute.
///
/// # Errors
///
/// The time zone does not exist, or the instant is too far away.
pub(crate) fn local_minute(zone: &str, instant: Timestamp) -> Result<String, String> {
    let timestamp =
        jiff::Timestamp::from_microsecond(instant.as_micros()).map_err(|error| error.to_string())?;
    Ok(timestamp.to_zoned(timezone(zone)?).strftime("%Y-%m-%d %H:%M").to_string())
}

fn parse(expression: &str) -> Result<Cron, String> {
    if expression.len() > CRON_BYTES_MAX {
        let bytes = expression.len();
        return Err(format!(
            "the cron expression has {bytes} bytes, the limit is {CRON_BYTES_MAX}; use several schedules"
        ));
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(expression).map_err(|error| {
        format!(
            "`{expression}` is not a cron expression: {error}; write five fields: minute, hour, day of month, month and \
             day of week, such as `0 3 * * MON-FRI`, or `@daily`"
        )
    })
}

fn timezone(name: &str) -> Result<TimeZone, String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name of the time zone is longer than {NAME_BYTES_MAX} bytes; shorten it"));
    }
    TimeZone::get(name).map_err(|_| {
        format!("there is no time zone `{name}`; use a name of the IANA database, such as `Europe/Berlin`")
    })
}

/// A cron expression in a time zone.
#[derive(Debug)]
pub(crate) struct ZonedCron {
    cron: Cron,
    zone: TimeZone,
}

impl ZonedCron {
    pub(super) fn new(expression: &str, zone: &str) -> Result<Self, String> {
        Ok(Self { cron: parse(expression)?, zone: timezone(zone)? })
    }

    /// The first instant later than `after`.
    pub(super) fn after(&self, after: Timestamp) -> Option<Timestamp> {
        let mut local = self.local(after)?;
        loop {
            local = self.cron.find_next_occurrence(&local, false).ok()?;
            // Clocks went back: these local times were instants before.
            if let Some(instant) = self.instant(local).filter(|instant| *instant > after) {
                return Some(instant);
            }
        }
    }

    /// The instants not later than `until`, latest first.
    pub(super) fn backwards(&self, until: Timestamp) -> impl Iterator<Item = Timestamp> {
        let ahead = |local: DateTime| local.checked_add(CLOCK_CHANGE_HOURS_MAX.hours()).ok();
        let mut local = self.local(until).and_then(ahead);
        let mut last = None;
        std::iter::from_fn(move || {
            loop {
                let earlier = self.cron.find_previous_occurrence(&local?, false).ok()?;
                local = Some(earlier);
                let instant = self.instant(earlier)?;
                // Several local times that do not exist are one instant.
                if instant <= until && last != Some(instant) {
                    last = Some(instant);
                    return last;
                }
            }
        })
    }

    /// The local time of an instant, in whole seconds.
    fn local(&self, instant: Timestamp) -> Option<DateTime> {
        let instant = jiff::Timestamp::from_second(instant.as_micros().div_euclid(1_000_000)).ok()?;
        Some(self.zone.to_datetime(instant))
    }

    fn instant(&self, local: DateTime) -> Option<Timestamp> {
        let instant = match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // With the offset from before the change, the local time is not earlier than the change.
                let shifted = before.to_timestamp(local).ok()?.checked_add(1.second()).ok()?;
                self.zone.preceding(shifted).next()?.timestamp()
            }
        };
        Some(Timestamp::from_micros(instant.as_microsecond()))
    }
}
