//! Payloads: values as stored bytes, with the codec that wrote them.

mod field_path;
mod mismatch;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::exact_json;
use crate::limits::{PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX};

/// A stored value: JSON text, or the output of a codec.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    codec: Option<Arc<str>>,
    bytes: Bytes,
}

impl Payload {
    /// The JSON of `value`.
    ///
    /// # Errors
    ///
    /// [`PayloadError::Encode`] when the value cannot be serialized (a map with keys that are not text) or would be
    /// decoded as another one (a float that is not finite, `Some(None)`, `Some(())`),
    /// [`PayloadError::TooLarge`] and [`PayloadError::TooDeep`] when it exceeds a limit.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, PayloadError> {
        let bytes = exact_json::to_json(value).map_err(|error| PayloadError::Encode(error.to_string()))?;
        if bytes.len() > PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLarge { bytes: bytes.len() });
        }
        let depth = json_depth(&bytes);
        if depth > PAYLOAD_DEPTH_MAX {
            return Err(PayloadError::TooDeep { depth });
        }
        Ok(Self { codec: None, bytes: bytes.into() })
    }

    /// The JSON value `null`: the payload of `()`.
    pub fn null() -> Self {
        Self { codec: None, bytes: Bytes::from_static(b"null") }
    }

    /// Text that is known to be JSON, as read from a history.
    pub fn from_json_text(text: impl Into<Bytes>) -> Self {
        Self { codec: None, bytes: text.into() }
    }

    /// Bytes that only `codec` can read.
    pub fn coded(codec: impl Into<Arc<str>>, bytes: impl Into<Bytes>) -> Self {
        Self { codec: Some(codec.into()), bytes: bytes.into() }
    }

    /// The codec that wrote the bytes; `None` for plain JSON.
    pub fn codec(&self) -> Option<&str> {
        self.codec.as_deref()
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The value of a plain JSON payload.
    ///
    /// # Errors
    ///
    /// [`PayloadError::Decode`] when the value cannot be decoded as a `T`, [`PayloadError::Coded`] when a codec must
    /// decode it first.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, PayloadError> {
        if let Some(codec) = &self.codec {
            return Err(PayloadError::Coded(codec.to_string()));
        }
        serde_json::from_slice(&self.bytes).map_err(|error| PayloadError::Decode {
            type_name: std::any::type_name::<T>(),
            reason: mismatch::reason::<T>(&error, &self.bytes),
            quoting: error.to_string(),
        })
    }

    /// A digest that is the same for equal payloads, in all processes and releases.
    pub fn digest(&self) -> u128 {
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013B;
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        self.bytes.iter().fold(BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.codec {
            None => f.write_str(&String::from_utf8_lossy(&self.bytes)),
            Some(codec) => write!(f, "<{} bytes of {codec}>", self.bytes.len()),
        }
    }
}

/// Transforms every payload on its way to and from the world.
///
/// A codec may encrypt or compress. It decodes whatever it has ever encoded, and plain JSON.
pub trait Codec: Send + Sync + fmt::Debug {
    /// The payload to store for `plain`.
    ///
    /// # Errors
    ///
    /// Any [`PayloadError`]; the operation that the payload belongs to fails with it.
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError>;

    /// The plain JSON payload that was encoded as `stored`.
    ///
    /// # Errors
    ///
    /// [`PayloadError::Coded`] when this codec cannot read it.
    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError>;
}

/// The codec that stores plain JSON.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainJson;

impl Codec for PlainJson {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        Ok(plain)
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        match stored.codec {
            None => Ok(stored),
            Some(codec) => Err(PayloadError::Coded(codec.to_string())),
        }
    }
}

/// Why a value cannot be encoded as a payload, or a payload cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The value cannot be serialized as JSON.
    #[error("the value cannot be written as JSON: {0}")]
    Encode(String),
    /// The payload cannot be decoded as the requested type.
    #[error("the payload is not a `{}`: {reason}", without_paths(type_name))]
    Decode {
        /// The requested type.
        type_name: &'static str,
        /// The mismatch: the kind of the value and its field, never the value itself.
        reason: String,
        /// The message of the JSON library, which may quote the value. Only errors of runs with rules 1 contain it.
        quoting: String,
    },
    /// The payload is larger than [`PAYLOAD_BYTES_MAX`].
    #[error(
        "the payload has {bytes} bytes, the limit is {PAYLOAD_BYTES_MAX}; store it elsewhere and pass its address"
    )]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The payload is nested deeper than [`PAYLOAD_DEPTH_MAX`].
    #[error("the payload is nested {depth} levels deep, the limit is {PAYLOAD_DEPTH_MAX}; flatten it")]
    TooDeep {
        /// Its depth.
        depth: usize,
    },
    /// Only another codec can read the payload.
    #[error("the payload was written by codec `{0}`; give the worker or client that codec")]
    Coded(String),
}

impl PayloadError {
    /// The error for runs with rules 1; it may quote the value.
    pub fn quoting(&self) -> String {
        match self {
            Self::Decode { type_name, quoting, .. } => {
                format!("the payload is not a `{}`: {quoting}", without_paths(type_name))
            }
            other => other.to_string(),
        }
    }

    /// The end of an error text about a recorded value: "cannot be read as …".
    pub fn cannot_be_read(&self) -> String {
        match self {
            Self::Decode { type_name, reason, .. } => {
                format!("cannot be read as `{}`: {reason}", without_paths(type_name))
            }
            other => format!("cannot be read: {other}"),
        }
    }

    /// Whether another codec is needed to decode the payload.
    pub fn is_coded(&self) -> bool {
        matches!(self, Self::Coded(_))
    }
}

/// The name of a type without module paths.
fn without_paths(type_name: &str) -> String {
    let mut readable = String::with_capacity(type_name.len());
    let mut word = 0;
    for character in type_name.chars() {
        readable.push(character);
        if !character.is_alphanumeric() && character != '_' {
            // Remove the path segment before `::`.
            match readable.strip_suffix("::").map(|path| path.len() > word) {
                Some(true) => readable.truncate(word),
                _ if character == ':' => {}
                _ => word = readable.len(),
            }
        }
    }
    readable
}

/// How deep arrays and objects are nested in a JSON text.
fn json_depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for &byte in json {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_named_as_its_author_writes_it() {
        struct Shelf<T>(T);
        for (name, readable) in [
            (std::any::type_name::<String>(), "String"),
            (std::any::type_name::<Shelf<String>>(), "Shelf<String>"),
            (std::any::type_name::<(Vec<Option<String>>, u32)>(), "(Vec<Option<String>>, u32)"),
            (std::any::type_name::<[std::time::Duration; 3]>(), "[Duration; 3]"),
            (std::any::type_name::<&Result<(), std::io::Error>>(), "&Result<(), Error>"),
            ("<a::Thing as b::Named>::Name", "<Thing as Named>::Name"),
        ] {
            assert_eq!(without_paths(name), readable, "{name}");
        }
        let error = Payload::json(&4200).unwrap().decode::<Vec<String>>().unwrap_err().to_string();
        assert!(error.starts_with("the payload is not a `Vec<String>`: invalid type"), "{error}");
    }

    #[test]
    fn values_that_others_lose_survive() {
        let value = serde_json::json!({
            "float": 0.1 + 0.2, "odd": 537.9460711205405_f64, "nul": "a\u{0}b", "null": null, "zero": 0, "empty": "", "no": false, "CamelCase": 1, "snake_case": 2,
            "date": "2026-02-30T25:00:00Z", "nested": [[], {}, [null]],
        });
        let payload = Payload::json(&value).unwrap();
        assert_eq!(payload.decode::<serde_json::Value>().unwrap(), value);
    }

    #[test]
    fn every_float_comes_back_as_it_went() {
        let mut bits = 1_u64;
        for _ in 0..10_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let float = f64::from_bits(bits);
            if float.is_finite() {
                assert_eq!(
                    Payload::json(&float).unwrap().decode::<f64>().unwrap().to_bits(),
                    float.to_bits()
                );
            }
        }
    }

    #[test]
    fn a_float_that_is_not_finite_is_refused() {
        for float in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = Payload::json(&vec![Some(float)]).unwrap_err();
            assert!(matches!(error, PayloadError::Encode(_)), "{error}");
            assert!(error.to_string().contains(&format!("a float that is {float}")), "{error}");
        }
    }

    #[test]
    fn a_payload_past_a_limit_is_refused_with_the_remedy() {
        let error = Payload::json(&"x".repeat(PAYLOAD_BYTES_MAX)).unwrap_err();
        assert!(matches!(error, PayloadError::TooLarge { .. }), "{error}");
        let deep =
            (0..PAYLOAD_DEPTH_MAX + 1).fold(serde_json::Value::Null, |inner, _| serde_json::json!([inner]));
        let error = Payload::json(&deep).unwrap_err();
        assert!(error.to_string().contains("flatten it"), "{error}");
        assert!(Payload::json("[[[[\"\\\"{{{{").is_ok(), "brackets inside text do not nest");
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_by_type() {
        let error = Payload::json("seven").unwrap().decode::<u32>().unwrap_err();
        assert!(error.to_string().contains("`u32`"), "{error}");
    }

    #[test]
    fn a_coded_payload_names_its_codec() {
        let error = PlainJson.decode(Payload::coded("aes", vec![1, 2])).unwrap_err();
        assert!(error.to_string().contains("codec `aes`"), "{error}");
    }

    #[test]
    fn the_digest_is_frozen() {
        assert_eq!(Payload::null().digest(), 0x692d_4a7b_d375_7277_b806_e961_fef3_51c4);
        assert_ne!(Payload::null().digest(), Payload::json(&0).unwrap().digest());
    }
}
