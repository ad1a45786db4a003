//! Heartbeat details of attempts. They are stored outside the history until the attempt ends.

use outlast_core::{HeartbeatDetails, OpNumber, RunId};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, params};

use crate::schema::row::{number, to_i64};
use crate::schema::sql;
use crate::write::message::{payload_to_value, read_payload};
use crate::write::tx::Tx;

/// The heartbeat details of one attempt, encoded on the caller's thread.
pub(crate) struct EncodedHeartbeat {
    run: String,
    op: i64,
    attempt: u32,
    /// The codec and the body of the details; `None` if the attempt has ended.
    payload: Option<(Option<String>, Value)>,
}

impl EncodedHeartbeat {
    pub(crate) fn encode(details: &HeartbeatDetails) -> Self {
        let payload = details.details.as_ref();
        Self {
            run: details.run.to_string(),
            op: to_i64(details.op.0),
            attempt: details.attempt,
            payload: payload.map(|payload| (payload.codec().map(str::to_owned), payload_to_value(payload))),
        }
    }

    /// Stores or deletes the details, if the session holds the run.
    pub(crate) fn store(&self, tx: &Tx<'_>, session: &str) -> Result<(), Error> {
        let Self { run, op, attempt, payload } = self;
        match payload {
            Some((codec, body)) => {
                tx.execute(sql::HEARTBEAT_PUT, params![run, op, attempt, codec, body, session])?
            }
            None => tx.execute(sql::HEARTBEAT_DELETE, params![run, op, attempt, session])?,
        };
        Ok(())
    }
}

/// Whether details of any attempt are stored.
pub(crate) fn any_stored(connection: &Connection) -> Result<bool, Error> {
    connection.prepare_cached(sql::HEARTBEATS_ANY)?.query_row([], |row| row.get(0))
}

/// The stored details of all attempts of a run.
pub(crate) fn details_of_run(connection: &Connection, run: RunId) -> Result<Vec<HeartbeatDetails>, Error> {
    let mut statement = connection.prepare_cached(sql::HEARTBEATS)?;
    let rows = statement.query_map([run.to_string()], |row| {
        Ok(HeartbeatDetails {
            run,
            op: OpNumber(number(row, 0)?),
            attempt: number(row, 1)?,
            details: read_payload(row, 2, 3)?,
        })
    })?;
    rows.collect()
}
