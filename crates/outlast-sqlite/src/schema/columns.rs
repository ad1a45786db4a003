//! The columns of a run that only its holder changes, as SQLite stores them. Statements contain placeholders, so that a
//! new column is added only here: `{columns}` for the names of all columns that are read, `{assigned}` for those that are
//! written, and `{values}` for their parameters. The marks are read with them, and written otherwise: senders change some
//! of them.

use std::sync::Arc;

use outlast_core::{FailedBuilds, HolderColumns, Marks, RunFailure, Timestamp};
use rusqlite::types::Value;
use rusqlite::{Error, Row, ToSql};

use crate::schema::row::{failed_builds, invalid_column, number, stuck, timestamp_or_null, to_i64};

/// The names of the columns, in the order in which they are written and read.
const NAMES: [&str; 13] = [
    "crashes",
    "kept",
    "deadline",
    "stuck_reason",
    "stuck_message",
    "stuck_build",
    "failed_builds",
    "failed_at",
    "replay_from",
    "continued",
    "retrying",
    "failure",
    "fingerprint",
];

/// Replaces the placeholders of a statement. The parameters of the columns follow the numbered ones.
pub(crate) fn expand_placeholders(statement: &str) -> String {
    let values = NAMES.map(|_| "?").join(", ");
    let names = NAMES.join(", ");
    statement
        .replace("{columns}", &format!("{names}, marks"))
        .replace("{assigned}", &names)
        .replace("{values}", &values)
}

/// The values of the columns, as parameters of a statement.
pub(crate) fn values(columns: &HolderColumns) -> [Value; NAMES.len()] {
    let HolderColumns { crashes, kept, deadline, stuck, failed_builds, replay_from, continued, .. } = columns;
    let failure = columns.failure.as_deref();
    let text = |text: &str| Value::Text(text.to_owned());
    let stuck = stuck.as_deref();
    [
        (*crashes).into(),
        to_i64(*kept).into(),
        deadline.map(Timestamp::as_micros).into(),
        stuck.map(|stuck| stuck.reason.stored_name()).into(),
        stuck.map_or(Value::Null, |stuck| text(&stuck.message)),
        stuck.map_or(Value::Null, |stuck| text(&stuck.build)),
        failed_builds.text().into(),
        to_i64(failed_builds.at()).into(),
        to_i64(*replay_from).into(),
        to_i64(*continued).into(),
        columns.is_retrying.into(),
        failure.map(RunFailure::to_stored).into(),
        failure.map(|failure| failure.fingerprint.cast_signed()).into(),
    ]
}

/// All parameters of a statement: the numbered ones, then those of the columns.
pub(crate) fn append_values<'a>(numbered: &'a [&'a dyn ToSql], values: &'a [Value]) -> Vec<&'a dyn ToSql> {
    numbered.iter().copied().chain(values.iter().map(|value| value as &dyn ToSql)).collect()
}

/// Reads all of the columns. `first` is the number of the first one in the row.
pub(crate) fn read(row: &Row<'_>, first: usize) -> Result<Arc<HolderColumns>, Error> {
    Ok(Arc::new(HolderColumns {
        crashes: read_crashes(row, first)?,
        kept: number(row, first + 1)?,
        deadline: read_deadline(row, first)?,
        stuck: stuck(row, first + 3)?.map(Box::new),
        failed_builds: read_failed_builds(row, first)?,
        replay_from: number(row, first + 8)?,
        continued: number(row, first + 9)?,
        is_retrying: row.get(first + 10)?,
        failure: read_failure(row, first)?,
        marks: Marks::from_bits(number(row, first + NAMES.len())?).of_holder(),
    }))
}

/// Reads why the run failed: the columns with the summary and the fingerprint.
fn read_failure(row: &Row<'_>, first: usize) -> Result<Option<Box<RunFailure>>, Error> {
    let Some(fingerprint) = row.get::<_, Option<i64>>(first + 12)? else { return Ok(None) };
    let text = row.get_ref(first + 11)?.as_str()?;
    let failure = RunFailure::from_stored(text, fingerprint.cast_unsigned());
    failure.map(|failure| Some(Box::new(failure))).map_err(|error| invalid_column(first + 11, error))
}

/// Reads only the number of crashes.
pub(crate) fn read_crashes(row: &Row<'_>, first: usize) -> Result<u32, Error> {
    number(row, first)
}

/// Reads only the deadline.
pub(crate) fn read_deadline(row: &Row<'_>, first: usize) -> Result<Option<Timestamp>, Error> {
    timestamp_or_null(row, first + 2)
}

/// Reads only the failed builds.
pub(crate) fn read_failed_builds(row: &Row<'_>, first: usize) -> Result<FailedBuilds, Error> {
    failed_builds(row, first + 6)
}
