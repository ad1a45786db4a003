//! Pruning: what ended long ago is forgotten, a part at a time.
//!
//! A run is forgotten at once: its row goes, and with it all that leads to the others. Its turns and
//! messages go in the same transaction as far as that stays short; a longer history is left over and swept
//! away in transactions of its own, so that the turns of living runs do not wait for it.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Status, Timestamp};
use rusqlite::{Connection, Error, params};

use crate::connection::error::Refusal;
use crate::schema::row::{maybe_moment, word};
use crate::schema::sql;
use crate::write::tx::Tx;

/// How much one transaction sweeps away, in bytes: some milliseconds' worth.
const SWEEP_BYTES_MAX: u64 = 8 * 1024 * 1024;

/// What a row costs besides its bytes: it touches a page of the table and one of the index.
const SWEEP_ROW_BYTES: u64 = 4 * 1024;

/// Leftover runs that one transaction looks at.
const LEFTOVERS_MAX: i64 = 1_000;

/// What to look at, and what to forget of it.
#[derive(Clone, Copy)]
pub(crate) struct Prune {
    pub(crate) before: Timestamp,
    pub(crate) after: Option<RunId>,
    pub(crate) limit: usize,
}

/// Whether there is more to sweep away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Swept {
    All,
    InPart,
}

impl Prune {
    fn limit(&self) -> usize {
        self.limit.min(PRUNE_RUNS_MAX)
    }

    /// Answers the call without a write, if there is nothing to forget; `None` when there is.
    pub(crate) fn answer_without_write(&self, connection: &Connection) -> Result<Option<Pruned>, Refusal> {
        let part = self.look(connection)?;
        let has_ended = part.iter().any(|seen| self.wants(seen));
        let has_leftovers = connection.prepare_cached(sql::LEFTOVERS)?.exists([1])?;
        Ok((!has_ended && !has_leftovers).then(|| Pruned { runs: 0, next: self.next(&part) }))
    }

    fn look(&self, connection: &Connection) -> Result<Vec<Seen>, Error> {
        let mut statement = connection.prepare_cached(sql::PRUNE_LOOK)?;
        // Every id comes behind the empty text.
        let after = self.after.map_or_else(String::new, |run| run.to_string());
        let rows = statement.query_map(params![after, self.limit() as i64], |row| {
            Ok((word(row, 0)?, word(row, 1)?, maybe_moment(row, 2)?))
        })?;
        rows.collect()
    }

    fn wants(&self, (_, _, ended_at): &Seen) -> bool {
        ended_at.is_some_and(|at| at < self.before)
    }

    fn next(&self, part: &[Seen]) -> Option<RunId> {
        part.last().filter(|_| part.len() == self.limit()).map(|(run, ..)| *run)
    }
}

type Seen = (RunId, Status, Option<Timestamp>);

/// Forgets the runs of one part that ended before the moment.
pub(crate) fn prune(tx: &mut Tx<'_>, prune: &Prune) -> Result<(Pruned, Swept), Refusal> {
    let mut part = prune.look(tx.connection)?;
    let next = prune.next(&part);
    part.retain(|seen| prune.wants(seen));
    let forgotten: Vec<String> = part.iter().map(|(run, ..)| run.to_string()).collect();
    if !forgotten.is_empty() {
        let list = format!("[\"{}\"]", forgotten.join("\",\""));
        for statement in [sql::PRUNE_HEARTBEATS, sql::PRUNE_TAGS, sql::PRUNE_RUNS] {
            tx.execute(statement, [&list])?;
        }
    }
    part.iter().for_each(|(_, status, _)| tx.count_gone(*status));
    let mut budget = SWEEP_BYTES_MAX;
    for run in &forgotten {
        if sweep_run(tx, run, &mut budget)? == Swept::InPart {
            tx.execute(sql::LEFTOVER_ADD, [run])?;
        }
    }
    let swept = sweep_leftovers(tx, &mut budget)?;
    Ok((Pruned { runs: forgotten.len() as u64, next }, swept))
}

/// Sweeps away a part of what is left of forgotten runs.
pub(crate) fn sweep(tx: &mut Tx<'_>, (): &()) -> Result<Swept, Refusal> {
    Ok(sweep_leftovers(tx, &mut SWEEP_BYTES_MAX.clone())?)
}

fn sweep_leftovers(tx: &Tx<'_>, budget: &mut u64) -> Result<Swept, Error> {
    let mut statement = tx.connection.prepare_cached(sql::LEFTOVERS)?;
    let runs = statement.query_map([LEFTOVERS_MAX], |row| row.get::<_, String>(0))?;
    let runs = runs.collect::<Result<Vec<_>, _>>()?;
    for run in &runs {
        if sweep_run(tx, run, budget)? == Swept::InPart {
            return Ok(Swept::InPart);
        }
        tx.execute(sql::LEFTOVER_DONE, [run])?;
    }
    Ok(if runs.len() < LEFTOVERS_MAX as usize { Swept::All } else { Swept::InPart })
}

/// Forgets turns and messages of a run, as long as the budget lasts.
fn sweep_run(tx: &Tx<'_>, run: &str, budget: &mut u64) -> Result<Swept, Error> {
    for turn in affordable(tx, sql::PRUNE_TURNS_LOOK, run, budget)? {
        tx.execute(sql::PRUNE_TURN, [turn])?;
    }
    for position in affordable(tx, sql::PRUNE_INBOX_LOOK, run, budget)? {
        tx.execute(sql::PRUNE_MESSAGE, params![run, position])?;
    }
    Ok(if *budget > 0 { Swept::All } else { Swept::InPart })
}

/// The rows of a run that the budget is enough for.
fn affordable(tx: &Tx<'_>, look: &str, run: &str, budget: &mut u64) -> Result<Vec<i64>, Error> {
    let mut rows = Vec::new();
    if *budget == 0 {
        return Ok(rows);
    }
    let mut statement = tx.connection.prepare_cached(look)?;
    let mut found = statement.query([run])?;
    while *budget > 0
        && let Some(row) = found.next()?
    {
        rows.push(row.get(0)?);
        let bytes = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        *budget = budget.saturating_sub(bytes + SWEEP_ROW_BYTES);
    }
    Ok(rows)
}
