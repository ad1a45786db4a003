//! Records that are stored and deleted.

use outlast_core::NewRecord;
use outlast_core::limits::RECORDS_MAX;
use outlast_core::record::too_many_records;
use rusqlite::{OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::sql;
use crate::write::tx::Tx;

/// Records of one space.
pub(crate) struct SpaceRecords {
    pub(crate) space: String,
    pub(crate) records: Vec<NewRecord>,
}

/// Stores records, and replaces those that exist.
pub(crate) fn put(tx: &mut Tx<'_>, SpaceRecords { space, records }: &SpaceRecords) -> Result<(), Refusal> {
    let mut new = 0_i64;
    for record in records {
        new += i64::from(!exists(tx, space, &record.id)?);
    }
    let count = tx.connection.prepare_cached(sql::RECORD_COUNT)?.query_row([space], |row| row.get(0));
    let count: i64 = count.optional()?.unwrap_or_default();
    if new > 0 && count + new > RECORDS_MAX as i64 {
        return Err(too_many_records(space).into());
    }
    for NewRecord { id, body } in records {
        tx.execute(sql::RECORD_PUT, params![space, id, body, tx.now.as_micros()])?;
    }
    add_to_count(tx, space, new)
}

/// Stores the record unless it exists. Returns whether it was stored.
pub(crate) fn put_if_absent(tx: &mut Tx<'_>, record: &SpaceRecords) -> Result<bool, Refusal> {
    for NewRecord { id, .. } in &record.records {
        if exists(tx, &record.space, id)? {
            return Ok(false);
        }
    }
    put(tx, record).map(|()| true)
}

/// Deletes records. Returns how many existed.
pub(crate) fn delete(tx: &mut Tx<'_>, (space, ids): &(String, Vec<String>)) -> Result<u64, Refusal> {
    let mut deleted = 0;
    for id in ids {
        deleted += tx.execute(sql::RECORD_DELETE, [space, id])? as u64;
    }
    add_to_count(tx, space, -(deleted as i64))?;
    Ok(deleted)
}

fn exists(tx: &Tx<'_>, space: &str, id: &str) -> Result<bool, Refusal> {
    Ok(tx.connection.prepare_cached(sql::RECORD_READ)?.exists([space, id])?)
}

fn add_to_count(tx: &Tx<'_>, space: &str, records: i64) -> Result<(), Refusal> {
    if records != 0 {
        tx.execute(sql::RECORD_COUNT_ADD, params![space, records])?;
    }
    Ok(())
}
