//! How runs ended, for callers that wait for them.
//!
//! A caller registers as a waiter before it reads, so that it misses no end between the two. Concurrent reads are
//! combined into one query: the first caller queues it, and others add their runs until it is executed.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::refusal::no_run;
use outlast_core::{Ended, Event, Outcome, RunId, WorldError};
use parking_lot::Mutex;
use rusqlite::{Connection, Error};
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, world_closed};
use crate::connection::opened_file::OpenedFile;
use crate::read::readers::{ReaderPool, in_snapshot};
use crate::schema::row::parsed;
use crate::schema::sql;

type EndResult = Result<Option<Ended>, WorldError>;

/// Reads the ends of runs, many in one query.
#[derive(Debug)]
pub(crate) struct EndLookup {
    file: Arc<OpenedFile>,
    requests: Arc<Mutex<Vec<EndRequest>>>,
}

/// The request of one caller.
#[derive(Debug)]
struct EndRequest {
    run: RunId,
    reply: oneshot::Sender<EndResult>,
}

impl EndLookup {
    pub(crate) fn new(file: Arc<OpenedFile>) -> Self {
        Self { file, requests: Arc::default() }
    }

    /// How the run ended, if it has.
    pub(crate) async fn find(&self, readers: &ReaderPool, run: RunId) -> EndResult {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut requests = self.requests.lock();
            requests.push(EndRequest { run, reply });
            requests.len() == 1
        };
        if is_first {
            let (requests, file) = (self.requests.clone(), self.file.clone());
            readers.run(Box::new(move |connection| {
                let requests = std::mem::take(&mut *requests.lock());
                let runs: Vec<RunId> = requests.iter().map(|request| request.run).collect();
                let ends = in_snapshot(connection, |snapshot| Ok(find_ends(snapshot, &runs)?));
                let ends = ends.map_err(|refusal: Refusal| refusal.into_world_error(file.path()));
                answer_all(requests, file.check().and(ends));
            }));
        }
        answer.await.map_err(|_| world_closed())?
    }
}

fn answer_all(requests: Vec<EndRequest>, ends: Result<HashMap<RunId, Option<Ended>>, WorldError>) {
    for EndRequest { run, reply } in requests {
        let answer = match &ends {
            Ok(ends) => ends.get(&run).cloned().ok_or_else(|| no_run(run)),
            Err(error) => Err(error.clone()),
        };
        // Sending fails if the caller's future was dropped.
        let _ = reply.send(answer);
    }
}

/// How each of the runs ended; `None` if it has not ended. Runs that do not exist are omitted.
pub(crate) fn find_ends(
    connection: &Connection,
    runs: &[RunId],
) -> Result<HashMap<RunId, Option<Ended>>, Error> {
    let quoted: Vec<String> = runs.iter().map(|run| format!("\"{run}\"")).collect();
    let mut statement = connection.prepare_cached(sql::RUN_ENDS)?;
    let rows = statement.query_map([format!("[{}]", quoted.join(","))], |row| {
        let run: RunId = parsed(row, 0)?;
        let events: Option<String> = row.get(1)?;
        Ok((run, events.map(|events| outcome(&events)).transpose()?.flatten()))
    })?;
    rows.map(|row| row.map(|(run, outcome)| (run, outcome.map(|outcome| Ended { run, outcome })))).collect()
}

fn outcome(events: &str) -> Result<Option<Outcome>, Error> {
    let events = Event::read_all(events)
        .map_err(|error| Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, error.into()))?;
    Ok(events.last().and_then(Outcome::of_final))
}
