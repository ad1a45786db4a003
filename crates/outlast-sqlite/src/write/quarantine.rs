//! The quarantine of a run, which is only a mark.

use outlast_core::refusal::no_run;
use outlast_core::{Marks, QuarantineChange, RunId};
use rusqlite::{OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::row::marks;
use crate::schema::sql;
use crate::write::tx::Tx;

/// Puts a run into quarantine or releases it. Returns the marks that it had before.
pub(crate) fn quarantine(
    tx: &mut Tx<'_>,
    (run, change): &(RunId, QuarantineChange),
) -> Result<Marks, Refusal> {
    let id = run.to_string();
    let mut statement = tx.connection.prepare_cached(sql::RUN_MARKS)?;
    let before = statement.query_row([&id], |row| marks(row, 0)).optional()?.ok_or_else(|| no_run(*run))?;
    let after = match change {
        QuarantineChange::Begin => before.with(Marks::QUARANTINED),
        QuarantineChange::End => before.without(Marks::QUARANTINED),
    };
    if after != before {
        tx.execute(sql::RUN_SET_MARKS, params![id, after.bits()])?;
    }
    Ok(before)
}
