//! Pruning: deletes runs that ended long ago, a part at a time.
//!
//! One statement deletes the row of a run, its tags and its heartbeats; nobody finds the run afterwards. Its turns and
//! messages are deleted by the same statement, up to a limit. The rest are leftovers, which further statements delete.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Timestamp, WorldError};

use crate::connection::database::{Database, Parameter};
use crate::encoding::row::{InvalidRow, get, invalid_column, maybe_parsed, number};
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
    let (pruned, mut has_leftovers) =
        read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
    while has_leftovers {
        let rows = database.call(&database.sql.sweep_leftovers, &[&DELETE_ROWS_MAX]).await?;
        has_leftovers = rows.first().is_some_and(|row| get(row, 0).unwrap_or(false));
    }
    Ok(pruned)
}
