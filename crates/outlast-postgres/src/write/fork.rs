//! Forks: one statement starts a run with the turns of another one.

use outlast_core::paging::millis_of;
use outlast_core::refusal::{no_run, not_forkable};
use outlast_core::{Event, Fork, Started, Timestamp, WorldError};

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::message::{NewMessages, limits};
use crate::encoding::row::{InvalidRow, get, timestamp, to_i64};
use crate::error::corrupt_error;

/// Starts a fork.
pub(crate) async fn fork(database: &Database, time: &TimeSource, fork: &Fork) -> Result<Started, WorldError> {
    let started = Started { run: fork.start.run, is_new: true };
    let row = row_of(fork)?;
    let (turns, events) = turns_of(fork);
    let mut messages = NewMessages::default();
    messages.add(&fork.messages, None)?;
    let (at, of, before) = (time.statement_time(), fork.origin.of.to_string(), to_i64(fork.origin.at));
    let copied = to_i64(fork.copied);
    let ranges = ranges_of(fork);
    let (row, turns, rows) = (row.single_object(), turns.array(), messages.rows.array());
    let ranges = ranges.array();
    let limits = limits();
    let (bodies, raws) = (&messages.bodies, &messages.raws);
    let values: [Parameter<'_>; 12] =
        [&at, &row, &of, &before, &copied, &turns, &events, &rows, bodies, raws, &limits, &ranges];
    let answer = database.call(&database.sql.fork, &values).await?;
    let answer = answer.first().map(|row| Ok((get::<String>(row, 0)?, timestamp(row, 1)?))).transpose();
    let answer = answer.map_err(|why: InvalidRow| corrupt_error(&database.place, &why))?;
    let Some((code, now)) = answer else { return Err(not_forkable(fork.origin.of)) };
    time.observe(now);
    match &*code {
        "forked" | "same" => Ok(started),
        "none" => Err(no_run(fork.origin.of)),
        _ => Err(not_forkable(fork.origin.of)),
    }
}

/// The row of the new run.
fn row_of(fork: &Fork) -> Result<JsonRows, WorldError> {
    // The database sets the times of the row.
    let row = fork.row(Timestamp::from_micros(0))?;
    let start = &fork.start;
    let mut rows = JsonRows::default();
    rows.begin_row();
    rows.word("run", start.run);
    rows.word("turn", row.turn);
    rows.number("born", millis_of(start.run));
    rows.text("workflow", &start.workflow);
    rows.number("version", i64::from(start.version));
    rows.number("format", i64::from(row.format));
    rows.text("queue", &start.queue);
    rows.number("priority", i64::from(start.priority));
    rows.tags("tags", start.tags.iter());
    rows.number("turn_at", row.turn_at.as_micros());
    rows.number("replay_from", to_i64(row.columns.replay_from));
    rows.number("continued", to_i64(row.columns.continued));
    Ok(rows)
}

/// The turns that are copied as they are, by the numbers of their first events.
fn ranges_of(fork: &Fork) -> JsonRows {
    let mut rows = JsonRows::default();
    for range in &fork.ranges {
        rows.begin_row();
        rows.number("first", to_i64(*range.start()));
        rows.number("last", to_i64(*range.end()));
    }
    rows
}

/// The turns that are not copied as they are, and their events.
fn turns_of(fork: &Fork) -> (JsonRows, Vec<String>) {
    let (mut rows, mut texts) = (JsonRows::default(), Vec::new());
    for turn in &fork.rewritten {
        rows.begin_row();
        rows.number("seq", to_i64(turn.seq));
        rows.number("next_seq", to_i64(turn.seq + turn.events.len() as u64));
        rows.word("id", turn.id);
        rows.number("at", turn.at.as_micros());
        rows.text("build", &turn.build);
        let mut events = String::new();
        Event::write_all(&turn.events, &mut events);
        texts.push(events);
    }
    (rows, texts)
}
