//! Records: small documents beside the runs, such as the audit or the definitions of workflows.
//!
//! A record has an id in a space. The engine and its surfaces choose the spaces; each says in its module what its records
//! are, and how many it keeps.

use std::collections::HashSet;

use crate::error::WorldError;
use crate::limits::{
    RECORD_BYTES_MAX, RECORD_ID_BYTES_MAX, RECORD_SPACE_BYTES_MAX, RECORDS_BATCH_MAX, RECORDS_MAX,
};
use crate::run::ListOrder;
use crate::time::Timestamp;

/// A record to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRecord {
    /// Its id in its space.
    pub id: String,
    /// Its content.
    pub body: String,
}

/// A stored record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its id in its space.
    pub id: String,
    /// Its content.
    pub body: String,
    /// When it was stored last.
    pub at: Timestamp,
}

/// A page of the records of a space, in the order of their ids, byte by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordQuery {
    /// The space.
    pub space: String,
    /// The page begins behind this id, which need not exist.
    pub after: Option<String>,
    /// Whether the lowest or the highest id comes first.
    pub order: ListOrder,
    /// The number of records, at most [`RECORDS_BATCH_MAX`].
    pub limit: usize,
}

impl RecordQuery {
    /// All records of a space, the lowest id first, as many as a page can have.
    pub fn of_space(space: impl Into<String>) -> Self {
        Self { space: space.into(), after: None, order: ListOrder::OldestFirst, limit: RECORDS_BATCH_MAX }
    }
}

/// Checks records before they are stored.
///
/// # Errors
///
/// `Limit` when the space, an id, a body or the number of records is too large; `Invalid` when the space or an id is empty,
/// two records have one id, or a text contains NUL.
pub fn check_records(space: &str, records: &[NewRecord]) -> Result<(), WorldError> {
    check_text("the space of a record", space, RECORD_SPACE_BYTES_MAX)?;
    check_record_batch(records.len())?;
    let mut ids = HashSet::with_capacity(records.len());
    for record in records {
        check_text("the id of a record", &record.id, RECORD_ID_BYTES_MAX)?;
        check_bytes("the body of a record", &record.body, RECORD_BYTES_MAX)?;
        if !ids.insert(&record.id) {
            let id = &record.id;
            return Err(WorldError::invalid(format!(
                "record `{id}` is given twice in one call; give it once"
            )));
        }
    }
    Ok(())
}

/// Checks how many records one call is about.
///
/// # Errors
///
/// `Limit`.
pub fn check_record_batch(records: usize) -> Result<(), WorldError> {
    if records <= RECORDS_BATCH_MAX {
        return Ok(());
    }
    Err(WorldError::limit(format!(
        "one call is about {records} records, the limit is {RECORDS_BATCH_MAX}; make several calls"
    )))
}

/// The space cannot have more records.
pub fn too_many_records(space: &str) -> WorldError {
    WorldError::limit(format!(
        "space `{space}` has {RECORDS_MAX} records, which is the limit; delete those that are not needed"
    ))
}

fn check_text(what: &str, text: &str, limit: usize) -> Result<(), WorldError> {
    if text.is_empty() {
        return Err(WorldError::invalid(format!("{what} is empty; give it at least one character")));
    }
    check_bytes(what, text, limit)
}

fn check_bytes(what: &str, text: &str, limit: usize) -> Result<(), WorldError> {
    let bytes = text.len();
    if bytes > limit {
        return Err(WorldError::limit(format!("{what} has {bytes} bytes, the limit is {limit}; shorten it")));
    }
    if text.contains('\0') {
        return Err(WorldError::invalid(format!("{what} contains NUL, which cannot be stored; remove it")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, body: &str) -> NewRecord {
        NewRecord { id: id.into(), body: body.into() }
    }

    #[test]
    fn records_have_limits() {
        let check =
            |space: &str, records: &[NewRecord]| check_records(space, records).map_err(|why| why.to_string());
        assert_eq!(check("s", &[record("a", ""), record("b", "x")]), Ok(()));
        let refused = [
            (check("", &[record("a", "")]), "the space of a record is empty"),
            (check("s", &[record("", "")]), "the id of a record is empty"),
            (check("s", &[record("a", "\0")]), "the body of a record contains NUL"),
            (check("s", &[record("a", ""), record("a", "")]), "record `a` is given twice"),
            (
                check("s", &[record(&"i".repeat(RECORD_ID_BYTES_MAX + 1), "")]),
                "has 513 bytes, the limit is 512",
            ),
            (check("s", &[record("a", &"b".repeat(RECORD_BYTES_MAX + 1))]), "the limit is 65536"),
        ];
        for (answer, expected) in refused {
            assert!(answer.clone().unwrap_err().contains(expected), "{answer:?}");
        }
        assert!(
            check_record_batch(RECORDS_BATCH_MAX + 1).unwrap_err().to_string().contains("make several calls")
        );
    }
}
