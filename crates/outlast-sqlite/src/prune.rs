//! Pruning: what ended long ago is forgotten, a part at a time.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Status, Timestamp};
use rusqlite::params;

use crate::error::Refusal;
use crate::row::{maybe_moment, word};
use crate::sql;
use crate::tx::Tx;

/// What to look at, and what to forget of it.
pub(crate) struct Prune {
    pub(crate) before: Timestamp,
    pub(crate) after: Option<RunId>,
    pub(crate) limit: usize,
}

/// Forgets the runs of one part that ended before the moment.
pub(crate) fn prune(tx: &mut Tx<'_>, prune: &Prune) -> Result<Pruned, Refusal> {
    let limit = prune.limit.min(PRUNE_RUNS_MAX);
    let part = look(tx, prune.after, limit)?;
    let next = part.last().filter(|_| part.len() == limit).map(|(run, ..)| *run);
    let mut forgotten = Vec::new();
    for (run, status, ended_at) in part {
        if ended_at.is_some_and(|at| at < prune.before) {
            tx.count_gone(status);
            forgotten.push(format!("\"{run}\""));
        }
    }
    if !forgotten.is_empty() {
        let list = format!("[{}]", forgotten.join(","));
        for statement in [sql::PRUNE_TURNS, sql::PRUNE_INBOX, sql::PRUNE_TAGS, sql::PRUNE_RUNS] {
            tx.execute(statement, [&list])?;
        }
    }
    Ok(Pruned { runs: forgotten.len() as u64, next })
}

type Seen = (RunId, Status, Option<Timestamp>);

fn look(tx: &Tx<'_>, after: Option<RunId>, limit: usize) -> Result<Vec<Seen>, rusqlite::Error> {
    let mut statement = tx.connection.prepare_cached(sql::PRUNE_LOOK)?;
    // Every id comes behind the empty text.
    let after = after.map_or_else(String::new, |run| run.to_string());
    let rows = statement.query_map(params![after, limit as i64], |row| {
        Ok((word(row, 0)?, word(row, 1)?, maybe_moment(row, 2)?))
    })?;
    rows.collect()
}
