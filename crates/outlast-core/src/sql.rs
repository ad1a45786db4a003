//! What the worlds on SQL databases share: which values the columns of a row contain, and which index a list of runs is
//! read from.
//!
//! These worlds differ in their statements and in the types of their drivers. What a stored row means is decided here, so
//! that it means the same in each of them.

mod list_scan;
mod message_columns;
mod payload_columns;
mod reply_columns;

use std::borrow::Cow;

pub use list_scan::{ListIndex, ListScan, RowFilter};
pub use message_columns::MessageColumns;
pub use payload_columns::PayloadColumns;
pub use reply_columns::ReplyColumns;

/// The value of a column that contains a text or bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnValue<'a> {
    /// A text. The text of a payload contains no NUL; a text that somebody chose may.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

impl<'a> ColumnValue<'a> {
    /// Its bytes.
    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_owned().into_bytes(),
            Self::Bytes(bytes) => bytes.into_owned(),
        }
    }

    /// It as a text.
    fn into_text(self) -> Result<Cow<'a, str>, UnreadableColumn> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Bytes(_) => Err(UnreadableColumn::new("body", "it contains bytes instead of a text")),
        }
    }
}

/// A column whose value this build cannot read: it is damaged, or a newer build has written it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column `{column}`: {reason}")]
pub struct UnreadableColumn {
    column: &'static str,
    reason: String,
}

impl UnreadableColumn {
    fn new(column: &'static str, reason: impl ToString) -> Self {
        Self { column, reason: reason.to_string() }
    }
}
