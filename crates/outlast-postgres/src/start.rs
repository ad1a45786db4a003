//! Starting runs: the row, the first turn and the key, or the run that was there before.

use std::collections::HashSet;

use outlast_core::event::FORMAT;
use outlast_core::limits::PAYLOAD_BYTES_MAX;
use outlast_core::refusal::{check_start, key_taken};
use outlast_core::{Event, RunId, Start, Started, Timestamp, WorldError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::clock::Time;
use crate::error::corrupt;
use crate::message::Values1;
use crate::row::{Damaged, get, maybe_moment, maybe_text, micros, moment, word};
use crate::skew::millis_of;
use crate::store::{Failed, Store};
use crate::text::stored;

/// The format of what is written.
pub(crate) const FORMAT_STORED: i32 = FORMAT as i32;

/// How many bytes of events one statement carries; more go in several.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 * PAYLOAD_BYTES_MAX;

/// Starts, column by column.
#[derive(Debug, Default)]
pub(crate) struct NewRuns {
    pub(crate) runs: Vec<String>,
    pub(crate) turns: Vec<String>,
    pub(crate) born: Vec<i64>,
    pub(crate) workflows: Vec<String>,
    pub(crate) versions: Vec<i64>,
    pub(crate) queues: Vec<String>,
    pub(crate) priorities: Vec<i16>,
    pub(crate) keys: Vec<Option<String>>,
    pub(crate) digests: Vec<Option<String>>,
    pub(crate) windows: Vec<Option<i64>>,
    pub(crate) events: Vec<String>,
    pub(crate) parents: Vec<Option<String>>,
    pub(crate) parent_ops: Vec<Option<i64>>,
    pub(crate) parent_awaits: Vec<Option<bool>>,
    pub(crate) roots: Vec<Option<String>>,
    pub(crate) not_before: Vec<Option<i64>>,
    pub(crate) deadlines: Vec<Option<i64>>,
    pub(crate) tag_of: Vec<i32>,
    pub(crate) tag_names: Vec<String>,
    pub(crate) tag_values: Vec<String>,
}

impl NewRuns {
    /// Adds a start.
    pub(crate) fn add(&mut self, start: &Start) {
        let (key, parent) = (start.key.as_ref(), start.parent.as_ref());
        self.runs.push(start.run.to_string());
        self.turns.push(start.turn.to_string());
        self.born.push(millis_of(start.run));
        self.workflows.push(stored(&start.workflow).into_owned());
        self.versions.push(i64::from(start.version));
        self.queues.push(stored(&start.queue).into_owned());
        self.priorities.push(i16::from(start.priority));
        self.keys.push(key.map(|key| stored(&key.text).into_owned()));
        self.digests.push(key.map(|key| format!("{:032x}", key.digest)));
        self.windows.push(key.and_then(|key| key.window).map(micros));
        let mut events = String::new();
        Event::write_all(&[start.event()], &mut events);
        self.events.push(events);
        self.parents.push(parent.map(|parent| parent.run.to_string()));
        self.parent_ops.push(parent.map(|parent| parent.op.0 as i64));
        self.parent_awaits.push(parent.map(|parent| parent.awaits));
        self.roots.push(parent.map(|parent| parent.root.to_string()));
        self.not_before.push(start.not_before.map(Timestamp::as_micros));
        self.deadlines.push(start.deadline.map(Timestamp::as_micros));
        for (name, value) in &start.tags {
            self.tag_of.push(self.runs.len() as i32);
            self.tag_names.push(stored(name).into_owned());
            self.tag_values.push(stored(value).into_owned());
        }
    }

    /// Adds others; their tags go on counting from their own first.
    pub(crate) fn extend(&mut self, other: Self) {
        self.runs.extend(other.runs);
        self.turns.extend(other.turns);
        self.born.extend(other.born);
        self.workflows.extend(other.workflows);
        self.versions.extend(other.versions);
        self.queues.extend(other.queues);
        self.priorities.extend(other.priorities);
        self.keys.extend(other.keys);
        self.digests.extend(other.digests);
        self.windows.extend(other.windows);
        self.events.extend(other.events);
        self.parents.extend(other.parents);
        self.parent_ops.extend(other.parent_ops);
        self.parent_awaits.extend(other.parent_awaits);
        self.roots.extend(other.roots);
        self.not_before.extend(other.not_before);
        self.deadlines.extend(other.deadlines);
        self.tag_of.extend(other.tag_of);
        self.tag_names.extend(other.tag_names);
        self.tag_values.extend(other.tag_values);
    }

    /// How many bytes their events have.
    pub(crate) fn bytes(&self) -> usize {
        self.events.iter().map(String::len).sum()
    }

    /// The parameters of `start_one.sql`, when this is one run of the kind that it is for.
    fn parameters_of_one<'a>(&'a self, at: &'a Option<i64>) -> Option<[Values1<'a>; 16]> {
        let is_plain = self.runs.len() == 1 && self.keys[0].is_none() && self.tag_of.is_empty();
        is_plain.then(|| -> [Values1<'a>; 16] {
            [
                at,
                &FORMAT_STORED,
                &self.runs[0],
                &self.turns[0],
                &self.born[0],
                &self.workflows[0],
                &self.versions[0],
                &self.queues[0],
                &self.priorities[0],
                &self.events[0],
                &self.parents[0],
                &self.parent_ops[0],
                &self.parent_awaits[0],
                &self.roots[0],
                &self.not_before[0],
                &self.deadlines[0],
            ]
        })
    }

    /// The parameters of the statement that starts them.
    pub(crate) fn parameters<'a>(&'a self, at: &'a Option<i64>) -> [Values1<'a>; 22] {
        [
            at,
            &FORMAT_STORED,
            &self.runs,
            &self.turns,
            &self.born,
            &self.workflows,
            &self.versions,
            &self.queues,
            &self.priorities,
            &self.keys,
            &self.digests,
            &self.windows,
            &self.events,
            &self.parents,
            &self.parent_ops,
            &self.parent_awaits,
            &self.roots,
            &self.not_before,
            &self.deadlines,
            &self.tag_of,
            &self.tag_names,
            &self.tag_values,
        ]
    }
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
        let (mut new, mut part, mut bytes) = (NewRuns::default(), Vec::new(), 0);
        let mut runs = HashSet::new();
        while bytes < STATEMENT_BYTES_MAX
            && let Some(index) = rest.pop_if(|index| runs.insert(starts[*index].run))
        {
            new.add(&starts[index]);
            bytes += new.events.last().map_or(0, String::len);
            part.push(index);
        }
        match start_part(store, time, &new).await {
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

async fn start_part(store: &Store, time: &Time, new: &NewRuns) -> Result<Vec<(usize, Existing)>, Failed> {
    let at = time.at();
    if let Some(values) = new.parameters_of_one(&at) {
        let rows = match store.try_call(&store.sql.start_one, &values).await {
            // Something is left of a run that was forgotten: the statement for all starts does away with it.
            Err(Failed::Refused(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => Vec::new(),
            rows => rows?,
        };
        let moment = rows.first().map_or(Ok(None), |row| maybe_moment(row, 0));
        if let Some(now) = moment.map_err(|why| Failed::Corrupt(corrupt(&store.place, &why)))? {
            time.learn(now);
            return Ok(Vec::new());
        }
    }
    let rows = store.try_call(&store.sql.start, &new.parameters(&at)).await?;
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
