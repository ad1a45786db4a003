//! Pruning: what ended long ago is forgotten, a part at a time.
//!
//! A run is forgotten at once: its row goes, and with it all that leads to the others. Its turns and messages
//! go by the same statement as far as that stays short; what is left over is swept away by others.

use outlast_core::limits::PRUNE_RUNS_MAX;
use outlast_core::{Pruned, RunId, Timestamp, WorldError};

use crate::error::corrupt;
use crate::row::{Damaged, get, maybe_word, number};
use crate::store::Store;

/// How many turns and messages one statement sweeps away.
const SWEEP_ROWS_MAX: i32 = 20_000;

/// Forgets the runs of one part that ended before the moment.
pub(crate) async fn prune(
    store: &Store,
    before: Timestamp,
    after: Option<RunId>,
    limit: usize,
) -> Result<Pruned, WorldError> {
    // Every id comes behind the empty text.
    let after = after.map_or_else(String::new, |run| run.to_string());
    let limit = limit.min(PRUNE_RUNS_MAX) as i32;
    let values: [crate::message::Values1<'_>; 4] = [&before.as_micros(), &after, &limit, &SWEEP_ROWS_MAX];
    let rows = store.call(&store.sql.prune, &values).await?;
    let read = || {
        let row = rows.first().ok_or_else(|| crate::row::damaged(0, "there is no answer"))?;
        Ok((Pruned { runs: number(row, 0)?, next: maybe_word(row, 1)? }, get::<bool>(row, 2)?))
    };
    let (pruned, mut has_more) = read().map_err(|why: Damaged| corrupt(&store.place, &why))?;
    while has_more {
        let rows = store.call(&store.sql.sweep_leftovers, &[&SWEEP_ROWS_MAX]).await?;
        has_more = rows.first().is_some_and(|row| get(row, 0).unwrap_or(false));
    }
    Ok(pruned)
}
