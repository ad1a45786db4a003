//! Durations in attributes: `"30s"`, `"1h30m"`. The same text that the SDK reads at run time.

use std::time::Duration;

use proc_macro2::{Literal, TokenStream};
use quote::quote;

/// The units and how many microseconds each has.
const UNITS: [(&str, u64); 7] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
    ("w", 604_800_000_000),
];

/// The duration in `text`; `None` when it is invalid.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut micros = 0_u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..digits + letters];
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
        micros = micros.checked_add(number.checked_mul(*scale)?)?;
        rest = &rest[digits + letters..];
    }
    Some(Duration::from_micros(micros))
}

/// The expression for `duration`, in the largest unit that represents it exactly.
pub(crate) fn tokens(duration: Duration) -> TokenStream {
    let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let number = Literal::u64_unsuffixed;
    if micros.is_multiple_of(1_000_000) {
        let seconds = number(micros / 1_000_000);
        quote!(::core::time::Duration::from_secs(#seconds))
    } else if micros.is_multiple_of(1_000) {
        let millis = number(micros / 1_000);
        quote!(::core::time::Duration::from_millis(#millis))
    } else {
        let micros = number(micros);
        quote!(::core::time::Duration::from_micros(#micros))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_with_all_units() {
        for (text, micros) in [
            ("7us", 7),
            ("5ms", 5_000),
            ("30s", 30_000_000),
            ("1h30m", 5_400_000_000),
            ("3d", 259_200_000_000),
            ("2w", 1_209_600_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in ["", "5", "s", "1 h", "-1s", "1.5h", "99999999999999999999d", "999999999999w", "1h½"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn attributes_parse_the_same_durations_as_the_engine() {
        use outlast_core::IntoDuration;
        let numbers =
            ["", "0", "1", "007", "90", "18446744073709551615", "18446744073709551616", "-1", "1.5", "½"];
        let units = ["", "us", "ms", "s", "m", "h", "d", "w", "S", "ns", "mins", " s", "µs", "y"];
        let parts = || numbers.iter().flat_map(|number| units.map(|unit| format!("{number}{unit}")));
        for text in
            parts().chain(parts().flat_map(|first| parts().map(move |second| first.clone() + &second)))
        {
            let expected = text.as_str().into_duration().ok();
            assert_eq!(parse(&text), expected, "{text}");
        }
    }

    #[test]
    fn a_duration_is_written_in_the_largest_exact_unit() {
        let written = |text| tokens(parse(text).unwrap()).to_string().replace(' ', "");
        assert_eq!(written("1h30m"), "::core::time::Duration::from_secs(5400)");
        assert_eq!(written("1s200ms"), "::core::time::Duration::from_millis(1200)");
        assert_eq!(written("7us"), "::core::time::Duration::from_micros(7)");
    }
}
