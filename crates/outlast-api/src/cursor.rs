//! Cursors: where the next page of a list begins.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The place in a list where a page begins. Its text is opaque, and contains a digest of the list's filters, so that it
/// is refused for another list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The digest of the filters.
    pub filters: u64,
    /// The direction of the page.
    pub direction: PageDirection,
    /// The last element before the page, in its direction: a run id or a number.
    pub position: u128,
}

/// The direction of a page, seen from the page before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageDirection {
    /// Towards the end of the list.
    Next,
    /// Towards its beginning.
    Previous,
}

/// A text that is not a cursor of this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// The text is not a cursor.
    #[error("the cursor cannot be read; use `next` or `prev` of a page unchanged")]
    Unreadable,
    /// The cursor is of a list with other filters.
    #[error("the cursor belongs to a list with other filters; begin without a cursor")]
    Mismatch,
}

/// The length of a cursor in bytes: version, direction, digest, position.
const BYTES: usize = 2 + 8 + 16;

/// The version of the format.
const VERSION: u8 = 1;

impl Cursor {
    /// A cursor of a list with these filters, written as text.
    pub fn new(filters: &str, direction: PageDirection, position: u128) -> Self {
        Self { filters: digest(filters), direction, position }
    }

    /// Reads a cursor of the list with these filters.
    ///
    /// # Errors
    ///
    /// If the text is not a cursor, or of another list.
    pub fn read(text: &str, filters: &str) -> Result<Self, CursorError> {
        let cursor: Self = text.parse()?;
        if cursor.filters == digest(filters) { Ok(cursor) } else { Err(CursorError::Mismatch) }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend([VERSION, u8::from(self.direction == PageDirection::Previous)]);
        bytes.extend(self.filters.to_be_bytes());
        bytes.extend(self.position.to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

impl FromStr for Cursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CursorError::Unreadable)?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| CursorError::Unreadable)?;
        let direction = match bytes[..2] {
            [VERSION, 0] => PageDirection::Next,
            [VERSION, 1] => PageDirection::Previous,
            _ => return Err(CursorError::Unreadable),
        };
        let (mut filters, mut position) = ([0; 8], [0; 16]);
        filters.copy_from_slice(&bytes[2..10]);
        position.copy_from_slice(&bytes[10..]);
        let (filters, position) = (u64::from_be_bytes(filters), u128::from_be_bytes(position));
        Ok(Self { filters, direction, position })
    }
}

/// A 64-bit digest (FNV-1a) of the filters. It prevents mistakes, not attacks.
fn digest(filters: &str) -> u64 {
    let begin = 0xcbf2_9ce4_8422_2325;
    filters.bytes().fold(begin, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text() {
        for direction in [PageDirection::Next, PageDirection::Previous] {
            let cursor = Cursor::new("workflow=a", direction, u128::MAX - 1);
            assert_eq!(Cursor::read(&cursor.to_string(), "workflow=a"), Ok(cursor));
        }
    }

    #[test]
    fn a_cursor_of_other_filters_is_refused() {
        let text = Cursor::new("workflow=a", PageDirection::Next, 7).to_string();
        assert_eq!(Cursor::read(&text, "workflow=b"), Err(CursorError::Mismatch));
    }

    #[test]
    fn a_damaged_cursor_is_refused() {
        let text = Cursor::new("", PageDirection::Next, 7).to_string();
        for damaged in ["", "x", &text[1..], &format!("{text}A"), &text.replace('A', "_"), "é"] {
            assert_eq!(Cursor::read(damaged, ""), Err(CursorError::Unreadable), "{damaged}");
        }
    }
}
