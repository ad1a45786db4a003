//! Why JSON cannot be decoded as a type, without the value itself.
//!
//! Payloads may contain personal data. The reason why a payload cannot be decoded is logged, recorded in histories and
//! shown in views, so it names only the kind of the value, the field and the position. The messages of `serde` quote
//! values (`invalid type: string "secret", expected u64`), and custom messages of a type may contain anything.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::field_path::unreadable_field;

/// The text between the value and the expected type in messages of `serde`.
const EXPECTED: &str = ", expected ";

/// The maximum length of a field name in a message; a longer text is probably data.
const FIELD_CHARS_MAX: usize = 64;

/// Kinds of values after which `serde` quotes the value.
const QUOTED: [&str; 5] = ["boolean", "integer", "floating point", "character", "string"];

/// Kinds of values that `serde` names alone.
const NAMED: [&str; 12] = [
    "byte array",
    "null",
    "unit value",
    "Option value",
    "newtype struct",
    "sequence",
    "map",
    "enum",
    "unit variant",
    "newtype variant",
    "tuple variant",
    "struct variant",
];

/// Why this JSON cannot be decoded as a `T`: the mismatch and its position, without the value.
pub(super) fn reason<T: DeserializeOwned>(error: &serde_json::Error, json: &[u8]) -> String {
    let text = error.to_string();
    if error.classify() != Category::Data {
        // A syntax error: these messages never quote the text.
        return text;
    }
    let position = match error.line() {
        0 => String::new(),
        line => format!(" at line {line} column {}", error.column()),
    };
    let what = without_value(text.strip_suffix(&position).unwrap_or(&text));
    let field = unreadable_field::<T>(json).map(|field| format!(" in field `{field}`"));
    format!("{what}{}{position}", field.unwrap_or_default())
}

fn without_value(message: &str) -> String {
    let known = known_parts(message);
    known.unwrap_or_else(|| "the type refuses the value".to_owned())
}

/// The parts of a message of `serde` that come from code; `None` for a message of another form.
fn known_parts(message: &str) -> Option<String> {
    for problem in ["invalid type", "invalid value"] {
        if let Some((value, expected)) = after(message, problem, ": ") {
            return Some(format!("{problem}: {}{EXPECTED}{expected}", kind_of(value)));
        }
    }
    if let Some((_, expected)) = after(message, "unknown variant", " ") {
        return Some(format!("unknown variant{EXPECTED}{expected}"));
    }
    if let Some((field, expected)) = after(message, "unknown field", " ") {
        let field = if is_name(field) { format!(" {field}") } else { String::new() };
        return Some(format!("unknown field{field}{EXPECTED}{expected}"));
    }
    if let Some((length, _)) = after(message, "invalid length", " ") {
        return length.bytes().all(|byte| byte.is_ascii_digit()).then(|| message.to_owned());
    }
    for problem in ["missing field ", "duplicate field "] {
        if let Some(field) = message.strip_prefix(problem) {
            return is_name(field).then(|| message.to_owned());
        }
    }
    message.starts_with("data did not match any variant of untagged enum ").then(|| message.to_owned())
}

/// The value in a message about this problem, and the expected type. The value may contain anything, so the last
/// `expected` separates the two.
fn after<'a>(message: &'a str, problem: &str, joint: &str) -> Option<(&'a str, &'a str)> {
    message.strip_prefix(problem)?.strip_prefix(joint)?.rsplit_once(EXPECTED)
}

fn kind_of(value: &str) -> &'static str {
    let is_quoted =
        |kind: &str| value.strip_prefix(kind).is_some_and(|rest| rest.starts_with([' ', '`', '"']));
    let named = NAMED.into_iter().find(|kind| value == *kind);
    named.or_else(|| QUOTED.into_iter().find(|kind| is_quoted(kind))).unwrap_or("another value")
}

/// Whether this is a field name in backticks, and not other text of a sender.
fn is_name(quoted: &str) -> bool {
    let name = quoted.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    let is_part = |character: char| character.is_alphanumeric() || ['_', '-'].contains(&character);
    name.is_some_and(|name| name.chars().count() <= FIELD_CHARS_MAX && name.chars().all(is_part))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer};

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Order {
        id: u32,
        mail: Option<Mail>,
    }

    #[derive(Debug)]
    struct Mail;

    impl<'de> Deserialize<'de> for Mail {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = String::deserialize(deserializer)?;
            Err(D::Error::custom(format!("no mail address: {text}")))
        }
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    enum Size {
        Small,
        Large(u32),
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only read")]
    enum Loose {
        Number(u32),
        Order(Order),
    }

    fn why<T: DeserializeOwned + std::fmt::Debug>(json: &str) -> String {
        let reason = reason::<T>(&serde_json::from_str::<T>(json).unwrap_err(), json.as_bytes());
        assert!(!reason.contains("secret") && !reason.contains("4711"), "{json}: {reason}");
        reason
    }

    #[test]
    fn a_reason_names_kind_field_and_position_but_not_the_value() {
        let parts = [
            (why::<u64>(r#""secret""#), "invalid type: string, expected u64 at line 1 column 8"),
            (why::<String>("4711"), "invalid type: integer, expected a string at line 1 column 4"),
            (why::<String>("4711.5"), "invalid type: floating point, expected a string at line 1 column 6"),
            (why::<String>("true"), "invalid type: boolean, expected a string at line 1 column 4"),
            (why::<String>("null"), "invalid type: null, expected a string at line 1 column 4"),
            (why::<u8>("4711"), "invalid value: integer, expected u8 at line 1 column 4"),
            (why::<char>(r#""secret""#), "invalid value: string, expected a character at line 1 column 8"),
            (why::<u64>(r#"["secret"]"#), "invalid type: sequence, expected u64 at line 1 column 0"),
            (why::<u64>(r#"{"secret":1}"#), "invalid type: map, expected u64 at line 1 column 0"),
            (
                why::<u64>(r#""secret, expected the secret \" of all""#),
                "invalid type: string, expected u64 at line 1 column 39",
            ),
            (
                why::<BTreeMap<u32, u32>>(r#"{"secret":1}"#),
                "invalid value: expected key to be a number in quotes at line 1 column 2",
            ),
            (why::<(u32, u32)>("[4711]"), "invalid length 1, expected a tuple of size 2 at line 1 column 6"),
            (why::<Size>(r#""secret""#), "unknown variant, expected `Small` or `Large` at line 1 column 8"),
            (why::<Order>("{}"), "missing field `id` at line 1 column 2"),
            (why::<Order>(r#"{"id":4711,"id":1}"#), "duplicate field `id` at line 1 column 15"),
            (
                why::<Order>(r#"{"total":1}"#),
                "unknown field `total`, expected `id` or `mail` at line 1 column 8",
            ),
            (why::<Order>(r#"{"a secret":1}"#), "unknown field, expected `id` or `mail` at line 1 column 11"),
            (
                why::<Order>(r#"{"id":1,"mail":"secret"}"#),
                "the type refuses the value in field `mail` at line 1 column 24",
            ),
            (why::<Loose>(r#""secret""#), "data did not match any variant of untagged enum Loose"),
            (why::<u64>("secret"), "expected value at line 1 column 1"),
        ];
        let (found, expected): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_fits_is_read() {
        assert!(serde_json::from_str::<Size>(r#"{"Large":3}"#).is_ok());
        assert!(serde_json::from_str::<Size>(r#""Small""#).is_ok());
    }
}
