//! Sending messages: the inbox row, the count, and the wake-up, together.

use outlast_core::refusal::{check_send, no_run};
use outlast_core::{NewMessage, Status, WorldError};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::error::corrupt;
use crate::message::{Letters, Values1};
use crate::row::{Damaged, get, number, word};
use crate::store::{Failed, Store};

/// How many messages one statement carries.
const PART_MAX: usize = 1_000;

/// Appends messages to inboxes, and answers their positions.
pub(crate) async fn send(
    store: &Store,
    time: &Time,
    messages: &[NewMessage],
) -> Result<Vec<Result<u64, WorldError>>, WorldError> {
    let mut answers = Vec::with_capacity(messages.len());
    for part in messages.chunks(PART_MAX) {
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

type Sent = Result<Vec<Result<u64, WorldError>>, Failed>;

async fn send_part(store: &Store, time: &Time, messages: &[NewMessage]) -> Result<Sent, WorldError> {
    let letters = Letters::encode(messages)?;
    let at = time.at();
    let mut values: Vec<Values1<'_>> = vec![&at];
    values.extend(letters.values());
    let rows = match store.try_call(&store.sql.send, &values).await {
        Ok(rows) => rows,
        Err(failed) => return Ok(Err(failed)),
    };
    let answers = messages.iter().zip(&rows).map(|(message, row)| answer(message, row));
    let answers = answers.collect::<Result<Vec<_>, Damaged>>();
    answers.map(Ok).map_err(|why| corrupt(&store.place, &why))
}

pub(crate) fn answer(message: &NewMessage, row: &Row) -> Result<Result<u64, WorldError>, Damaged> {
    let run = message.run;
    Ok(match get::<&str>(row, 0)? {
        "sent" => Ok(number(row, 1)?),
        "none" => Err(no_run(run)),
        "ended" => check_send(run, word::<Status>(row, 2)?, 0, &message.body).map(|()| 0),
        _ => check_send(run, word::<Status>(row, 2)?, number(row, 1)?, &message.body).map(|()| 0),
    })
}
