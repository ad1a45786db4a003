//! Reopening a run that has ended: one statement changes its row and puts the message of the retry into its inbox.

use outlast_core::refusal::no_run;
use outlast_core::state::{EndedRun, reopened};
use outlast_core::{Reopen, Sent, Status, Timestamp, WorldError};

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter};
use crate::encoding::message::{NewMessages, limits};
use crate::encoding::row::{InvalidRow, get, marks, maybe_parsed, number, timestamp, to_i64};
use crate::error::corrupt_error;

/// Reopens a run, and returns the position of the message.
pub(crate) async fn reopen(
    database: &Database,
    time: &TimeSource,
    reopen: &Reopen,
) -> Result<Sent, WorldError> {
    let message = &reopen.message;
    let mut messages = NewMessages::default();
    messages.add(std::slice::from_ref(message), None)?;
    let (at, id, key) = (time.statement_time(), message.run.to_string(), message.id.to_string());
    let (events, replay_from) = (to_i64(reopen.events), to_i64(reopen.replay_from));
    let deadline = reopen.deadline.map(Timestamp::as_micros);
    let (rows, limits) = (messages.rows.array(), limits());
    let values: [Parameter<'_>; 10] =
        [&at, &id, &key, &events, &replay_from, &deadline, &rows, &messages.bodies, &messages.raws, &limits];
    let answer = database.call(&database.sql.reopen, &values).await?;
    let read = || {
        let Some(row) = answer.first() else { return Ok(None) };
        let Some(status) = maybe_parsed::<Status>(row, 0)? else { return Ok(None) };
        let run = EndedRun {
            status,
            marks: marks(row, 1)?,
            events: number(row, 2)?,
            kept: 0,
            continued: 0,
            has_outbox: false,
        };
        Ok(Some((run, timestamp(row, 3)?, get::<Option<i64>>(row, 4)?)))
    };
    match read().map_err(|why: InvalidRow| corrupt_error(&database.place, &why))? {
        None => Err(no_run(message.run)),
        Some((_, _, Some(position))) => {
            Ok(Sent { position: position.unsigned_abs(), cancel_was_requested: false, is_repeated: false })
        }
        // The statement has refused it; core knows why.
        Some((run, now, None)) => {
            reopened(&run, reopen, now)?;
            Err(WorldError::unavailable(format!("run {} was not reopened; try again", message.run)))
        }
    }
}
