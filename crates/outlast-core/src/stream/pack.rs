//! Packs: the stored form of several chunks that were written together.
//!
//! A pack is one row of a SQL world: a JSON array with one object per entry, which a person can read. The field of the
//! object says what the entry is: `text`, `json` or `bytes` (Base64). If a codec wrote it, the field `codec` names the
//! codec and the value is hexadecimal. The entry `restarted` is the only one of its pack.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ChunkContent, ChunkKind, ChunkOrigin, EntryBody, StreamEntry};
use crate::event::json::{bytes_of_hex, hex_into};
use crate::payload::Payload;
use crate::time::Timestamp;

/// Consecutive entries of a stream that one write has stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Pack {
    /// The index of the first entry.
    pub index: u64,
    /// When the world accepted it.
    pub at: Timestamp,
    /// Who wrote it.
    pub origin: ChunkOrigin,
    /// Whether a newer attempt has written to the stream since.
    pub is_superseded: bool,
    /// The entries, as [`write_pack`] has written them.
    pub body: String,
}

/// The stored form of chunks.
pub fn write_pack(chunks: &[ChunkContent]) -> String {
    let bytes: usize = chunks.iter().map(ChunkContent::stored_bytes).sum();
    let mut out = String::with_capacity(bytes);
    out.push('[');
    for (nth, chunk) in chunks.iter().enumerate() {
        if nth > 0 {
            out.push(',');
        }
        write_chunk(chunk, &mut out);
    }
    out.push(']');
    out
}

fn write_chunk(ChunkContent { kind, payload }: &ChunkContent, out: &mut String) {
    out.push('{');
    let plain = std::str::from_utf8(payload.bytes()).ok().filter(|_| payload.codec().is_none());
    if plain.is_none() {
        out.push_str("\"codec\":");
        out.push_str(&serde_json::Value::from(payload.codec().unwrap_or_default()).to_string());
        out.push(',');
    }
    out.push('"');
    out.push_str(kind.field());
    out.push_str("\":");
    match plain {
        Some(json) => out.push_str(json),
        None => {
            out.push('"');
            hex_into(payload.bytes(), out);
            out.push('"');
        }
    }
    out.push('}');
}

/// The stored form of the entry `restarted`.
pub fn restarted_pack(from: u64) -> String {
    format!("[{{\"restarted\":{from}}}]")
}

/// The fields of an entry.
#[derive(Default, Deserialize)]
struct EntryFields<'a> {
    codec: Option<String>,
    restarted: Option<u64>,
    #[serde(borrow, default, deserialize_with = "present")]
    text: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    json: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    bytes: Option<&'a RawValue>,
}

/// Reads a field that is there, even if its value is `null`.
fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The entries of a pack.
///
/// # Errors
///
/// A message if the text is not a pack, or one that a newer build has written.
pub fn read_pack(body: &str) -> Result<Vec<EntryBody>, String> {
    let entries: Vec<EntryFields<'_>> =
        serde_json::from_str(body).map_err(|error| format!("the chunks of a stream are damaged: {error}"))?;
    entries.into_iter().map(read_entry).collect()
}

fn read_entry(fields: EntryFields<'_>) -> Result<EntryBody, String> {
    if let Some(from) = fields.restarted {
        return Ok(EntryBody::Restarted { from });
    }
    let found = match (fields.text, fields.json, fields.bytes) {
        (Some(text), None, None) => (ChunkKind::Text, text),
        (None, Some(json), None) => (ChunkKind::Json, json),
        (None, None, Some(bytes)) => (ChunkKind::Bytes, bytes),
        _ => {
            return Err(
                "an entry of a stream has a kind that this build does not know; run a newer build".into()
            );
        }
    };
    let (kind, raw) = (found.0, found.1.get());
    let payload = match fields.codec {
        None => Payload::from_json_text(raw.as_bytes().to_vec()),
        Some(codec) => {
            let hex = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
            let bytes = hex.and_then(bytes_of_hex).ok_or("a coded chunk is not hexadecimal")?;
            Payload::coded(codec, bytes)
        }
    };
    Ok(EntryBody::Chunk(ChunkContent { kind, payload }))
}

/// Appends the entries of a pack from index `from` on, until there are `limit`.
///
/// # Errors
///
/// Those of [`read_pack`].
pub fn entries_of_pack(
    pack: &Pack,
    from: u64,
    limit: usize,
    entries: &mut Vec<StreamEntry>,
) -> Result<(), String> {
    let bodies = read_pack(&pack.body)?;
    let numbered = (pack.index..).zip(bodies).filter(|(index, _)| *index >= from);
    let room = limit.saturating_sub(entries.len());
    entries.extend(numbered.take(room).map(|(index, body)| StreamEntry {
        index,
        at: pack.at,
        origin: pack.origin,
        body,
        is_superseded: pack.is_superseded,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_chunk_survives_its_stored_form() {
        let chunks = vec![
            ChunkContent::of("a\u{0}\"b\\ö\n").unwrap(),
            ChunkContent::of("").unwrap(),
            ChunkContent::of(&serde_json::json!({ "a": [1, null, "x"] })).unwrap(),
            ChunkContent::of(&()).unwrap(),
            ChunkContent::of_bytes(&[0, 1, 255]).unwrap(),
            ChunkContent { kind: ChunkKind::Text, payload: Payload::coded("a\"es", vec![0, 255]) },
        ];
        let body = write_pack(&chunks);
        assert!(!body.contains('\0'), "Postgres does not store NUL in texts");
        let read: Vec<_> = read_pack(&body).unwrap();
        assert_eq!(read, chunks.into_iter().map(EntryBody::Chunk).collect::<Vec<_>>());
        assert_eq!(read_pack(&restarted_pack(17)).unwrap(), [EntryBody::Restarted { from: 17 }]);
    }

    #[test]
    fn the_stored_form_is_frozen() {
        let chunks = [
            ChunkContent::of("hi").unwrap(),
            ChunkContent::of(&[1, 2]).unwrap(),
            ChunkContent::of_bytes(b"hi").unwrap(),
            ChunkContent { kind: ChunkKind::Json, payload: Payload::coded("aes", vec![0, 255]) },
        ];
        expect_test::expect![[
            r#"[{"text":"hi"},{"json":[1,2]},{"bytes":"aGk="},{"codec":"aes","json":"00ff"}]"#
        ]]
        .assert_eq(&write_pack(&chunks));
        expect_test::expect![[r#"[{"restarted":17}]"#]].assert_eq(&restarted_pack(17));
    }

    #[test]
    fn an_unknown_entry_is_an_error_and_an_unknown_field_is_not() {
        assert!(read_pack(r#"[{"video":"x"}]"#).unwrap_err().contains("newer build"));
        assert!(read_pack(r#"[{"text":"x"}"#).unwrap_err().contains("damaged"));
        assert_eq!(read_pack(r#"[{"text":"x","tone":"calm"}]"#).unwrap().len(), 1);
    }

    #[test]
    fn a_page_may_begin_and_end_inside_a_pack() {
        let chunks: Vec<_> = (0..5).map(|n| ChunkContent::of(&n).unwrap()).collect();
        let (at, origin) = (Timestamp::from_micros(1), ChunkOrigin::Workflow);
        let pack = Pack { index: 10, at, origin, is_superseded: false, body: write_pack(&chunks) };
        let mut entries = Vec::new();
        entries_of_pack(&pack, 12, 2, &mut entries).unwrap();
        assert_eq!(entries.iter().map(|entry| entry.index).collect::<Vec<_>>(), [12, 13]);
    }
}
