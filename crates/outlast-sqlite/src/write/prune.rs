//! Deleting runs: those that ended long ago, or one that has ended.
//!
//! The row of a run is deleted first, in one transaction with its tags, state, streams and heartbeat details. From then on the run does
//! not exist for anyone. The same transaction deletes its turns, chunks and messages, up to a limit. The rest of a longer
//! history is deleted in later transactions, so that the commits of other runs do not wait for it; until then the table
//! `leftovers` contains the run.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::refusal::{no_run, not_deletable};
use outlast_core::{Marks, Pruned, RunId, Status, Timestamp};
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::{marks, parsed, timestamp_or_null};
use crate::schema::sql;
use crate::write::tokens::{has_outdated, prune_outdated};
use crate::write::tx::Tx;

/// The number of bytes that one transaction deletes, which takes some milliseconds.
const DELETE_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// The cost of deleting a row in addition to its bytes: it changes a page of the table and one of the index.
const DELETE_ROW_BYTES: u64 = 4 * 1024;

/// The number of runs in `leftovers` that one transaction reads.
const LEFTOVERS_MAX: i64 = 1_000;

/// The statements that delete the rows of runs in tables with few rows per run.
const PRUNE_BY_LIST: [&str; 9] = [
    sql::PRUNE_TOKENS_KEEP,
    sql::PRUNE_TOKENS,
    sql::PRUNE_REPLIES,
    sql::PRUNE_HEARTBEATS,
    sql::PRUNE_TAGS,
    sql::PRUNE_STATES,
    sql::PRUNE_STREAM_WRITERS,
    sql::PRUNE_STREAMS,
    sql::PRUNE_RUNS,
];

/// The arguments of one call.
#[derive(Clone, Copy)]
pub(crate) struct Prune {
    pub(crate) before: Timestamp,
    pub(crate) after: Option<RunId>,
    pub(crate) limit: usize,
    pub(crate) now: Timestamp,
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
        let has_outdated = has_outdated(connection, self.now)?;
        Ok((!has_ended && !has_leftovers && !has_outdated)
            .then(|| Pruned { runs: 0, next: self.next(&candidates) }))
    }

    /// The runs that this call checks.
    fn candidates(&self, connection: &Connection) -> Result<Vec<PruneCandidate>, Error> {
        let mut statement = connection.prepare_cached(sql::PRUNE_CANDIDATES)?;
        // The empty text sorts before every id.
        let after = self.after.map_or_else(String::new, |run| run.to_string());
        let rows = statement.query_map(params![after, self.limit() as i64], PruneCandidate::read)?;
        rows.collect()
    }

    fn is_to_delete(&self, candidate: &PruneCandidate) -> bool {
        candidate.may_be_deleted() && candidate.ended_at.is_some_and(|at| at < self.before)
    }

    /// The run after which the next call continues; `None` if this call reached the last run.
    fn next(&self, candidates: &[PruneCandidate]) -> Option<RunId> {
        candidates.last().filter(|_| candidates.len() == self.limit()).map(|candidate| candidate.run)
    }
}

/// A run that may have to be deleted.
struct PruneCandidate {
    run: RunId,
    status: Status,
    ended_at: Option<Timestamp>,
    marks: Marks,
}

impl PruneCandidate {
    /// Reads the columns of `prune_candidates.sql` and `delete_candidate.sql`.
    fn read(row: &Row<'_>) -> Result<Self, Error> {
        let (run, status) = (parsed(row, 0)?, parsed(row, 1)?);
        Ok(Self { run, status, ended_at: timestamp_or_null(row, 2)?, marks: marks(row, 3)? })
    }

    fn may_be_deleted(&self) -> bool {
        self.ended_at.is_some() && !self.marks.is_quarantined()
    }
}

/// Deletes the candidates that ended before the given time.
pub(crate) fn prune(tx: &mut Tx<'_>, prune: &Prune) -> Result<(Pruned, DeleteProgress), Refusal> {
    let mut candidates = prune.candidates(tx.connection)?;
    let next = prune.next(&candidates);
    candidates.retain(|candidate| prune.is_to_delete(candidate));
    prune_outdated(tx)?;
    let progress = delete_all(tx, &candidates)?;
    Ok((Pruned { runs: candidates.len() as u64, next }, progress))
}

/// Deletes one run that has ended.
pub(crate) fn delete(tx: &mut Tx<'_>, run: &RunId) -> Result<DeleteProgress, Refusal> {
    let mut statement = tx.connection.prepare_cached(sql::DELETE_CANDIDATE)?;
    let found = statement.query_row([run.to_string()], PruneCandidate::read).optional()?;
    let candidate = found.ok_or_else(|| no_run(*run))?;
    if !candidate.may_be_deleted() {
        return Err(not_deletable(*run, candidate.status, candidate.marks).into());
    }
    drop(statement);
    Ok(delete_all(tx, &[candidate])?)
}

/// Deletes these runs, and some of the remaining rows of deleted runs.
fn delete_all(tx: &mut Tx<'_>, candidates: &[PruneCandidate]) -> Result<DeleteProgress, Error> {
    let deleted: Vec<String> = candidates.iter().map(|candidate| candidate.run.to_string()).collect();
    if !deleted.is_empty() {
        let list = format!("[\"{}\"]", deleted.join("\",\""));
        for statement in PRUNE_BY_LIST {
            tx.execute(statement, [&list])?;
        }
    }
    candidates.iter().for_each(|candidate| tx.count_deleted(candidate.status));
    let mut budget = DELETE_BYTES_MAX;
    for run in &deleted {
        if delete_rows(tx, run, &mut budget)? == DeleteProgress::Partial {
            tx.execute(sql::LEFTOVER_ADD, [run])?;
        }
    }
    delete_leftovers(tx, &mut budget)
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

/// Deletes turns, chunks and messages of a run until the budget is used up.
fn delete_rows(tx: &Tx<'_>, run: &str, budget: &mut u64) -> Result<DeleteProgress, Error> {
    for turn in rows_within_budget(tx, sql::PRUNE_TURN_SIZES, run, budget)? {
        tx.execute(sql::PRUNE_TURN, [turn])?;
    }
    for chunks in rows_within_budget(tx, sql::PRUNE_CHUNK_SIZES, run, budget)? {
        tx.execute(sql::PRUNE_CHUNK, [chunks])?;
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
