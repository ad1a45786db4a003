//! Ends: telling those who wait for runs how they ended.
//!
//! Who waits registers first and then looks, so that no end falls between the two.

use std::collections::{BTreeSet, HashMap};

use outlast_core::{Ended, Event, Outcome, RunId, WorldError};

use crate::error::corrupt;
use crate::row::{Damaged, damaged, get, word};
use crate::store::Store;
use crate::told::Told;

/// How each of the runs ended, `None` for those that have not; runs that are not there are left out.
pub(crate) async fn ends(store: &Store, runs: &[RunId]) -> Result<HashMap<RunId, Option<Ended>>, WorldError> {
    let asked: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = store.call(&store.sql.run_ends, &[&asked]).await?;
    let ended = |row: &tokio_postgres::Row| {
        let run: RunId = word(row, 0)?;
        let outcome = match get::<Option<&str>>(row, 1)? {
            None => None,
            Some(events) => outcome(events)?,
        };
        Ok((run, outcome.map(|outcome| Ended { run, outcome })))
    };
    rows.iter().map(ended).collect::<Result<_, Damaged>>().map_err(|why| corrupt(&store.place, &why))
}

fn outcome(events: &str) -> Result<Option<Outcome>, Damaged> {
    let events = Event::read_all(events).map_err(|error| damaged(1, error))?;
    Ok(events.last().and_then(Outcome::of_final))
}

/// Tells the waiters of this process whose runs have ended; of these, if they are known. What fails now is
/// tried again by the next look.
pub(crate) async fn tell_ends(store: &Store, told: &Told, of: Option<&BTreeSet<RunId>>) {
    let mut runs = told.awaited();
    if let Some(of) = of {
        runs.retain(|run| of.contains(run));
    }
    if runs.is_empty() {
        return;
    }
    match ends(store, &runs).await {
        Ok(found) => {
            for ended in found.into_values().flatten() {
                told.waiters.tell(ended.run, || Some(ended.clone()));
            }
        }
        Err(error) => tracing::debug!(%error, "the ends of runs cannot be looked for now"),
    }
}
