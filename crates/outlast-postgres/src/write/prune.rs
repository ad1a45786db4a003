//! Deleting runs: those that ended long ago, a part at a time, or one that has ended; and the mark that prevents it.
//!
//! One statement deletes the row of a run, its tags and its heartbeats; nobody finds the run afterwards. Its turns and
//! messages are deleted by the same statement, up to a limit. The rest are leftovers, which further statements delete.
//! A trigger deletes its streams and state, and further statements its chunks.

use std::ops::Range;

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::refusal::{no_run, not_deletable};
use outlast_core::{Marks, Pruned, QuarantineChange, RunId, Status, Timestamp, WorldError};

use crate::connection::database::{Database, Parameter};
use crate::encoding::row::{InvalidRow, get, invalid_column, marks, maybe_parsed, number, to_i64};
use crate::error::corrupt_error;

/// The number of turns and messages that one statement deletes.
const DELETE_ROWS_MAX: i32 = 20_000;

/// Deletes the runs of one part of all runs that ended before `before`: of the `limit` runs after `after`.
pub(crate) async fn prune(
    database: &Database,
    before: Timestamp,
    after: Option<RunId>,
    limit: usize,
) -> Result<Pruned, WorldError> {
    // The empty text sorts before every id.
    let after = after.map_or_else(String::new, |run| run.to_string());
    let limit = limit.min(PRUNE_RUNS_MAX) as i32;
    let values: [Parameter<'_>; 4] = [&before.as_micros(), &after, &limit, &DELETE_ROWS_MAX];
    let rows = database.call(&database.sql.prune, &values).await?;
    let read = || {
        let row = rows.first().ok_or_else(|| invalid_column(0, "the database returned no row"))?;
        Ok((Pruned { runs: number(row, 0)?, next: maybe_parsed(row, 1)? }, get::<bool>(row, 2)?))
    };
    let (pruned, has_leftovers) = read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
    sweep_leftovers(database, has_leftovers).await?;
    sweep_chunks(database, pruned.runs > 0).await?;
    Ok(pruned)
}

/// Deletes the leftovers, a part at a time.
async fn sweep_leftovers(database: &Database, mut has_leftovers: bool) -> Result<(), WorldError> {
    while has_leftovers {
        let rows = database.call(&database.sql.sweep_leftovers, &[&DELETE_ROWS_MAX]).await?;
        has_leftovers = rows.first().is_some_and(|row| get(row, 0).unwrap_or(false));
    }
    Ok(())
}

/// Deletes the chunks of deleted runs, a part at a time.
async fn sweep_chunks(database: &Database, mut has_chunks: bool) -> Result<(), WorldError> {
    while has_chunks {
        let rows = database.call(&database.sql.sweep_chunks, &[&DELETE_ROWS_MAX]).await?;
        has_chunks = rows.first().is_some_and(|row| get(row, 0).unwrap_or(false));
    }
    Ok(())
}

/// Deletes one run that has ended.
pub(crate) async fn delete(database: &Database, run: RunId) -> Result<(), WorldError> {
    let rows = database.call(&database.sql.delete, &[&run.to_string(), &DELETE_ROWS_MAX]).await?;
    let read = || {
        let Some(row) = rows.first() else { return Ok(None) };
        let Some(status) = maybe_parsed::<Status>(row, 0)? else { return Ok(None) };
        Ok(Some((status, marks(row, 1)?, get::<bool>(row, 2)?, get::<bool>(row, 3)?)))
    };
    match read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))? {
        None => Err(no_run(run)),
        Some((_, _, true, has_leftovers)) => {
            sweep_leftovers(database, has_leftovers).await?;
            sweep_chunks(database, true).await
        }
        Some((status, marks, false, _)) => Err(not_deletable(run, status, marks)),
    }
}

/// Puts a run into quarantine or releases it. Returns the marks that it had before.
pub(crate) async fn quarantine(
    database: &Database,
    run: RunId,
    change: QuarantineChange,
) -> Result<Marks, WorldError> {
    let (begins, mark) = (change == QuarantineChange::Begin, Marks::QUARANTINED.bits().cast_signed());
    let rows = database.call(&database.sql.quarantine, &[&run.to_string(), &begins, &mark]).await?;
    let row = rows.first().ok_or_else(|| no_run(run))?;
    marks(row, 0).map_err(|why| corrupt_error(&database.place, &why))
}

/// Deletes the turns of a run in a range, except those that are kept.
pub(crate) async fn delete_turns(
    database: &Database,
    run: RunId,
    range: Range<u64>,
    kept: &[u64],
) -> Result<(), WorldError> {
    let kept: Vec<i64> = kept.iter().map(|seq| to_i64(*seq)).collect();
    let (from, to) = (to_i64(range.start), to_i64(range.end));
    database.call(&database.sql.delete_turns, &[&run.to_string(), &from, &to, &kept]).await.map(drop)
}
