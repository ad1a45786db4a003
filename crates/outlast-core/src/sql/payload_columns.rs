//! Payloads as columns.

use std::borrow::Cow;

use super::ColumnValue;
use crate::payload::Payload;

/// A payload as two columns. JSON is stored as a text, so that people can read it with SQL; everything else as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadColumns<'a> {
    /// The codec that wrote the bytes; `None` for JSON.
    pub codec: Option<Cow<'a, str>>,
    /// The text or the bytes.
    pub body: ColumnValue<'a>,
}

impl<'a> PayloadColumns<'a> {
    /// The columns of a payload.
    pub fn of(payload: &'a Payload) -> Self {
        let (codec, bytes) = (payload.codec(), &payload.bytes()[..]);
        let text = std::str::from_utf8(bytes).ok().filter(|text| codec.is_none() && !text.contains('\0'));
        let body = match text {
            Some(text) => ColumnValue::Text(text.into()),
            None => ColumnValue::Bytes(bytes.into()),
        };
        Self { codec: codec.map(Into::into), body }
    }

    /// The payload that was stored as these columns.
    pub fn into_payload(self) -> Payload {
        let bytes = self.body.into_bytes();
        match self.codec {
            None => Payload::from_json_text(bytes),
            Some(codec) => Payload::coded(codec.into_owned(), bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_from_its_columns_and_only_json_is_a_text() {
        let cases = [
            (Payload::null(), true),
            (Payload::from_json_text(r#"{"name":"Ada"}"#), true),
            (Payload::from_json_text(&b"\"\0\""[..]), false),
            (Payload::from_json_text(&b"\xff"[..]), false),
            (Payload::coded("aes", &b"text"[..]), false),
            (Payload::coded("aes", &b"\xff\0"[..]), false),
        ];
        for (payload, is_text) in cases {
            let columns = PayloadColumns::of(&payload);
            assert_eq!(matches!(columns.body, ColumnValue::Text(_)), is_text, "{payload:?}");
            assert_eq!(columns.into_payload(), payload);
        }
    }
}
