//! Ends: telling those who wait for runs how they ended.
//!
//! Who waits registers first and then looks, so that no end falls between the two. Looks that come
//! together are one query: the first sends it, the others join while it queues.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use outlast_core::refusal::no_run;
use outlast_core::{Ended, Event, Outcome, RunId, WorldError};
use parking_lot::Mutex;
use rusqlite::{Connection, Error};
use tokio::sync::oneshot;

use crate::connection::error::{Refusal, closed};
use crate::read::readers::{Readers, in_view};
use crate::schema::row::word;
use crate::schema::sql;

type Answer = Result<Option<Ended>, WorldError>;

/// Looks for the ends of runs, many in one query.
#[derive(Debug)]
pub(crate) struct Ends {
    path: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
}

#[derive(Debug)]
struct Asked {
    run: RunId,
    reply: oneshot::Sender<Answer>,
}

impl Ends {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, asked: Arc::default() }
    }

    /// How the run ended, if it has.
    pub(crate) async fn look(&self, readers: &Readers, run: RunId) -> Answer {
        let (reply, answer) = oneshot::channel();
        let is_first = {
            let mut asked = self.asked.lock();
            asked.push(Asked { run, reply });
            asked.len() == 1
        };
        if is_first {
            let (asked, path) = (self.asked.clone(), self.path.clone());
            readers.run(Box::new(move |connection| {
                let asked = std::mem::take(&mut *asked.lock());
                let runs: Vec<RunId> = asked.iter().map(|asked| asked.run).collect();
                let ends = in_view(connection, |view| Ok(ends(view, &runs)?));
                answer_all(asked, ends.map_err(|refusal: Refusal| refusal.into_world(&path)));
            }));
        }
        answer.await.map_err(|_| closed())?
    }
}

fn answer_all(asked: Vec<Asked>, ends: Result<HashMap<RunId, Option<Ended>>, WorldError>) {
    for Asked { run, reply } in asked {
        let answer = match &ends {
            Ok(ends) => ends.get(&run).cloned().ok_or_else(|| no_run(run)),
            Err(error) => Err(error.clone()),
        };
        // Nobody listens any more when the caller's future was dropped.
        let _ = reply.send(answer);
    }
}

/// How each of the runs ended, `None` for those that have not; runs that are not there are left out.
pub(crate) fn ends(connection: &Connection, runs: &[RunId]) -> Result<HashMap<RunId, Option<Ended>>, Error> {
    let asked: Vec<String> = runs.iter().map(|run| format!("\"{run}\"")).collect();
    let mut statement = connection.prepare_cached(sql::RUN_ENDS)?;
    let rows = statement.query_map([format!("[{}]", asked.join(","))], |row| {
        let run: RunId = word(row, 0)?;
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
