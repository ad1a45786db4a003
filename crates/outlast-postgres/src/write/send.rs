//! Sending messages: one statement adds them to inboxes, counts them, and makes their runs ready.

use std::collections::{BTreeSet, HashSet};

use outlast_core::refusal::{Holder, Receiver, check_send, no_run, token_not_held, unreadable_by_holder};
use outlast_core::{NewMessage, Sent, Status, TokenHash, WorldError};
use tokio_postgres::Row;

use crate::clock::TimeSource;
use crate::connection::database::{CallError, Database, Parameter};
use crate::encoding::message::{NewMessages, limits};
use crate::encoding::row::{InvalidRow, get, number, parsed, text};
use crate::error::corrupt_error;

/// The number of messages that one statement carries.
const BATCH_MAX: usize = 1_000;

/// Appends messages to inboxes. Returns their positions.
pub(crate) async fn send(
    database: &Database,
    time: &TimeSource,
    messages: &[NewMessage],
) -> Result<Vec<Result<Sent, WorldError>>, WorldError> {
    let mut answers = Vec::with_capacity(messages.len());
    while answers.len() < messages.len() {
        let batch = next_batch(&messages[answers.len()..]);
        match send_batch(database, time, batch).await? {
            Ok(batch) => answers.extend(batch),
            Err(failure) if failure.is_statement_specific() && batch.len() > 1 => {
                for message in batch {
                    let message = std::slice::from_ref(message);
                    answers.extend(Box::pin(send(database, time, message)).await?);
                }
            }
            Err(failure) if messages.len() == batch.len() && !failure.is_statement_specific() => {
                return Err(database.world_error(&failure));
            }
            Err(failure) => {
                let error = database.world_error(&failure);
                answers.extend(batch.iter().map(|_| Err(error.clone())));
            }
        }
    }
    Ok(answers)
}

/// The first messages that fit into one statement. It contains no message twice.
fn next_batch(messages: &[NewMessage]) -> &[NewMessage] {
    let mut seen = HashSet::new();
    let fits = messages.iter().take(BATCH_MAX).take_while(|message| seen.insert((message.run, message.id)));
    &messages[..fits.count()]
}

/// Sends one message to a token.
pub(crate) async fn send_to_token(
    database: &Database,
    time: &TimeSource,
    message: &NewMessage,
    hash: TokenHash,
) -> Result<Sent, WorldError> {
    let parameters = SendParameters::of(std::slice::from_ref(message))?;
    let at = time.statement_time();
    let [_, _, rows, bodies, raws, limits] = parameters.values(&at);
    let (hash, run, id) = (hash.to_string(), message.run.to_string(), message.id.to_string());
    let values: [Parameter<'_>; 8] = [&at, &hash, &run, &id, rows, bodies, raws, limits];
    let rows = database.call(&database.sql.send_to_token, &values).await?;
    let answer = rows.first().map_or(Ok(Err(no_run(message.run))), |row| read_answer(message, row));
    answer.map_err(|why| corrupt_error(&database.place, &why))?
}

/// The answers to a batch, or why the statement failed.
type BatchAnswers = Result<Vec<Result<Sent, WorldError>>, CallError>;

/// Sends messages with one statement. The inner error is that of the statement: the caller decides whether the messages
/// are sent separately. The outer one is about a value that cannot be stored, or a row that cannot be read.
async fn send_batch(
    database: &Database,
    time: &TimeSource,
    messages: &[NewMessage],
) -> Result<BatchAnswers, WorldError> {
    let parameters = SendParameters::of(messages)?;
    let at = time.statement_time();
    let rows = match database.try_call(&database.sql.send, &parameters.values(&at)).await {
        Ok(rows) => rows,
        Err(failure) => return Ok(Err(failure)),
    };
    let answers = messages.iter().zip(&rows).map(|(message, row)| read_answer(message, row));
    let answers = answers.collect::<Result<Vec<_>, InvalidRow>>();
    answers.map(Ok).map_err(|why| corrupt_error(&database.place, &why))
}

/// Messages as parameters of `send.sql`.
pub(crate) struct SendParameters {
    runs: Vec<String>,
    rows: String,
    messages: NewMessages,
    limits: Vec<i64>,
}

impl SendParameters {
    pub(crate) fn of(sent: &[NewMessage]) -> Result<Self, WorldError> {
        let mut messages = NewMessages::default();
        messages.add(sent, None)?;
        let runs: BTreeSet<_> = sent.iter().map(|message| message.run).collect();
        let runs = runs.iter().map(ToString::to_string).collect();
        Ok(Self { runs, rows: messages.rows.array(), messages, limits: limits() })
    }

    pub(crate) fn values<'a>(&'a self, at: &'a Option<i64>) -> [Parameter<'a>; 6] {
        [at, &self.runs, &self.rows, &self.messages.bodies, &self.messages.raws, &self.limits]
    }
}

/// Reads the answer to one message, from the columns of `send.sql`.
pub(crate) fn read_answer(message: &NewMessage, row: &Row) -> Result<Result<Sent, WorldError>, InvalidRow> {
    read_answer_from(message, row, [0, 1, 2, 3, 4, 5, 6])
}

/// Reads the answer to one message from these columns.
pub(crate) fn read_answer_from(
    message: &NewMessage,
    row: &Row,
    columns: [usize; 7],
) -> Result<Result<Sent, WorldError>, InvalidRow> {
    let [code, position, status, kept, was_cancelled, host, pid] = columns;
    let code = get::<&str>(row, code)?;
    let run = message.run;
    let sent = |position: u64| -> Result<Sent, InvalidRow> {
        let cancel_was_requested = get::<Option<bool>>(row, was_cancelled)?.unwrap_or(false);
        Ok(Sent { position, cancel_was_requested, is_repeated: code == "known" })
    };
    // The statement has already checked whether the run waits for the hook; if it refuses the message, it does not.
    let receiver = |unread| -> Result<Receiver<'static>, InvalidRow> {
        let is_cancel_requested = get::<Option<bool>>(row, was_cancelled)?.unwrap_or(false);
        let (status, kept) = (parsed::<Status>(row, status)?, number(row, kept)?);
        Ok(Receiver { status, unread, kept, waits: &[], is_cancel_requested })
    };
    Ok(match code {
        "sent" | "known" => Ok(sent(number(row, position)?)?),
        "closed" => Err(token_not_held(run)),
        "none" => Err(no_run(run)),
        "unreadable" => {
            let host = text(row, host)?;
            let holder = Holder { host: &host, pid: number(row, pid)?, format: number(row, position)? };
            Err(unreadable_by_holder(run, &holder, &message.body))
        }
        "ended" => check_send(run, receiver(0)?, &message.body).and(Err(no_run(run))),
        _ => check_send(run, receiver(number(row, position)?)?, &message.body).and(Err(no_run(run))),
    })
}
