//! Queues: how many of their runs are ready, and how many are held.
//!
//! Runs are counted in the index for claims, line by line (see [`ready`](crate::sessions::ready)): the search for the next
//! line skips all runs of the last one, and the count of a line ends at a limit. So runs that are not ready yet cost
//! nothing, however many they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use outlast_core::limits::{
    PRIORITY_MAX, QUEUE_COUNT_MAX, QUEUE_GROUPS_READ_MAX, QUEUE_HELD_READ_MAX, QUEUES_LISTED_MAX,
};
use outlast_core::{QueueView, Timestamp};
use rusqlite::{Connection, Error, OptionalExtension, params};

use crate::connection::error::Refusal;
use crate::schema::row::{number, timestamp, timestamp_or_null};
use crate::schema::sql;

/// A line of the index for claims.
#[derive(Default)]
struct ReadyLine {
    queue: String,
    workflow: String,
    version: u32,
    line: String,
}

impl ReadyLine {
    /// Whether builds failed to continue the runs of the line. Their list is the last part of it.
    fn has_failed_builds(&self) -> bool {
        self.line.splitn(3, ' ').nth(2).is_some_and(|builds| !builds.is_empty())
    }
}

/// The queues by name.
pub(crate) fn queues(connection: &Connection, now: Timestamp) -> Result<Vec<QueueView>, Refusal> {
    let mut queues = BTreeMap::new();
    add_ready(connection, now, &mut queues)?;
    add_ready_without_code(connection, now, &mut queues)?;
    let mut held = connection.prepare_cached(sql::QUEUES_HELD)?;
    let mut rows = held.query([QUEUE_HELD_READ_MAX as i64])?;
    while let Some(row) = rows.next()? {
        of_name(&mut queues, &row.get::<_, String>(0)?).running += 1;
    }
    Ok(queues.into_values().take(QUEUES_LISTED_MAX).collect())
}

fn of_name<'a>(queues: &'a mut BTreeMap<Arc<str>, QueueView>, name: &str) -> &'a mut QueueView {
    if !queues.contains_key(name) {
        queues.insert(name.into(), QueueView::empty(name));
    }
    queues.entry(name.into()).or_insert_with(|| QueueView::empty(name))
}

/// Counts the ready runs of each queue: of one line after the other, up to a number of lines.
fn add_ready(
    connection: &Connection,
    now: Timestamp,
    queues: &mut BTreeMap<Arc<str>, QueueView>,
) -> Result<(), Error> {
    let mut next_line = connection.prepare_cached(sql::QUEUE_NEXT_LINE)?;
    let mut last = ReadyLine::default();
    for _ in 0..QUEUE_GROUPS_READ_MAX {
        let found = next_line
            .query_row(params![last.queue, last.workflow, last.version, last.line], |row| {
                Ok(ReadyLine {
                    queue: row.get(0)?,
                    workflow: row.get(1)?,
                    version: number(row, 2)?,
                    line: row.get(3)?,
                })
            })
            .optional()?;
        let Some(line) = found else { break };
        if queues.len() >= QUEUES_LISTED_MAX && !queues.contains_key(&*line.queue) {
            break;
        }
        count_line(connection, now, &line, of_name(queues, &line.queue))?;
        last = line;
    }
    Ok(())
}

/// Counts the ready runs of a line, one priority after the other.
fn count_line(
    connection: &Connection,
    now: Timestamp,
    line: &ReadyLine,
    queue: &mut QueueView,
) -> Result<(), Error> {
    let is_stuck = line.has_failed_builds();
    let mut next_priority = connection.prepare_cached(sql::QUEUE_NEXT_PRIORITY)?;
    let count = if is_stuck { sql::QUEUE_READY_FAILED } else { sql::QUEUE_READY };
    let mut count = connection.prepare_cached(count)?;
    let mut below = i64::from(PRIORITY_MAX) + 1;
    loop {
        let params = params![line.queue, line.workflow, line.version, line.line, below];
        let found = next_priority.query_row(params, |row| row.get(0)).optional()?;
        let Some(priority) = found else { return Ok(()) };
        below = priority;
        let counted = if is_stuck { queue.stuck } else { queue.ready };
        // The first run is read even if no more are counted: it may be the oldest.
        let left = (QUEUE_COUNT_MAX as i64 - counted as i64).max(1);
        let params =
            params![line.queue, line.workflow, line.version, line.line, priority, now.as_micros(), left];
        let (runs, oldest) =
            count.query_row(params, |row| Ok((number(row, 0)?, timestamp_or_null(row, 1)?)))?;
        if is_stuck {
            queue.add_stuck(runs);
        } else {
            queue.add_ready(runs, oldest);
        }
    }
}

/// Adds runs that every worker may claim, and that are in lines of runs that builds failed to continue.
fn add_ready_without_code(
    connection: &Connection,
    now: Timestamp,
    queues: &mut BTreeMap<Arc<str>, QueueView>,
) -> Result<(), Error> {
    let mut statement = connection.prepare_cached(sql::QUEUES_WITHOUT_CODE)?;
    let mut rows = statement.query(params![now.as_micros(), QUEUE_COUNT_MAX as i64])?;
    while let Some(row) = rows.next()? {
        of_name(queues, &row.get::<_, String>(0)?).add_ready(1, Some(timestamp(row, 1)?));
    }
    Ok(())
}
