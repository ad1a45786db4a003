//! How far attempts had come, as their worker last said: kept beside the history until the attempt ends.

use std::sync::Arc;

use outlast_core::{HeartbeatDetails, OpNumber, Payload, RunId};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, params};

use crate::schema::row::{number, stored};
use crate::schema::sql;
use crate::write::message::{body_of, payload_of};
use crate::write::tx::Tx;

/// The details of one attempt, written out by the caller so that the writer does not have to.
pub(crate) struct NewDetails {
    run: String,
    op: i64,
    attempt: u32,
    /// The codec and the body of the payload; `None` when the attempt has ended.
    payload: Option<(Option<String>, Value)>,
}

impl NewDetails {
    pub(crate) fn encode(details: &HeartbeatDetails) -> Self {
        let payload = details.details.as_ref();
        Self {
            run: details.run.to_string(),
            op: stored(details.op.0),
            attempt: details.attempt,
            payload: payload.map(|payload| (payload.codec().map(str::to_owned), body_of(payload))),
        }
    }

    /// Stores or forgets the details, if the session holds the run.
    pub(crate) fn keep(&self, tx: &Tx<'_>, session: &str) -> Result<(), Error> {
        let Self { run, op, attempt, payload } = self;
        match payload {
            Some((codec, body)) => {
                tx.execute(sql::HEARTBEAT_PUT, params![run, op, attempt, codec, body, session])?
            }
            None => tx.execute(sql::HEARTBEAT_FORGET, params![run, op, attempt, session])?,
        };
        Ok(())
    }
}

/// Whether details of any attempt are kept.
pub(crate) fn are_any(connection: &Connection) -> Result<bool, Error> {
    connection.prepare_cached(sql::HEARTBEATS_ANY)?.query_row([], |row| row.get(0))
}

/// The details of the attempts at the steps of a run.
pub(crate) fn of_run(connection: &Connection, run: RunId) -> Result<Vec<HeartbeatDetails>, Error> {
    let mut statement = connection.prepare_cached(sql::HEARTBEATS)?;
    let rows = statement.query_map([run.to_string()], |row| {
        let codec: Option<Arc<str>> = row.get(2)?;
        let details: Payload = payload_of(codec, row.get_ref(3)?.as_bytes()?);
        Ok(HeartbeatDetails {
            run,
            op: OpNumber(number(row, 0)?),
            attempt: number(row, 1)?,
            details: Some(details),
        })
    })?;
    rows.collect()
}
