//! The columns of a run that only its holder changes, as SQLite stores them. Statements have `{columns}` where they name
//! them, and `{values}` where they are given them, so that a new column is named here alone.

use std::sync::Arc;

use outlast_core::{FailedBuilds, HolderColumns, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Error, Row, ToSql};

use crate::schema::row::{failed_builds, maybe_moment, number, reason, stored, stuck};

/// Their names, in the order in which they are written and read.
const NAMES: [&str; 8] = [
    "crashes",
    "kept",
    "deadline",
    "stuck_reason",
    "stuck_message",
    "stuck_build",
    "failed_builds",
    "failed_at",
];

/// A statement with the names of the columns. Parameters for their values come behind those that have numbers.
pub(crate) fn fill(statement: &str) -> String {
    let values = NAMES.map(|_| "?").join(", ");
    statement.replace("{columns}", &NAMES.join(", ")).replace("{values}", &values)
}

/// The columns as values of a statement.
pub(crate) fn values(columns: &HolderColumns) -> [Value; NAMES.len()] {
    let HolderColumns { crashes, kept, deadline, stuck, failed_builds } = columns;
    let text = |text: &str| Value::Text(text.to_owned());
    let stuck = stuck.as_deref();
    [
        (*crashes).into(),
        stored(*kept).into(),
        deadline.map(Timestamp::as_micros).into(),
        stuck.map(reason).into(),
        stuck.map_or(Value::Null, |stuck| text(&stuck.message)),
        stuck.map_or(Value::Null, |stuck| text(&stuck.build)),
        failed_builds.text().into(),
        stored(failed_builds.at()).into(),
    ]
}

/// The values of a statement, those of the columns behind the others.
pub(crate) fn with_values<'a>(others: &'a [&'a dyn ToSql], values: &'a [Value]) -> Vec<&'a dyn ToSql> {
    others.iter().copied().chain(values.iter().map(|value| value as &dyn ToSql)).collect()
}

/// The columns of a row in which the first of them is at this place.
pub(crate) fn read(row: &Row<'_>, first: usize) -> Result<Arc<HolderColumns>, Error> {
    Ok(Arc::new(HolderColumns {
        crashes: crashes(row, first)?,
        kept: number(row, first + 1)?,
        deadline: deadline(row, first)?,
        stuck: stuck(row, first + 3)?.map(Box::new),
        failed_builds: builds(row, first)?,
    }))
}

/// One of them, for a look that needs no more.
pub(crate) fn crashes(row: &Row<'_>, first: usize) -> Result<u32, Error> {
    number(row, first)
}

/// One of them, for a look that needs no more.
pub(crate) fn deadline(row: &Row<'_>, first: usize) -> Result<Option<Timestamp>, Error> {
    maybe_moment(row, first + 2)
}

/// One of them, for a look that needs no more.
pub(crate) fn builds(row: &Row<'_>, first: usize) -> Result<FailedBuilds, Error> {
    failed_builds(row, first + 6)
}
