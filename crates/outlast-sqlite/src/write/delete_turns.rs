//! The deletion of turns that no replay needs.

use std::ops::Range;

use outlast_core::RunId;
use rusqlite::params;

use crate::connection::error::Refusal;
use crate::schema::row::to_i64;
use crate::schema::sql;
use crate::write::tx::Tx;

/// Deletes the turns of a run in a range, except those that are kept.
pub(crate) fn delete_turns(
    tx: &mut Tx<'_>,
    (run, range, kept): &(RunId, Range<u64>, Vec<u64>),
) -> Result<(), Refusal> {
    let id = run.to_string();
    let mut from = range.start;
    for end in kept.iter().copied().filter(|kept| range.contains(kept)).chain([range.end]) {
        if from < end {
            tx.execute(sql::TURNS_DELETE_RANGE, params![id, to_i64(from), to_i64(end)])?;
        }
        from = end + 1;
    }
    Ok(())
}
