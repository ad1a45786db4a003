//! Durations as text, such as `"90s"`, `"1h30m"` and `"3d"`, or as [`Duration`].

use std::time::Duration;

const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

/// A duration: a [`Duration`], or text such as `"1h30m"`.
pub trait IntoDuration {
    /// Converts it into a duration.
    ///
    /// # Errors
    ///
    /// [`InvalidDuration`] when a text is not a duration.
    fn into_duration(self) -> Result<Duration, InvalidDuration>;
}

impl IntoDuration for Duration {
    fn into_duration(self) -> Result<Duration, InvalidDuration> {
        Ok(self)
    }
}

impl IntoDuration for &str {
    fn into_duration(self) -> Result<Duration, InvalidDuration> {
        parse(self).ok_or_else(|| InvalidDuration { text: self.into() })
    }
}

impl IntoDuration for &String {
    fn into_duration(self) -> Result<Duration, InvalidDuration> {
        self.as_str().into_duration()
    }
}

impl IntoDuration for String {
    fn into_duration(self) -> Result<Duration, InvalidDuration> {
        self.as_str().into_duration()
    }
}

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`"
)]
pub struct InvalidDuration {
    text: String,
}

/// The duration of a text, for constants: an invalid text in a constant does not compile.
///
/// ```
/// use std::time::Duration;
/// use outlast_core::duration::duration;
///
/// const PATIENCE: Duration = duration("1h30m");
/// assert_eq!(PATIENCE, Duration::from_secs(5_400));
/// ```
///
/// # Panics
///
/// When the text is not a duration.
#[track_caller]
pub const fn duration(text: &str) -> Duration {
    match parse(text) {
        Some(duration) => duration,
        None => panic!(
            "not a duration; write numbers with units us, ms, s, m, h, d or w, such as `30s` or `1h30m`"
        ),
    }
}

const fn parse(text: &str) -> Option<Duration> {
    let text = text.as_bytes();
    if text.is_empty() {
        return None;
    }
    let (mut at, mut micros) = (0, 0_u64);
    while at < text.len() {
        let begin = at;
        let mut number = 0_u64;
        while at < text.len() && text[at].is_ascii_digit() {
            let Some(tens) = number.checked_mul(10) else { return None };
            let Some(sum) = tens.checked_add((text[at] - b'0') as u64) else { return None };
            number = sum;
            at += 1;
        }
        let unit = at;
        while at < text.len() && text[at].is_ascii_alphabetic() {
            at += 1;
        }
        let Some(scale) = scale_of(text, unit, at) else { return None };
        if unit == begin {
            return None;
        }
        let Some(part) = number.checked_mul(scale) else { return None };
        let Some(sum) = micros.checked_add(part) else { return None };
        micros = sum;
    }
    Some(Duration::from_micros(micros))
}

/// The number of microseconds of the unit in the text from `begin` to `end`.
const fn scale_of(text: &[u8], begin: usize, end: usize) -> Option<u64> {
    let mut index = 0;
    while index < UNITS.len() {
        let (name, scale) = UNITS[index];
        let name = name.as_bytes();
        let mut same = 0;
        while same < name.len() && begin + same < end && name[same] == text[begin + same] {
            same += 1;
        }
        if same == name.len() && begin + same == end {
            return Some(scale);
        }
        index += 1;
    }
    None
}

/// The text of a duration, which [`IntoDuration`] can read; the largest unit comes first.
pub fn duration_text(duration: Duration) -> String {
    let mut micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    if micros == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, scale) in UNITS.iter().rev().skip(1) {
        if micros >= *scale {
            text.push_str(&format!("{}{unit}", micros / scale));
            micros %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("3d", 259_200_000),
            ("2w", 1_209_600_000),
            ("0s", 0),
            ("5ms", 5),
        ] {
            assert_eq!(text.into_duration(), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_the_remedy() {
        for text in ["", "5", "s", "1 h", "-1s", "1.5h", "99999999999999999999d", "999999999999w", "1h½"] {
            let error = text.into_duration().unwrap_err();
            assert!(error.to_string().contains("such as `30s`"), "{error}");
        }
    }

    #[test]
    fn a_written_duration_reads_back() {
        for millis in [0, 1, 999, 61_000, 5_400_000, 90_061_001] {
            let duration = Duration::from_millis(millis);
            assert_eq!(duration_text(duration).as_str().into_duration(), Ok(duration));
        }
        assert_eq!(duration_text(Duration::from_secs(5_400)), "1h30m");
    }
}
