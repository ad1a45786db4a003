//! JSON inputs of callers that know a workflow only by its name.

use outlast_core::Payload;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;

/// An input of [`Client::start_json`](crate::Client::start_json): a JSON text, or a [`serde_json::Value`].
///
/// A text is stored unchanged, except that spaces between tokens are removed. Numbers keep all their digits.
pub trait IntoJson: sealed::Sealed {
    /// Converts the value to a payload.
    ///
    /// # Errors
    ///
    /// `Invalid` if a text is not JSON, `Limit` if it is too large.
    fn into_json(self) -> Result<Payload, Error>;
}

impl IntoJson for &str {
    fn into_json(self) -> Result<Payload, Error> {
        let not_json = |error| Error::invalid(format!("the input is not JSON: {error}"));
        // Parse the original text first, so that the error names the right line.
        serde_json::from_str::<&RawValue>(self).map_err(not_json)?;
        let raw: Box<RawValue> = RawValue::from_string(without_spaces(self)).map_err(not_json)?;
        Ok(Payload::json(&raw)?)
    }
}

impl IntoJson for String {
    fn into_json(self) -> Result<Payload, Error> {
        self.as_str().into_json()
    }
}

impl IntoJson for &String {
    fn into_json(self) -> Result<Payload, Error> {
        self.as_str().into_json()
    }
}

impl IntoJson for Value {
    fn into_json(self) -> Result<Payload, Error> {
        (&self).into_json()
    }
}

impl IntoJson for &Value {
    fn into_json(self) -> Result<Payload, Error> {
        Ok(Payload::json(self)?)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for String {}
    impl Sealed for &String {}
    impl Sealed for serde_json::Value {}
    impl Sealed for &serde_json::Value {}
}

/// A JSON text without whitespace between tokens, as a typed start writes it, so that both starts have the same digest
/// for a key.
fn without_spaces(json: &str) -> String {
    let (mut in_text, mut escaped) = (false, false);
    let keep = |letter: &char| {
        if in_text {
            match letter {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_text = false,
                _ => {}
            }
            return true;
        }
        in_text = *letter == '"';
        !letter.is_ascii_whitespace()
    };
    json.chars().filter(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(json: impl IntoJson) -> String {
        format!("{:?}", json.into_json().unwrap())
    }

    #[test]
    fn a_text_is_stored_as_it_is_without_spaces_between_its_parts() {
        assert_eq!(
            stored(" { \"b\" : [ 1 , 2.50 ],\n\"a\": \"x  \\\" y\" } "),
            r#"{"b":[1,2.50],"a":"x  \" y"}"#
        );
        assert_eq!(stored("123456789012345678901234567890"), "123456789012345678901234567890");
        assert_eq!(stored(serde_json::json!("text")), r#""text""#);
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for text in ["", "{", "{\"a\":1} x", "tru e", "1 2"] {
            let error = text.into_json().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text}");
            assert!(error.to_string().starts_with("the input is not JSON: "), "{error}");
        }
    }
}
