//! The content of a chunk: text, JSON or bytes, as a payload.

use serde::{Deserialize, Serialize};

use super::base64;
use crate::limits::CHUNK_BYTES_MAX;
use crate::payload::{Codec, Payload, PayloadError};

/// The bytes by which a chunk is larger in a world than its payload.
const OVERHEAD_BYTES: usize = 64;

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChunkKind {
    /// Text.
    Text,
    /// A JSON value that is not a text.
    Json,
    /// Bytes; read them as [`Binary`].
    Bytes,
}

impl ChunkKind {
    /// The name of its field in the stored form.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Bytes => "bytes",
        }
    }
}

/// The content of one chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkContent {
    /// What it is.
    pub kind: ChunkKind,
    /// The value: a JSON string for text, and for bytes their Base64; or the output of a codec.
    pub payload: Payload,
}

impl ChunkContent {
    /// The chunk of a value. A value whose JSON is a string is text.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Payload`] if the value has no JSON form, [`ChunkError::TooLarge`] if it has more than
    /// [`CHUNK_BYTES_MAX`] bytes.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, ChunkError> {
        let payload = Payload::json(value)?;
        check_size(payload.bytes().len())?;
        let is_text = payload.bytes().first() == Some(&b'"');
        Ok(Self { kind: if is_text { ChunkKind::Text } else { ChunkKind::Json }, payload })
    }

    /// The chunk of bytes.
    ///
    /// # Errors
    ///
    /// [`ChunkError::TooLarge`] if there are more than [`CHUNK_BYTES_MAX`].
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, ChunkError> {
        check_size(bytes.len())?;
        let text = format!("\"{}\"", base64::encode(bytes));
        Ok(Self { kind: ChunkKind::Bytes, payload: Payload::from_json_text(text) })
    }

    /// The same chunk with its payload encoded.
    ///
    /// # Errors
    ///
    /// Those of the codec.
    pub fn encoded(self, codec: &dyn Codec) -> Result<Self, ChunkError> {
        Ok(Self { kind: self.kind, payload: codec.encode(self.payload)? })
    }

    /// The approximate number of bytes that it needs in a world.
    pub fn stored_bytes(&self) -> usize {
        self.payload.bytes().len() + OVERHEAD_BYTES
    }
}

fn check_size(bytes: usize) -> Result<(), ChunkError> {
    if bytes > CHUNK_BYTES_MAX { Err(ChunkError::TooLarge { bytes }) } else { Ok(()) }
}

/// Why a value cannot be a chunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The value cannot be encoded.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// It is larger than [`CHUNK_BYTES_MAX`].
    #[error("the chunk has {bytes} bytes, the limit is {CHUNK_BYTES_MAX}; write it in smaller chunks")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

/// Bytes, which are stored as Base64 text.
///
/// It is the type of a chunk that was written as bytes.
///
/// ```
/// use outlast_core::Binary;
///
/// let json = serde_json::to_string(&Binary(vec![0, 255])).unwrap();
/// assert_eq!(json, r#""AP8=""#);
/// assert_eq!(serde_json::from_str::<Binary>(&json).unwrap().0, [0, 255]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Binary(pub Vec<u8>);

impl Serialize for Binary {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&base64::encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Binary {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = base64::decode(&text);
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("the text is not Base64"))
    }
}
