//! Starting runs: inserts the row, the first turn and the key, or finds the run that already exists.

use std::collections::HashSet;

use outlast_core::limits::PAYLOAD_BYTES_MAX;
use outlast_core::paging::millis_of;
use outlast_core::refusal::{check_first_message, check_start, key_taken, no_run};
use outlast_core::{Event, KeyPolicy, NewMessage, RunId, Sent, Start, Started, WorldError};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use crate::clock::TimeSource;
use crate::connection::database::{CallError, Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::message::{NewMessages, limits};
use crate::encoding::row::{InvalidRow, get, maybe_text, maybe_timestamp, micros, parsed, timestamp};
use crate::error::{corrupt_error, known_rules};
use crate::write::send::read_answer_from;

/// The number of bytes of events that one statement carries.
pub(crate) const STATEMENT_BYTES_MAX: usize = 16 * PAYLOAD_BYTES_MAX;

/// Runs to start, as parameters: small fields as JSON, and the first events in an array of their own.
#[derive(Debug, Default)]
pub(crate) struct NewRuns {
    pub(crate) rows: JsonRows,
    pub(crate) events: Vec<String>,
    /// Whether one of them has a key or tags.
    has_key_or_tags: bool,
}

impl NewRuns {
    /// Adds a start. The caller may add more fields to its row.
    pub(crate) fn add(&mut self, start: &Start) {
        let rows = &mut self.rows;
        rows.begin_row();
        rows.word("turn", start.turn);
        rows.number("rules", i64::from(start.rules));
        rows.timestamp("not_before", start.not_before);
        rows.timestamp("deadline", start.deadline);
        rows.tags("tags", start.tags.iter());
        add_run_and_key(rows, start);
        add_identity(rows, start);
        let mut events = String::new();
        Event::write_all(&[start.event()], &mut events);
        self.events.push(events);
        self.has_key_or_tags |= start.key.is_some() || !start.tags.is_empty();
    }
}

/// Adds the id of a run, and the key of its start.
pub(crate) fn add_run_and_key(rows: &mut JsonRows, start: &Start) {
    rows.word("run", start.run);
    if let Some(key) = &start.key {
        rows.text("key", &key.text);
        rows.word("digest", format_args!("{:032x}", key.digest));
        if let Some(window) = key.window {
            rows.number("window", micros(window));
        }
        if key.policy == KeyPolicy::WhileRunning {
            rows.json_value("while_running", "true");
        }
        if start.replaces() {
            rows.word("replaces", start.cancel_of_replaced(start.run).id);
            rows.text("replaced_reason", &start.replaced_reason());
        }
    }
}

/// Adds the properties of a run that never change.
pub(crate) fn add_identity(rows: &mut JsonRows, start: &Start) {
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

/// The start with rules that every joined worker knows: at most `rules`, if the database has refused higher ones.
pub(crate) fn with_known_rules(start: &Start, rules: Option<u32>) -> Start {
    Start { rules: rules.map_or(start.rules, |rules| rules.min(start.rules)), ..start.clone() }
}

/// The result of a start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartResult {
    pub(crate) started: Started,
    /// Whether the run already existed, by its id or key. It may have ended.
    pub(crate) existed: bool,
}

impl StartResult {
    fn new(start: &Start) -> Self {
        Self { started: Started { run: start.run, is_new: true }, existed: false }
    }
}

/// Starts runs. No session holds them yet.
pub(crate) async fn start(
    database: &Database,
    time: &TimeSource,
    starts: &[Start],
) -> Result<Vec<Result<StartResult, WorldError>>, WorldError> {
    let mut answers: Vec<Result<StartResult, WorldError>> =
        starts.iter().map(|start| check_start(start).map(|()| StartResult::new(start))).collect();
    let mut remaining: Vec<usize> = (0..starts.len()).filter(|index| answers[*index].is_ok()).collect();
    remaining.reverse();
    while !remaining.is_empty() {
        let batch = next_batch(starts, &mut remaining);
        match start_batch(database, time, &batch.iter().map(|index| &starts[*index]).collect::<Vec<_>>())
            .await
        {
            Ok(existing_runs) => {
                for (nth, existing) in existing_runs {
                    let Some(&index) = batch.get(nth) else { continue };
                    let started = existing.resolve(&starts[index]);
                    answers[index] = started.map(|started| StartResult { started, existed: true });
                }
            }
            // One of them cannot be stored. Start each alone, to find out which.
            Err(failure) if failure.is_statement_specific() && batch.len() > 1 => {
                for index in batch {
                    answers[index] = Box::pin(start(database, time, &starts[index..=index])).await?.remove(0);
                }
            }
            Err(failure) if batch.len() == starts.len() && !failure.is_statement_specific() => {
                return Err(database.world_error(&failure));
            }
            Err(failure) => {
                let error = database.world_error(&failure);
                batch.into_iter().for_each(|index| answers[index] = Err(error.clone()));
            }
        }
    }
    Ok(answers)
}

/// Starts a run, or finds the one that its key names, and sends it a message.
pub(crate) async fn start_and_send(
    database: &Database,
    time: &TimeSource,
    start: &Start,
    message: NewMessage,
) -> Result<(Started, Sent), WorldError> {
    check_start(start)?;
    check_first_message(&message)?;
    let mut messages = NewMessages::default();
    messages.add(std::slice::from_ref(&message), None)?;
    let (row, limits, at) = (messages.rows.single_object(), limits(), time.statement_time());
    let (own, mut rules) = (start.run.to_string(), None);
    let rows = loop {
        let mut new = NewRuns::default();
        new.add(&with_known_rules(start, rules));
        let (starts, NewMessages { bodies, raws, .. }) = (new.rows.array(), &messages);
        let values: [Parameter<'_>; 8] = [&at, &starts, &new.events, &own, &row, bodies, raws, &limits];
        match database.try_call(&database.sql.start_and_send, &values).await {
            // The rules become lower with each repetition, so the loop ends.
            Err(CallError::Postgres(error)) if known_rules(&error).is_some() => rules = known_rules(&error),
            rows => break rows.map_err(|failure| database.world_error(&failure))?,
        }
    };
    let corrupt = |why: InvalidRow| corrupt_error(&database.place, &why);
    let (sent, started): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| get::<i32>(row, 0).is_ok_and(|nth| nth == 2));
    let existing = read_existing_runs(&started, time).map_err(corrupt)?.into_iter().next();
    let new = Started { run: start.run, is_new: true };
    let started = existing.map_or(Ok(new), |(_, existing)| existing.resolve(start))?;
    let message = NewMessage { run: started.run, ..message };
    let row = sent.first().ok_or_else(|| no_run(started.run))?;
    Ok((started, read_answer_from(&message, row, [1, 5, 6, 7, 8, 9, 10]).map_err(corrupt)??))
}

/// Removes the starts of the next statement from the end of `remaining`, which has the indexes in descending order.
/// Returns their indexes. A statement contains no run and no key twice.
fn next_batch(starts: &[Start], remaining: &mut Vec<usize>) -> Vec<usize> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    let (mut runs, mut keys) = (HashSet::new(), HashSet::new());
    let mut add_if_new = |index: usize| {
        let start = &starts[index];
        let is_new_key = start.key.as_ref().is_none_or(|key| !keys.contains(key.text.as_str()));
        let is_new = is_new_key && runs.insert(start.run);
        if is_new {
            keys.extend(start.key.as_ref().map(|key| key.text.as_str()));
        }
        is_new
    };
    while bytes < STATEMENT_BYTES_MAX
        && let Some(index) = remaining.pop_if(|index| add_if_new(*index))
    {
        bytes += starts[index].input.bytes().len();
        batch.push(index);
    }
    batch
}

/// A run that already exists, found by the id or key of a start.
#[derive(Debug)]
pub(crate) struct ExistingRun {
    pub(crate) run: RunId,
    pub(crate) workflow: String,
    pub(crate) found_by: FoundBy,
}

/// How an existing run was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundBy {
    /// By its id: the start is a repetition, and gets the same answer as the first time.
    Id,
    /// By its key; the start has the same workflow and input.
    SameKey,
    /// By its key; the start has another workflow or input.
    ConflictingKey,
}

impl ExistingRun {
    /// The answer to the start.
    pub(crate) fn resolve(self, start: &Start) -> Result<Started, WorldError> {
        match self.found_by {
            FoundBy::Id | FoundBy::SameKey => {
                Ok(Started { run: self.run, is_new: self.found_by == FoundBy::Id })
            }
            FoundBy::ConflictingKey => Err(key_taken(start, self.run, &self.workflow)),
        }
    }
}

async fn start_batch(
    database: &Database,
    time: &TimeSource,
    starts: &[&Start],
) -> Result<Vec<(usize, ExistingRun)>, CallError> {
    let mut rules = None;
    loop {
        let mut new = NewRuns::default();
        starts.iter().for_each(|start| new.add(&with_known_rules(start, rules)));
        match execute_start(database, time, &new).await {
            // The rules become lower with each repetition, so the loop ends.
            Err(CallError::Postgres(error)) if known_rules(&error).is_some() => rules = known_rules(&error),
            answer => return answer,
        }
    }
}

/// Executes the statement for starts: that for a single run without key and tags, or that for all others.
async fn execute_start(
    database: &Database,
    time: &TimeSource,
    new: &NewRuns,
) -> Result<Vec<(usize, ExistingRun)>, CallError> {
    let at = time.statement_time();
    if new.rows.count() == 1 && !new.has_key_or_tags {
        let values: [Parameter<'_>; 3] = [&at, &new.rows.single_object(), &new.events[0]];
        let rows = match database.try_call(&database.sql.start_one, &values).await {
            // Turns of a pruned run with the same id still exist. The statement for all starts deletes them.
            Err(CallError::Postgres(error)) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                Vec::new()
            }
            rows => rows?,
        };
        let timestamp = rows.first().map_or(Ok(None), |row| maybe_timestamp(row, 0));
        if let Some(now) =
            timestamp.map_err(|why| CallError::Corrupt(corrupt_error(&database.place, &why)))?
        {
            time.observe(now);
            return Ok(Vec::new());
        }
    }
    let values: [Parameter<'_>; 4] = [&at, &new.rows.array(), &new.events, &false];
    let rows = database.try_call(&database.sql.start, &values).await?;
    read_existing_runs(&rows, time).map_err(|why| CallError::Corrupt(corrupt_error(&database.place, &why)))
}

/// Reads which starts found an existing run: the index in the batch, and the run.
pub(crate) fn read_existing_runs(
    rows: &[Row],
    time: &TimeSource,
) -> Result<Vec<(usize, ExistingRun)>, InvalidRow> {
    let mut existing_runs = Vec::new();
    for row in rows {
        let nth: i32 = get(row, 0)?;
        if nth == 0 {
            time.observe(timestamp(row, 4)?);
            continue;
        }
        let found_by = match get::<&str>(row, 1)? {
            "same" => FoundBy::Id,
            "other" => FoundBy::SameKey,
            _ => FoundBy::ConflictingKey,
        };
        // The workflow may be missing if the run was found by its id.
        let workflow = maybe_text(row, 3)?.unwrap_or_default();
        existing_runs.push((nth as usize - 1, ExistingRun { run: parsed(row, 2)?, workflow, found_by }));
    }
    Ok(existing_runs)
}
