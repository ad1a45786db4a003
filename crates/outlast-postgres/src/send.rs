//! Sending messages: the inbox row, the count, and the wake-up, together.

use std::collections::{BTreeSet, HashSet};

use outlast_core::refusal::{Holder, Receiver, check_send, no_run, unreadable_by_holder};
use outlast_core::{NewMessage, Sent, Status, WorldError};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::error::corrupt;
use crate::message::{NewMessages, Values1, limits};
use crate::row::{Damaged, get, number, text, word};
use crate::store::{Failed, Store};

/// How many messages one statement carries.
const PART_MAX: usize = 1_000;

/// Appends messages to inboxes, and answers their positions.
pub(crate) async fn send(
    store: &Store,
    time: &Time,
    messages: &[NewMessage],
) -> Result<Vec<Result<Sent, WorldError>>, WorldError> {
    let mut answers = Vec::with_capacity(messages.len());
    while answers.len() < messages.len() {
        let part = next_part(&messages[answers.len()..]);
        match send_part(store, time, part).await? {
            Ok(part) => answers.extend(part),
            Err(failed) if failed.is_about_data() && part.len() > 1 => {
                for message in part {
                    let message = std::slice::from_ref(message);
                    answers.extend(Box::pin(send(store, time, message)).await?);
                }
            }
            Err(failed) if messages.len() == part.len() && !failed.is_about_data() => {
                return Err(store.world_error(&failed));
            }
            Err(failed) => {
                let error = store.world_error(&failed);
                answers.extend(part.iter().map(|_| Err(error.clone())));
            }
        }
    }
    Ok(answers)
}

/// The first messages, up to one that is sent a second time.
fn next_part(messages: &[NewMessage]) -> &[NewMessage] {
    let mut seen = HashSet::new();
    let fits = messages.iter().take(PART_MAX).take_while(|message| seen.insert((message.run, message.id)));
    &messages[..fits.count()]
}

type Answered = Result<Vec<Result<Sent, WorldError>>, Failed>;

async fn send_part(store: &Store, time: &Time, messages: &[NewMessage]) -> Result<Answered, WorldError> {
    let asked = Asked::of(messages)?;
    let at = time.at();
    let rows = match store.try_call(&store.sql.send, &asked.values(&at)).await {
        Ok(rows) => rows,
        Err(failed) => return Ok(Err(failed)),
    };
    let answers = messages.iter().zip(&rows).map(|(message, row)| answer(message, row));
    let answers = answers.collect::<Result<Vec<_>, Damaged>>();
    answers.map(Ok).map_err(|why| corrupt(&store.place, &why))
}

/// Messages as the values of `send.sql`.
pub(crate) struct Asked {
    runs: Vec<String>,
    rows: String,
    messages: NewMessages,
    limits: Vec<i64>,
}

impl Asked {
    pub(crate) fn of(sent: &[NewMessage]) -> Result<Self, WorldError> {
        let mut messages = NewMessages::default();
        messages.add(sent, None)?;
        let runs: BTreeSet<_> = sent.iter().map(|message| message.run).collect();
        let runs = runs.iter().map(ToString::to_string).collect();
        Ok(Self { runs, rows: messages.rows.json(), messages, limits: limits() })
    }

    pub(crate) fn values<'a>(&'a self, at: &'a Option<i64>) -> [Values1<'a>; 6] {
        [at, &self.runs, &self.rows, &self.messages.bodies, &self.messages.raws, &self.limits]
    }
}

pub(crate) fn answer(message: &NewMessage, row: &Row) -> Result<Result<Sent, WorldError>, Damaged> {
    let run = message.run;
    let sent = |position| -> Result<Sent, Damaged> {
        Ok(Sent { position, cancel_was_requested: get::<Option<bool>>(row, 4)?.unwrap_or(false) })
    };
    // The statement has looked whether the run waits for the hook: one that it refuses does not.
    let receiver = |unread| -> Result<Receiver<'static>, Damaged> {
        Ok(Receiver { status: word::<Status>(row, 2)?, unread, kept: number(row, 3)?, waits: &[] })
    };
    Ok(match get::<&str>(row, 0)? {
        "sent" => Ok(sent(number(row, 1)?)?),
        "none" => Err(no_run(run)),
        "unreadable" => {
            let host = text(row, 5)?;
            let holder = Holder { host: &host, pid: number(row, 6)?, format: number(row, 1)? };
            Err(unreadable_by_holder(run, &holder, &message.body))
        }
        "ended" => check_send(run, receiver(0)?, &message.body).and(Err(no_run(run))),
        _ => check_send(run, receiver(number(row, 1)?)?, &message.body).and(Err(no_run(run))),
    })
}
