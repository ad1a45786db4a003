//! Step keys that are the same in every run: `#[step(unique = "…")]`.

use std::fmt::Write;

use outlast_core::limits::{KEY_BYTES_MAX, STEP_KEY_BYTES_MAX};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::authoring::step::StepDefinition;
use crate::error::StepError;

/// The key of a step for these values, which are a tuple. Used by the macros.
#[doc(hidden)]
pub fn unique_key<D: StepDefinition>(values: &impl Serialize) -> Result<Option<String>, StepError> {
    // The oldest name, so that external systems still recognise the keys of a renamed step.
    let name = D::WAS.last().unwrap_or(&D::NAME);
    let values = serde_json::to_value(values).map_err(|error| {
        StepError::fatal(format!(
            "the values of the key of step `{}` cannot be serialized as JSON: {error}",
            D::NAME
        ))
    })?;
    Ok(Some(key(name, &values)))
}

fn key(name: &str, values: &Value) -> String {
    let mut key = format!("{name}:");
    write_canonical(values, &mut key);
    if key.len() <= STEP_KEY_BYTES_MAX {
        return key;
    }
    format!("{name}:sha256:{}", sha256(&key[name.len() + 1..]))
}

/// The key of a run that a step with this key starts.
pub(crate) fn start_key(step_key: &str, workflow: &str) -> String {
    let key = format!("{step_key}:{workflow}");
    if key.len() <= KEY_BYTES_MAX { key } else { format!("sha256:{}", sha256(&key)) }
}

/// The SHA-256 of a text, as hexadecimal digits.
fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}"); // writing to a `String` does not fail
        digits
    })
}

/// Writes JSON without spaces, with the members of objects sorted by the bytes of their names, so that the key does not
/// depend on the order of members in a type or map.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(elements) => {
            text.push('[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(element, text);
            }
            text.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| name.as_bytes());
            text.push('{');
            for (index, (name, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(&Value::String(name.clone()), text);
                text.push(':');
                write_canonical(member, text);
            }
            text.push('}');
        }
        leaf => {
            let _ = write!(text, "{leaf}");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_form_of_a_key_is_frozen() {
        assert_eq!(key("charge", &json!([42, "pay"])), r#"charge:[42,"pay"]"#);
        assert_eq!(
            key("charge", &json!([{ "b": null, "a": [1.5, true], "ä\"": {} }])),
            r#"charge:[{"a":[1.5,true],"b":null,"ä\"":{}}]"#
        );
        assert_eq!(
            key("charge", &json!(["x".repeat(300)])),
            "charge:sha256:4bea428154f2f50757761cd9f0789eb7c1ee4408d4aaab5bf801dddcf23ea13e"
        );
    }

    #[test]
    fn the_key_of_a_started_run_fits() {
        assert_eq!(start_key("charge:[42]", "ship"), "charge:[42]:ship");
        let long = |workflow| start_key(&"k".repeat(STEP_KEY_BYTES_MAX), workflow);
        assert!(long("ship").len() <= KEY_BYTES_MAX && long("ship") != long("pay"));
    }

    #[test]
    fn a_long_key_is_short_and_its_own() {
        let long = |letter: &str| key(&"n".repeat(128), &json!([letter.repeat(4096)]));
        assert!(long("a").len() <= STEP_KEY_BYTES_MAX, "{}", long("a").len());
        assert_ne!(long("a"), long("b"));
        let fits = key("n", &json!(["x".repeat(STEP_KEY_BYTES_MAX - 6)]));
        assert_eq!((fits.len(), fits.contains("sha256")), (STEP_KEY_BYTES_MAX, false));
    }
}
