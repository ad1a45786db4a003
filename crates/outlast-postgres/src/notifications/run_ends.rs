//! Ends of runs: reading them, and delivering them to the waiters of this process.
//!
//! A waiter registers before it reads the database, so that no end falls between the two.

use std::collections::{BTreeSet, HashMap};

use outlast_core::{Ended, Event, Outcome, RunId, WorldError};

use super::subscribers::Subscribers;
use crate::connection::database::Database;
use crate::encoding::row::{InvalidRow, get, invalid_column, parsed};
use crate::error::corrupt_error;

/// The number of awaited runs whose ends one poll reads.
const POLLED_RUNS_MAX: usize = 1_000;

/// How each of the runs ended, `None` for a run that has not. A run that does not exist is left out.
pub(crate) async fn read_ends(
    database: &Database,
    runs: &[RunId],
) -> Result<HashMap<RunId, Option<Ended>>, WorldError> {
    let ids: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = database.call(&database.sql.run_ends, &[&ids]).await?;
    let ended = |row: &tokio_postgres::Row| {
        let run: RunId = parsed(row, 0)?;
        let outcome = match get::<Option<&str>>(row, 1)? {
            None => None,
            Some(events) => final_outcome(events)?,
        };
        Ok((run, outcome.map(|outcome| Ended { run, outcome })))
    };
    let ends = rows.iter().map(ended).collect::<Result<_, InvalidRow>>();
    ends.map_err(|why| corrupt_error(&database.place, &why))
}

/// The outcome in the last event of a turn, if that event ends a run.
fn final_outcome(events: &str) -> Result<Option<Outcome>, InvalidRow> {
    let events = Event::read_all(events).map_err(|error| invalid_column(1, error))?;
    Ok(events.last().and_then(Outcome::of_final))
}

/// Reads the ends of awaited runs and delivers them to their waiters: of all awaited runs, or only of those in `among`.
/// After an error nothing is lost: the next poll reads them again.
pub(crate) async fn deliver_ends(
    database: &Database,
    subscribers: &Subscribers,
    among: Option<&BTreeSet<RunId>>,
) {
    let mut runs = subscribers.awaited_runs();
    if let Some(among) = among {
        runs.retain(|run| among.contains(run));
    }
    deliver_ends_of(database, subscribers, &runs).await;
}

/// Reads the ends of some awaited runs and delivers them, of others with the next call: a poll in case a notification
/// was lost costs the same however many runs are awaited. `last` is the last run that was read.
pub(crate) async fn poll_ends(database: &Database, subscribers: &Subscribers, last: &mut Option<RunId>) {
    let runs = next_to_poll(subscribers.awaited_runs(), *last);
    *last = runs.last().copied();
    deliver_ends_of(database, subscribers, &runs).await;
}

/// The runs that the next poll reads: those after the last one come first.
fn next_to_poll(mut awaited: Vec<RunId>, last: Option<RunId>) -> Vec<RunId> {
    if awaited.len() > POLLED_RUNS_MAX {
        awaited.sort_unstable_by_key(|run| (Some(*run) <= last, *run));
        awaited.truncate(POLLED_RUNS_MAX);
    }
    awaited
}

async fn deliver_ends_of(database: &Database, subscribers: &Subscribers, runs: &[RunId]) {
    if runs.is_empty() {
        return;
    }
    match read_ends(database, runs).await {
        Ok(found) => {
            for ended in found.into_values().flatten() {
                subscribers.waiters.tell(ended.run, || Some(ended.clone()));
            }
        }
        Err(error) => tracing::debug!(%error, "cannot read the ends of runs now; trying again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_read_all_awaited_runs_in_turn_and_as_many_each_time() {
        let awaited: Vec<_> = (0..2_500).rev().map(RunId::from_bits).collect();
        let (mut last, mut read) = (None, BTreeSet::new());
        for _ in 0..3 {
            let polled = next_to_poll(awaited.clone(), last);
            assert_eq!(polled.len(), POLLED_RUNS_MAX);
            last = polled.last().copied();
            read.extend(polled);
        }
        assert_eq!(read.len(), awaited.len());
        assert_eq!(next_to_poll(awaited[..10].to_vec(), last).len(), 10, "all, if they are few");
    }
}
