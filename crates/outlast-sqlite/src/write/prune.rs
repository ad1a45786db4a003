//! Pruning: deleting runs that ended long ago.
//!
//! The row of a run is deleted first, in one transaction with its tags and heartbeat details. From then on the run does
//! not exist for anyone. The same transaction deletes its turns and messages, up to a limit. The rest of a longer
//! history is deleted in later transactions, so that the commits of other runs do not wait for it; until then the table
//! `leftovers` contains the run.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Status, Timestamp};
use rusqlite::{Connection, Error, params};

use crate::connection::error::Refusal;
use crate::schema::row::{parsed, timestamp_or_null};
use crate::schema::sql;
use crate::write::tx::Tx;

/// The number of bytes that one transaction deletes, which takes some milliseconds.
const DELETE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The cost of deleting a row in addition to its bytes: it changes a page of the table and one of the index.
const DELETE_ROW_BYTES: u64 = 4 * 1024;

/// The number of runs in `leftovers` that one transaction reads.
const LEFTOVERS_MAX: i64 = 1_000;

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(crate) struct Prune {
    pub(crate) before: Timestamp,
    pub(crate) after: Option<RunId>,
    pub(crate) limit: usize,
}

/// Whether all rows were deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteProgress {
    Complete,
    Partial,
}

impl Prune {
    fn limit(&self) -> usize {
        self.limit.min(PRUNE_RUNS_MAX)
    }

    /// Answers the call without a write if there is nothing to delete; `None` if there is.
    pub(crate) fn answer_without_write(&self, connection: &Connection) -> Result<Option<Pruned>, Refusal> {
        let candidates = self.candidates(connection)?;
        let has_ended = candidates.iter().any(|candidate| self.is_to_delete(candidate));
        let has_leftovers = connection.prepare_cached(sql::LEFTOVERS)?.exists([1])?;
        Ok((!has_ended && !has_leftovers).then(|| Pruned { runs: 0, next: self.next(&candidates) }))
    }

    /// The runs that this call checks.
    fn candidates(&self, connection: &Connection) -> Result<Vec<PruneCandidate>, Error> {
        let mut statement = connection.prepare_cached(sql::PRUNE_CANDIDATES)?;
        // The empty text sorts before every id.
        let after = self.after.map_or_else(String::new, |run| run.to_string());
        let rows = statement.query_map(params![after, self.limit() as i64], |row| {
            Ok((parsed(row, 0)?, parsed(row, 1)?, timestamp_or_null(row, 2)?))
        })?;
        rows.collect()
    }

    fn is_to_delete(&self, (_, _, ended_at): &PruneCandidate) -> bool {
        ended_at.is_some_and(|at| at < self.before)
    }

    /// The run after which the next call continues; `None` if this call reached the last run.
    fn next(&self, candidates: &[PruneCandidate]) -> Option<RunId> {
        candidates.last().filter(|_| candidates.len() == self.limit()).map(|(run, ..)| *run)
    }
}

/// A run, its status, and when it ended.
type PruneCandidate = (RunId, Status, Option<Timestamp>);

/// Deletes the candidates that ended before the given time.
pub(crate) fn prune(tx: &mut Tx<'_>, prune: &Prune) -> Result<(Pruned, DeleteProgress), Refusal> {
    let mut candidates = prune.candidates(tx.connection)?;
    let next = prune.next(&candidates);
    candidates.retain(|candidate| prune.is_to_delete(candidate));
    let deleted: Vec<String> = candidates.iter().map(|(run, ..)| run.to_string()).collect();
    if !deleted.is_empty() {
        let list = format!("[\"{}\"]", deleted.join("\",\""));
        for statement in [sql::PRUNE_HEARTBEATS, sql::PRUNE_TAGS, sql::PRUNE_RUNS] {
            tx.execute(statement, [&list])?;
        }
    }
    candidates.iter().for_each(|(_, status, _)| tx.count_deleted(*status));
    let mut budget = DELETE_BYTES_MAX;
    for run in &deleted {
        if delete_rows(tx, run, &mut budget)? == DeleteProgress::Partial {
            tx.execute(sql::LEFTOVER_ADD, [run])?;
        }
    }
    let progress = delete_leftovers(tx, &mut budget)?;
    Ok((Pruned { runs: deleted.len() as u64, next }, progress))
}

/// Deletes some of the remaining rows of deleted runs.
pub(crate) fn prune_leftovers(tx: &mut Tx<'_>, (): &()) -> Result<DeleteProgress, Refusal> {
    Ok(delete_leftovers(tx, &mut DELETE_BYTES_MAX.clone())?)
}

fn delete_leftovers(tx: &Tx<'_>, budget: &mut u64) -> Result<DeleteProgress, Error> {
    let mut statement = tx.connection.prepare_cached(sql::LEFTOVERS)?;
    let runs = statement.query_map([LEFTOVERS_MAX], |row| row.get::<_, String>(0))?;
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    for run in &runs {
        if delete_rows(tx, run, budget)? == DeleteProgress::Partial {
            return Ok(DeleteProgress::Partial);
        }
        tx.execute(sql::LEFTOVER_DONE, [run])?;
    }
    Ok(if runs.len() < LEFTOVERS_MAX as usize { DeleteProgress::Complete } else { DeleteProgress::Partial })
}

/// Deletes turns and messages of a run until the budget is used up.
fn delete_rows(tx: &Tx<'_>, run: &str, budget: &mut u64) -> Result<DeleteProgress, Error> {
    for turn in rows_within_budget(tx, sql::PRUNE_TURN_SIZES, run, budget)? {
        tx.execute(sql::PRUNE_TURN, [turn])?;
    }
    for position in rows_within_budget(tx, sql::PRUNE_MESSAGE_SIZES, run, budget)? {
        tx.execute(sql::PRUNE_MESSAGE, params![run, position])?;
    }
    Ok(if *budget > 0 { DeleteProgress::Complete } else { DeleteProgress::Partial })
}

/// The rows of a run that can be deleted within the budget. Subtracts their cost from it.
fn rows_within_budget(tx: &Tx<'_>, sql: &str, run: &str, budget: &mut u64) -> Result<Vec<i64>, Error> {
    let mut rows = Vec::new();
    if *budget == 0 {
        return Ok(rows);
    }
    let mut statement = tx.connection.prepare_cached(sql)?;
    let mut found = statement.query([run])?;
    while *budget > 0
        && let Some(row) = found.next()?
    {
        rows.push(row.get(0)?);
        let bytes = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        *budget = budget.saturating_sub(bytes + DELETE_ROW_BYTES);
    }
    Ok(rows)
}
