//! Times and durations for people.

use std::time::Duration;

use jiff::tz::TimeZone;
use outlast::{IntoDuration, Timestamp};
use outlast_api::Rfc3339;

/// A duration with its two largest units: `3 m 2 s`, `12.4 s`, `85 ms`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 if duration.as_millis() == 0 => "0 ms".into(),
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3_600 => two(seconds, 60, "m", 1, "s"),
        3_600..86_400 => two(seconds, 3_600, "h", 60, "m"),
        _ => two(seconds, 86_400, "d", 3_600, "h"),
    }
}

fn two(seconds: u64, large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    let (first, rest) = (seconds / large, seconds % large / small);
    if rest == 0 {
        format!("{first} {large_unit}")
    } else {
        format!("{first} {large_unit} {rest} {small_unit}")
    }
}

/// How long ago a time was, with one unit: `3 min`, `now`, or `in 8 s`.
pub(crate) fn age(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        return format!("in {}", rough(at.since(now)));
    }
    let age = now.since(at);
    if age.as_secs() == 0 { "now".into() } else { rough(age) }
}

/// As [`age`], in a sentence: `3 min ago`.
pub(crate) fn ago(now: Timestamp, at: Timestamp) -> String {
    let age = age(now, at);
    if age == "now" || age.starts_with("in ") { age } else { format!("{age} ago") }
}

fn rough(duration: Duration) -> String {
    // Rounded up: a timer that is due in 7.9 s is due in 8 s.
    let seconds = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    match seconds {
        0..60 => format!("{} s", seconds.max(1)),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A sentence of the engine with its times in a zone, and its durations as others are shown: `1d2h` becomes `1 d 2 h`.
pub(crate) fn in_sentence(zone: &Zone, text: &str) -> String {
    // What follows the first line is a table.
    let (sentence, rest) = text.split_at(text.find('\n').unwrap_or(text.len()));
    let word_of = |word: &str| {
        let opened = word.trim_start_matches('(');
        let plain = opened.trim_end_matches([',', '.', ':', ';', ')']);
        let shown = match plain.parse::<Rfc3339>() {
            Ok(time) => Some(zone.second(time.0)),
            Err(_) => two_units(plain),
        };
        let (begin, end) = (&word[..word.len() - opened.len()], &opened[plain.len()..]);
        shown.map_or_else(|| word.to_owned(), |shown| format!("{begin}{shown}{end}"))
    };
    let words: Vec<_> = sentence.split(' ').map(word_of).collect();
    words.join(" ") + rest
}

/// A duration such as `1d2h1m`; `None` if it is something else.
fn two_units(word: &str) -> Option<String> {
    let has_two_units = word.chars().filter(char::is_ascii_alphabetic).count() > 1;
    let is_duration =
        has_two_units && word.starts_with(|first: char| first.is_ascii_digit()) && !word.contains("ms");
    word.into_duration().ok().filter(|_| is_duration).map(duration)
}

/// The zone in which times are shown.
#[derive(Clone, Debug)]
pub(crate) struct Zone(TimeZone);

impl Zone {
    /// UTC.
    pub(crate) fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone of this machine, or UTC if it is not known.
    pub(crate) fn local() -> Self {
        Self(TimeZone::try_system().unwrap_or(TimeZone::UTC))
    }

    /// A zone by its IANA name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().map(Self)
    }

    /// A time without seconds, with the day of the week: `Fri 2026-11-13 04:26`.
    pub(crate) fn minute(&self, at: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(at.as_micros()) {
            Ok(time) if at.as_micros() % 60_000_000 == 0 => {
                time.to_zoned(self.0.clone()).strftime("%a %Y-%m-%d %H:%M").to_string()
            }
            Ok(time) => time.to_zoned(self.0.clone()).strftime("%a %Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => at.to_string(),
        }
    }

    /// A time with seconds: `2026-11-18 04:26:31`.
    fn second(&self, at: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(at.as_micros()) {
            Ok(time) => time.to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
            Err(_) => at.to_string(),
        }
    }

    /// A time with milliseconds: `2026-11-18 04:26:31.123`.
    pub(crate) fn precise(&self, at: Timestamp) -> String {
        match jiff::Timestamp::from_microsecond(at.as_micros()) {
            Ok(time) => time.to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
            Err(_) => at.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let of = |millis| duration(Duration::from_millis(millis));
        assert_eq!(of(0), "0 ms");
        assert_eq!(of(85), "85 ms");
        assert_eq!(of(12_400), "12.4 s");
        assert_eq!(of(182_000), "3 m 2 s");
        assert_eq!(of(3_600_000), "1 h");
        assert_eq!(of(86_400_000 * 3 + 3_600_000 * 4), "3 d 4 h");
    }

    #[test]
    fn sentences_have_times_of_the_zone_and_durations_with_two_units() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let text = "It failed at 2026-11-18T13:37:56Z (1d2h1m ago), step `s1d2h`: v2 after 90s.\n  2026-11-18T13:37:56Z";
        assert_eq!(
            in_sentence(&zone, text),
            "It failed at 2026-11-18 14:37:56 (1 d 2 h ago), step `s1d2h`: v2 after 90s.\n  2026-11-18T13:37:56Z"
        );
    }

    #[test]
    fn ages_have_one_unit() {
        let now = Timestamp::from_micros(1_000_000_000_000);
        let before = |seconds| ago(now, now.minus(Duration::from_secs(seconds)));
        assert_eq!(before(0), "now");
        assert_eq!(before(8), "8 s ago");
        assert_eq!(before(182), "3 min ago");
        assert_eq!(before(86_400 * 2), "2 d ago");
        assert_eq!(ago(now, now.plus(Duration::from_millis(7_900))), "in 8 s");
    }

    #[test]
    fn times_are_shown_in_a_zone() {
        let at = Timestamp::from_micros(1_794_543_991_123_456);
        assert_eq!(Zone::utc().precise(at), "2026-11-13 04:26:31.123");
    }
}
