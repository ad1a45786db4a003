//! Records: reading, storing and deleting them.

use outlast_core::limits::{RECORDS_BATCH_MAX, RECORDS_MAX};
use outlast_core::record::too_many_records;
use outlast_core::{ListOrder, NewRecord, RecordQuery, StoredRecord, WorldError};
use tokio_postgres::Row;

use crate::clock::TimeSource;
use crate::connection::database::Database;
use crate::encoding::row::{InvalidRow, get, timestamp};
use crate::error::corrupt_error;

/// Behind every id, in the order of bytes.
const HIGHEST: &str = "\u{10ffff}\u{10ffff}";

/// What happens to records that exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    Replaced,
    Kept,
}

/// Stores records. Returns how many are new.
pub(crate) async fn put(
    database: &Database,
    time: &TimeSource,
    space: &str,
    records: &[NewRecord],
    existing: Existing,
) -> Result<u64, WorldError> {
    let ids: Vec<&str> = records.iter().map(|record| record.id.as_str()).collect();
    let bodies: Vec<&str> = records.iter().map(|record| record.body.as_str()).collect();
    let (replaces, max) = (existing == Existing::Replaced, RECORDS_MAX as i64);
    let values = database
        .call(&database.sql.put_records, &[&time.statement_time(), &space, &ids, &bodies, &replaces, &max])
        .await?;
    let new: Option<i64> = values.first().map_or(Ok(None), |row| get(row, 0)).map_err(invalid(database))?;
    new.map(i64::unsigned_abs).ok_or_else(|| too_many_records(space))
}

/// A record, if it exists.
pub(crate) async fn record(
    database: &Database,
    space: &str,
    id: &str,
) -> Result<Option<StoredRecord>, WorldError> {
    let rows = database.call(&database.sql.record, &[&space, &id]).await?;
    rows.first().map(stored).transpose().map_err(invalid(database))
}

/// A page of the records of a space.
pub(crate) async fn records(
    database: &Database,
    query: &RecordQuery,
) -> Result<Vec<StoredRecord>, WorldError> {
    let (sql, none) = match query.order {
        ListOrder::OldestFirst => (&database.sql.records_ascending, ""),
        ListOrder::NewestFirst => (&database.sql.records_descending, HIGHEST),
    };
    let after = query.after.as_deref().unwrap_or(none);
    let limit = query.limit.min(RECORDS_BATCH_MAX) as i64;
    let rows = database.call(sql, &[&query.space, &after, &limit]).await?;
    rows.iter().map(stored).collect::<Result<_, _>>().map_err(invalid(database))
}

/// Deletes records. Returns how many existed.
pub(crate) async fn delete(database: &Database, space: &str, ids: &[String]) -> Result<u64, WorldError> {
    let rows = database.call(&database.sql.delete_records, &[&space, &ids]).await?;
    let deleted: i64 = rows.first().map_or(Ok(0), |row| get(row, 0)).map_err(invalid(database))?;
    Ok(deleted.unsigned_abs())
}

fn stored(row: &Row) -> Result<StoredRecord, InvalidRow> {
    Ok(StoredRecord { id: get(row, 0)?, body: get(row, 1)?, at: timestamp(row, 2)? })
}

fn invalid(database: &Database) -> impl Fn(InvalidRow) -> WorldError + '_ {
    |why| corrupt_error(&database.place, &why)
}
