//! The directory of tokens, and replies to messages.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{PRUNE_REPLIES_MAX, REPLY_KEPT};
use outlast_core::refusal::{no_run, token_not_held, token_taken};
use outlast_core::sql::ReplyColumns;
use outlast_core::{
    FreedToken, MessageBody, MessageId, NewReply, NewToken, OpNumber, RunId, StoredReply, StoredToken,
    Timestamp, TokenChanges, TokenHash, TokenOwner, TokenView,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error, OptionalExtension, Row, params};

use crate::connection::error::Refusal;
use crate::schema::row::{
    invalid_column, json, number, number_or_null, parsed, text_or_null, timestamp, timestamp_or_null,
};
use crate::schema::sql;
use crate::write::message::{parameter, payload_to_value, read_payload, read_value};
use crate::write::tx::Tx;

/// Applies what a turn does to the directory. Returns the answers to the tokens that it takes.
pub(crate) fn change_tokens(
    tx: &mut Tx<'_>,
    run: RunId,
    changes: &TokenChanges,
) -> Result<Vec<Option<MessageBody>>, Refusal> {
    for FreedToken { hash, op, kept_until } in &changes.freed {
        let (hash, run, op) = (hash.to_string(), run.to_string(), op.0 as i64);
        match kept_until {
            Some(until) => tx.execute(sql::TOKEN_KEEP, params![hash, run, op, until.as_micros()])?,
            None => tx.execute(sql::TOKEN_FREE, params![hash, run, op])?,
        };
    }
    changes.taken.iter().map(|new| take_token(tx, run, new)).collect()
}

/// Takes a token for a run. Returns the answer to the run: a refusal if another run holds the token, otherwise that it is
/// taken, if the run waits for that.
fn take_token(tx: &Tx<'_>, run: RunId, new: &NewToken) -> Result<Option<MessageBody>, Refusal> {
    let op = new.op;
    if let Some((stored, owner)) = stored_token(tx.connection, new.hash)?
        && stored.is_taken_from(run, owner, tx.now)
    {
        return Ok(Some(MessageBody::Refused { op, failure: token_taken(&new.hook, stored.run) }));
    }
    let webhook = new.webhook.as_ref().map(|webhook| serde_json::to_string(&**webhook)).transpose();
    let webhook = webhook.map_err(|error| outlast_core::WorldError::invalid(error.to_string()))?;
    tx.execute(
        sql::TOKEN_PUT,
        params![
            new.hash.to_string(),
            run.to_string(),
            op.0 as i64,
            &*new.hook,
            tx.now.as_micros(),
            new.keep_for.map(|keep_for| i64::try_from(keep_for.as_micros()).unwrap_or(i64::MAX)),
            webhook,
            new.metadata.as_ref().and_then(|metadata| metadata.codec().map(str::to_owned)),
            new.metadata.as_ref().map(payload_to_value),
        ],
    )?;
    Ok(new.notify.then_some(MessageBody::TokenTaken { op }))
}

/// Reads the columns of `token_read.sql`.
fn stored_token(
    connection: &Connection,
    hash: TokenHash,
) -> Result<Option<(StoredToken, TokenOwner)>, Error> {
    let mut statement = connection.prepare_cached(sql::TOKEN_READ)?;
    let found = statement.query_row([hash.to_string()], |row| {
        let webhook = match row.get_ref(6)? {
            ValueRef::Null => None,
            _ => Some(Arc::new(json(row, 6)?)),
        };
        let stored = StoredToken {
            run: parsed(row, 0)?,
            op: OpNumber(number(row, 1)?),
            hook: row.get(2)?,
            metadata: read_payload(row, 7, 8)?,
            webhook,
            opened_at: timestamp(row, 3)?,
            keep_for: number_or_null(row, 4)?.map(Duration::from_micros),
            kept_until: timestamp_or_null(row, 5)?,
        };
        Ok((stored, TokenOwner::of_run(row.get(9)?, timestamp_or_null(row, 10)?)))
    });
    found.optional()
}

/// Looks a token up.
pub(crate) fn token(
    connection: &Connection,
    hash: TokenHash,
    now: Timestamp,
) -> Result<Option<TokenView>, Refusal> {
    let found = stored_token(connection, hash)?;
    let found = found.filter(|(stored, _)| stored.kept_until.is_none_or(|until| until > now));
    Ok(found.map(|(stored, owner)| stored.view(owner)))
}

/// Checks that a run holds the token to which a message is sent, if it is sent to one.
pub(crate) fn check_token(tx: &Tx<'_>, run: RunId, body: &MessageBody) -> Result<(), Refusal> {
    let Some(hash) = body.token_hash() else { return Ok(()) };
    let found = stored_token(tx.connection, hash)?;
    let is_held = found.is_some_and(|(stored, owner)| stored.run == run && stored.is_open(owner));
    if is_held { Ok(()) } else { Err(token_not_held(run).into()) }
}

/// Stores the replies of a turn.
pub(crate) fn put_replies(tx: &mut Tx<'_>, run: RunId, replies: &[NewReply]) -> Result<(), Error> {
    for NewReply { message, reply } in replies {
        let ReplyColumns { outcome, codec, body } = ReplyColumns::of(reply);
        let body = body.as_ref().map(parameter);
        let (id, message, at) = (run.to_string(), message.to_string(), tx.now.as_micros());
        tx.execute(sql::REPLY_PUT, params![id, message, at, outcome, codec, body])?;
    }
    if !replies.is_empty() {
        tx.after_commit.written_runs.push(run);
    }
    Ok(())
}

/// The reply of a run to a message.
pub(crate) fn reply(
    connection: &Connection,
    run: RunId,
    message: MessageId,
) -> Result<Option<StoredReply>, Refusal> {
    if !connection.prepare_cached(sql::RUN_ENDED)?.exists([run.to_string()])? {
        return Err(no_run(run).into());
    }
    let mut statement = connection.prepare_cached(sql::REPLY_READ)?;
    Ok(statement.query_row([run.to_string(), message.to_string()], read_reply).optional()?)
}

fn read_reply(row: &Row<'_>) -> Result<StoredReply, Error> {
    let columns = ReplyColumns {
        outcome: row.get_ref(1)?.as_str()?.into(),
        codec: text_or_null(row, 2)?.map(Into::into),
        body: read_value(row, 3)?,
    };
    let reply = columns.into_reply().map_err(|error| invalid_column(1, error))?;
    Ok(StoredReply { at: timestamp(row, 0)?, reply })
}

/// The hashes of tokens, and the runs and messages of replies.
type Outdated = (Vec<String>, Vec<(String, String)>);

/// The replies that are old by now, and the tokens that are not kept any more; some of them.
fn outdated(connection: &Connection, now: Timestamp) -> Result<Outdated, Error> {
    let limit = PRUNE_REPLIES_MAX as i64;
    let mut tokens = connection.prepare_cached(sql::TOKENS_OVER)?;
    let tokens = tokens.query_map([now.as_micros(), limit], |row| row.get(0))?;
    let kept = i64::try_from(REPLY_KEPT.as_micros()).unwrap_or(i64::MAX);
    let mut replies = connection.prepare_cached(sql::REPLIES_OLD)?;
    let replies = replies
        .query_map([now.as_micros().saturating_sub(kept), limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((tokens.collect::<Result<_, _>>()?, replies.collect::<Result<_, _>>()?))
}

/// Whether there are old replies, or tokens that are not kept any more.
pub(crate) fn has_outdated(connection: &Connection, now: Timestamp) -> Result<bool, Error> {
    let (tokens, replies) = outdated(connection, now)?;
    Ok(!tokens.is_empty() || !replies.is_empty())
}

/// Deletes some replies that are old, and tokens that are not kept any more.
pub(crate) fn prune_outdated(tx: &Tx<'_>) -> Result<(), Error> {
    let (tokens, replies) = outdated(tx.connection, tx.now)?;
    for hash in tokens {
        tx.execute(sql::TOKEN_DELETE, [hash])?;
    }
    for (run, message) in replies {
        tx.execute(sql::REPLY_DELETE, [run, message])?;
    }
    Ok(())
}
