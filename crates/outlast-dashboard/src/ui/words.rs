//! Durations, times and numbers as text for people.

use std::time::Duration;

use outlast_core::{RunId, Timestamp};

/// A duration with two units at most: `820 ms`, `12.4 s`, `3 m 2 s`, `2 d 4 h`.
pub(crate) fn duration(time: Duration) -> String {
    let (millis, seconds) = (time.as_millis(), time.as_secs());
    match seconds {
        0 if millis == 0 && !time.is_zero() => "<1 ms".into(),
        0 => format!("{millis} ms"),
        1..60 if millis % 1_000 < 100 => format!("{seconds} s"),
        1..60 => format!("{seconds}.{} s", millis % 1_000 / 100),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// A duration with one unit: `3 min`, for columns of a table.
pub(crate) fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3_600 => format!("{} min", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A duration in one unit, rounded, as short as possible: `3m`, for labels on an axis.
pub(crate) fn brief(time: Duration) -> String {
    let (size, unit) = match time.as_secs() {
        0..60 => (1.0, "s"),
        60..3_600 => (60.0, "m"),
        3_600..86_400 => (3_600.0, "h"),
        _ => (86_400.0, "d"),
    };
    format!("{}{unit}", (time.as_secs_f64() / size).round())
}

fn two(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    }
}

/// A time relative to now: `3 min ago`, `in 8 s`.
pub(crate) fn relative(time: Timestamp, now: Timestamp) -> String {
    let distance = time.since(now).max(now.since(time));
    match time > now {
        _ if distance < Duration::from_secs(1) => "now".into(),
        true => format!("in {}", rough(distance)),
        false => format!("{} ago", rough(distance)),
    }
}

/// A number with separators: `4,322`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and what is counted: `1 run`, `3 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", count(number), if number == 1 { "" } else { "s" })
}

/// The end of a run id. Ids are ordered by time, so new runs differ in their last characters only; the last four of a
/// child are the number of its operation.
pub(crate) fn short(run: RunId) -> String {
    let id = run.to_string();
    format!("…{}", id.get(id.len().saturating_sub(8)..).unwrap_or(&id))
}

/// The first part of a text, for one line.
pub(crate) fn clipped(text: &str, characters: usize) -> String {
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let text = |millis| duration(Duration::from_millis(millis));
        let texts = [0, 820, 1_000, 12_460, 182_000, 3_600_000, 187_200_000].map(text);
        assert_eq!(texts, ["0 ms", "820 ms", "1 s", "12.4 s", "3 m 2 s", "1 h", "2 d 4 h"]);
        assert_eq!(duration(Duration::from_micros(3)), "<1 ms");
    }

    #[test]
    fn labels_are_rounded() {
        let hours = |hours: u64| brief(Duration::from_secs(hours * 3_600));
        assert_eq!([1, 23, 47, 69, 72].map(hours), ["1h", "23h", "2d", "3d", "3d"]);
        assert_eq!(brief(Duration::from_millis(2_600)), "3s");
    }

    #[test]
    fn numbers_have_separators() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(counted(1, "run"), "1 run");
    }

    #[test]
    fn a_clipped_text_ends_between_characters() {
        assert_eq!(clipped("größe", 3), "grö…");
        assert_eq!(clipped("one\ntwo", 10), "one");
    }
}
