//! Starting runs: the row, the first turn and the key, or the run that was there before.

use std::collections::HashSet;

use outlast_core::limits::PAYLOAD_BYTES_MAX;
use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{Event, RunId, Start, Started, WorldError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::clock::Time;
use crate::error::{corrupt, known_rules};
use crate::fields::Rows;
use crate::message::Values1;
use crate::row::{Damaged, get, maybe_moment, maybe_text, micros, moment, word};
use crate::skew::millis_of;
use crate::store::{Failed, Store};

/// How many bytes of events one statement carries; more go in several.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 * PAYLOAD_BYTES_MAX;

/// Runs to start: small fields, and their first events beside them.
#[derive(Debug, Default)]
pub(crate) struct NewRuns {
    pub(crate) rows: Rows,
    pub(crate) events: Vec<String>,
    /// Whether one of them has a key or tags.
    has_names: bool,
}

impl NewRuns {
    /// Adds a start. The caller may add more fields to it.
    pub(crate) fn add(&mut self, start: &Start) {
        let rows = &mut self.rows;
        rows.begin();
        rows.word("turn", start.turn);
        rows.number("rules", i64::from(start.rules));
        rows.moment("not_before", start.not_before);
        rows.moment("deadline", start.deadline);
        rows.tags("tags", start.tags.iter());
        add_names(rows, start);
        add_identity(rows, start);
        let mut events = String::new();
        Event::write_all(&[start.event()], &mut events);
        self.events.push(events);
        self.has_names |= start.key.is_some() || !start.tags.is_empty();
    }
}

/// The run, and the key by which it is started.
pub(crate) fn add_names(rows: &mut Rows, start: &Start) {
    rows.word("run", start.run);
    if let Some(key) = &start.key {
        rows.text("key", &key.text);
        rows.word("digest", format_args!("{:032x}", key.digest));
        if let Some(window) = key.window {
            rows.number("window", micros(window));
        }
    }
}

/// What a run is and belongs to, for its whole life.
pub(crate) fn add_identity(rows: &mut Rows, start: &Start) {
    rows.number("born", millis_of(start.run));
    rows.text("workflow", &start.workflow);
    rows.number("version", i64::from(start.version));
    rows.number("format", i64::from(start.format()));
    rows.text("queue", &start.queue);
    rows.number("priority", i64::from(start.priority));
    if let Some(parent) = &start.parent {
        rows.word("parent", parent.run);
        rows.number("parent_op", parent.op.0 as i64);
        rows.word("root", parent.root);
        rows.json_value("awaits", if parent.awaits { "true" } else { "false" });
    }
}

/// The start with the rules that every joined worker knows.
pub(crate) fn lowered(start: &Start, rules: Option<u32>) -> Start {
    Start { rules: rules.map_or(start.rules, |rules| rules.min(start.rules)), ..start.clone() }
}

/// What a start came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) started: Started,
    /// The run was there before, by its id or key: it may have ended.
    pub(crate) was_there: bool,
}

impl Begun {
    fn new(start: &Start) -> Self {
        Self { started: Started { run: start.run, is_new: true }, was_there: false }
    }
}

/// Starts runs that nobody holds.
pub(crate) async fn start(
    store: &Store,
    time: &Time,
    starts: &[Start],
) -> Result<Vec<Result<Begun, WorldError>>, WorldError> {
    let mut answers: Vec<Result<Begun, WorldError>> =
        starts.iter().map(|start| check_start(start).map(|()| Begun::new(start))).collect();
    let mut rest: Vec<usize> = (0..starts.len()).filter(|index| answers[*index].is_ok()).collect();
    rest.reverse();
    while !rest.is_empty() {
        let part = next_part(starts, &mut rest);
        match start_part(store, time, &part.iter().map(|index| &starts[*index]).collect::<Vec<_>>()).await {
            Ok(told) => {
                for (nth, answer) in told {
                    let Some(&index) = part.get(nth) else { continue };
                    let started = answer.resolve(&starts[index]);
                    answers[index] = started.map(|started| Begun { started, was_there: true });
                }
            }
            // One of them cannot be stored: which one, is found by trying each alone.
            Err(failed) if failed.is_about_data() && part.len() > 1 => {
                for index in part {
                    answers[index] = Box::pin(start(store, time, &starts[index..=index])).await?.remove(0);
                }
            }
            Err(failed) if part.len() == starts.len() && !failed.is_about_data() => {
                return Err(store.world_error(&failed));
            }
            Err(failed) => {
                let error = store.world_error(&failed);
                part.into_iter().for_each(|index| answers[index] = Err(error.clone()));
            }
        }
    }
    Ok(answers)
}

/// Takes as many starts as one statement carries: no run and no key twice.
fn next_part(starts: &[Start], rest: &mut Vec<usize>) -> Vec<usize> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    let (mut runs, mut keys) = (HashSet::new(), HashSet::new());
    let mut fits = |index: usize| {
        let start = &starts[index];
        let is_new_key = start.key.as_ref().is_none_or(|key| !keys.contains(key.text.as_str()));
        let fits = is_new_key && runs.insert(start.run);
        if fits {
            keys.extend(start.key.as_ref().map(|key| key.text.as_str()));
        }
        fits
    };
    while bytes < STATEMENT_BYTES_MAX
        && let Some(index) = rest.pop_if(|index| fits(*index))
    {
        bytes += starts[index].input.bytes().len();
        part.push(index);
    }
    part
}

/// A run that was there already, by a start's id or key.
#[derive(Debug)]
pub(crate) struct Existing {
    pub(crate) run: RunId,
    pub(crate) workflow: String,
    pub(crate) by: By,
}

/// By what a run was there already.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Its id: the start was repeated, and is answered as it was the first time.
    Id,
    /// The key of a start that asks for the same.
    Key,
    /// The key of a start that asks for something else.
    OthersKey,
}

impl Existing {
    pub(crate) fn resolve(self, start: &Start) -> Result<Started, WorldError> {
        match self.by {
            By::Id | By::Key => Ok(Started { run: self.run, is_new: self.by == By::Id }),
            By::OthersKey => Err(key_taken(start, self.run, &self.workflow)),
        }
    }
}

async fn start_part(store: &Store, time: &Time, starts: &[&Start]) -> Result<Vec<(usize, Existing)>, Failed> {
    let mut rules = None;
    loop {
        let mut new = NewRuns::default();
        starts.iter().for_each(|start| new.add(&lowered(start, rules)));
        match try_start(store, time, &new).await {
            // Each try knows lower rules, so this ends.
            Err(Failed::Refused(error)) if known_rules(&error).is_some() => rules = known_rules(&error),
            answer => return answer,
        }
    }
}

async fn try_start(store: &Store, time: &Time, new: &NewRuns) -> Result<Vec<(usize, Existing)>, Failed> {
    let at = time.at();
    if new.rows.count() == 1 && !new.has_names {
        let values: [Values1<'_>; 3] = [&at, &new.rows.only(), &new.events[0]];
        let rows = match store.try_call(&store.sql.start_one, &values).await {
            // Something is left of a run that was forgotten: the statement for all starts deletes that.
            Err(Failed::Refused(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Vec::new(),
            rows => rows?,
        };
        let moment = rows.first().map_or(Ok(None), |row| maybe_moment(row, 0));
        if let Some(now) = moment.map_err(|why| Failed::Corrupt(corrupt(&store.place, &why)))? {
            time.learn(now);
            return Ok(Vec::new());
        }
    }
    let values: [Values1<'_>; 4] = [&at, &new.rows.json(), &new.events, &false];
    let rows = store.try_call(&store.sql.start, &values).await?;
    existing(&rows, time).map_err(|why| Failed::Corrupt(corrupt(&store.place, &why)))
}

/// The starts that were not simply new, by their place in the batch.
pub(crate) fn existing(rows: &[Row], time: &Time) -> Result<Vec<(usize, Existing)>, Damaged> {
    let mut existing = Vec::new();
    for row in rows {
        let nth: i32 = get(row, 0)?;
        if nth == 0 {
            time.learn(moment(row, 4)?);
            continue;
        }
        let by = match get::<&str>(row, 1)? {
            "same" => By::Id,
            "other" => By::Key,
            _ => By::OthersKey,
        };
        // One that was there by its id comes without its workflow, when it has a key.
        let workflow = maybe_text(row, 3)?.unwrap_or_default();
        existing.push((nth as usize - 1, Existing { run: word(row, 2)?, workflow, by }));
    }
    Ok(existing)
}
