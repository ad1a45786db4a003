//! Records that are read.

use outlast_core::limits::RECORDS_BATCH_MAX;
use outlast_core::{ListOrder, RecordQuery, StoredRecord};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::timestamp;
use crate::schema::sql;

/// Behind every id: no text of UTF-8 has this character's successor.
const HIGHEST: &str = "\u{10ffff}\u{10ffff}";

/// A record, if it exists.
pub(crate) fn record(
    connection: &Connection,
    space: &str,
    id: &str,
) -> Result<Option<StoredRecord>, Refusal> {
    Ok(connection.prepare_cached(sql::RECORD_READ)?.query_row([space, id], stored).optional()?)
}

/// A page of the records of a space.
pub(crate) fn records(connection: &Connection, query: &RecordQuery) -> Result<Vec<StoredRecord>, Refusal> {
    let (sql, none) = match query.order {
        ListOrder::OldestFirst => (sql::RECORDS_ASCENDING, ""),
        ListOrder::NewestFirst => (sql::RECORDS_DESCENDING, HIGHEST),
    };
    let limit = query.limit.min(RECORDS_BATCH_MAX) as i64;
    let mut statement = connection.prepare_cached(sql)?;
    let params = params![query.space, query.after.as_deref().unwrap_or(none), limit];
    Ok(statement.query_map(params, stored)?.collect::<Result<_, _>>()?)
}

fn stored(row: &Row<'_>) -> Result<StoredRecord, Error> {
    Ok(StoredRecord { id: row.get(0)?, body: row.get(1)?, at: timestamp(row, 2)? })
}
