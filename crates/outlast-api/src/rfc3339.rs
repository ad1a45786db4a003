//! Times as text.

use std::fmt;
use std::str::FromStr;

use outlast_core::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last time that RFC 3339 can write: the end of the year 9999.
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// A time, written as RFC 3339 in UTC with microseconds: `2026-11-18T04:26:31.123456Z`.
///
/// Other offsets and precisions can be read. A time after the year 9999 is written as the end of that year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rfc3339(pub Timestamp);

impl From<Timestamp> for Rfc3339 {
    fn from(time: Timestamp) -> Self {
        Self(time)
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros().clamp(i64::MIN, LAST_MICROS);
        fmt::Display::fmt(&Timestamp::from_micros(micros), f)
    }
}

impl FromStr for Rfc3339 {
    type Err = InvalidTime;

    fn from_str(text: &str) -> Result<Self, InvalidTime> {
        parse(text).map(|micros| Self(Timestamp::from_micros(micros))).ok_or_else(|| InvalidTime(text.into()))
    }
}

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rfc3339 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is not a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time; write it as RFC 3339, such as 2026-11-18T04:26:31Z")]
pub struct InvalidTime(String);

/// The microseconds since 1970 of a text of RFC 3339.
fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    let fits = bytes.len() >= 20
        && text.is_ascii()
        && separators.iter().all(|(at, separator)| bytes[*at] == *separator)
        && matches!(bytes[10], b'T' | b't' | b' ');
    if !fits {
        return None;
    }
    let (year, month, day) = (number(&text[..4])?, number(&text[5..7])?, number(&text[8..10])?);
    let (hour, minute, second) = (number(&text[11..13])?, number(&text[14..16])?, number(&text[17..19])?);
    if !(1..=12).contains(&month) || !(1..=days_of(year, month)).contains(&day) {
        return None;
    }
    // A leap second is the first of the next minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (micros, rest) = fraction(&text[19..])?;
    let seconds =
        days_before(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset(rest)?;
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// A number of ASCII digits only.
fn number(digits: &str) -> Option<i64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// The microseconds of a fraction, and the text behind it. Further digits are ignored.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = digits.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = digits.split_at(length);
    let first: String = digits.chars().chain("000000".chars()).take(6).collect();
    (length > 0).then(|| number(&first)).flatten().map(|micros| (micros, rest))
}

/// The seconds that an offset is ahead of UTC.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let is_valid = hours.len() == 2 && minutes.len() == 2;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (is_valid && hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The days from 1970-01-01 to a date.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    // Count in years that begin on 1 March, so that the leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_time_reads_back() {
        for micros in
            [0, -1, 951_782_400_000_000, 4_102_444_799_999_999, -62_135_596_800_000_000, LAST_MICROS]
        {
            let time = Rfc3339(Timestamp::from_micros(micros));
            assert_eq!(time.to_string().parse(), Ok(time), "{time}");
        }
    }

    #[test]
    fn other_offsets_and_precisions_are_the_same_time() {
        let read = |text: &str| text.parse::<Rfc3339>().map(|time| time.0.as_micros());
        assert_eq!(read("1970-01-01T01:30:00+01:30"), Ok(0));
        assert_eq!(read("1969-12-31T16:00:00.5-08:00"), Ok(500_000));
        assert_eq!(read("1970-01-01 00:00:00.123456789z"), Ok(123_456));
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for text in [
            "",
            "now",
            "2026-11-18",
            "2026-11-18T04:26:31",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00+1:00",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00Zé",
        ] {
            assert!(text.parse::<Rfc3339>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_that_never_comes_is_the_end_of_the_year_9999() {
        assert_eq!(Rfc3339(Timestamp::NEVER).to_string(), "9999-12-31T23:59:59.999999Z");
    }
}
