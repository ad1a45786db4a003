//! The directory of tokens, and replies to messages: as parameters of `commit_tokens.sql`, and read from rows.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::{PRUNE_REPLIES_MAX, REPLY_KEPT};
use outlast_core::refusal::{no_run, token_taken};
use outlast_core::{
    FreedToken, MessageId, NewReply, NewToken, OpNumber, RunId, StoredReply, StoredToken, Then, Timestamp,
    TokenHash, TokenOwner, TokenView, Turn, WorldError,
};
use tokio_postgres::Row;

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::message::{EncodedReply, StoredPayload, json_text};
use crate::encoding::row::{
    InvalidRow, get, json, maybe_number, maybe_timestamp, micros, number, parsed, text, timestamp,
};
use crate::error::corrupt_error;
use crate::write::outbox::{RUN_PLACEHOLDER, effective_outbox};

/// What turns do to the directory of tokens, and their replies.
#[derive(Debug, Default)]
pub(crate) struct TurnTokens {
    pub(crate) freed: JsonRows,
    pub(crate) taken: JsonRows,
    pub(crate) token_bodies: Vec<Option<String>>,
    pub(crate) token_raws: Vec<Option<Vec<u8>>>,
    pub(crate) replies: JsonRows,
    pub(crate) reply_bodies: Vec<Option<String>>,
    pub(crate) reply_raws: Vec<Option<Vec<u8>>>,
}

impl TurnTokens {
    pub(crate) fn is_empty(&self) -> bool {
        self.freed.count() + self.taken.count() + self.replies.count() == 0
    }

    /// Adds the tokens that a turn frees and takes, and its replies; `turn_nth` is the turn's number in its batch.
    pub(crate) fn add(&mut self, turn: &Turn, turn_nth: i64) -> Result<(), WorldError> {
        let Some(outbox) = effective_outbox(turn) else { return Ok(()) };
        for FreedToken { hash, op, kept_until } in &outbox.tokens.freed {
            let rows = &mut self.freed;
            rows.begin_row();
            rows.number("turn_nth", turn_nth);
            rows.word("hash", hash);
            rows.word("run", turn.run);
            rows.number("op", op.0 as i64);
            rows.timestamp("kept_until", *kept_until);
        }
        for (nth, new) in outbox.tokens.taken.iter().enumerate() {
            self.add_taken(turn, turn_nth, new, outbox.token_answer(turn.id, nth))?;
        }
        for reply in &outbox.replies {
            self.add_reply(turn.run, turn_nth, reply);
        }
        Ok(())
    }

    /// Adds a token that the turn takes. `answer` is the id of the message that tells the run the result.
    fn add_taken(
        &mut self,
        turn: &Turn,
        turn_nth: i64,
        new: &NewToken,
        answer: MessageId,
    ) -> Result<(), WorldError> {
        let rows = &mut self.taken;
        rows.begin_row();
        rows.number("turn_nth", turn_nth);
        rows.word("hash", new.hash);
        rows.word("run", turn.run);
        rows.number("op", new.op.0 as i64);
        rows.text("hook", &new.hook);
        if let Some(keep_for) = new.keep_for {
            rows.number("keep_for", micros(keep_for));
        }
        if let Some(webhook) = &new.webhook {
            rows.text("webhook", &json_text(&**webhook)?);
        }
        rows.word("answer", answer);
        rows.flag("notify", new.notify);
        rows.flag("ends", matches!(turn.then, Then::End(_)));
        rows.plain_text("failure", &json_text(&token_taken(&new.hook, RUN_PLACEHOLDER))?);
        rows.word("mark_run", RUN_PLACEHOLDER);
        let stored = new.metadata.as_ref().map(StoredPayload::of);
        if let Some(codec) = stored.as_ref().and_then(|stored| stored.codec.as_ref()) {
            rows.plain_text("codec", codec);
        }
        let (body, raw) = stored.map_or((None, None), |stored| (stored.body, stored.raw));
        self.token_bodies.push(body);
        self.token_raws.push(raw);
        Ok(())
    }

    fn add_reply(&mut self, run: RunId, turn_nth: i64, NewReply { message, reply }: &NewReply) {
        let rows = &mut self.replies;
        rows.begin_row();
        rows.number("turn_nth", turn_nth);
        rows.word("run", run);
        rows.word("message", message);
        let EncodedReply { outcome, payload: StoredPayload { codec, body, raw } } = EncodedReply::of(reply);
        if let Some(codec) = &codec {
            rows.plain_text("codec", codec);
        }
        rows.word("outcome", outcome);
        self.reply_bodies.push(body);
        self.reply_raws.push(raw);
    }
}

/// Looks a token up.
pub(crate) async fn token(
    database: &Database,
    hash: TokenHash,
    now: Timestamp,
) -> Result<Option<TokenView>, WorldError> {
    let rows = database.call(&database.sql.token, &[&hash.to_string()]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (stored, owner) = read_token(row).map_err(|why| corrupt_error(&database.place, &why))?;
    let is_over = stored.kept_until.is_some_and(|until| until <= now);
    Ok((!is_over).then(|| stored.view(owner)))
}

/// Reads the columns of `token.sql`.
fn read_token(row: &Row) -> Result<(StoredToken, TokenOwner), InvalidRow> {
    let webhook = match get::<Option<&str>>(row, 6)? {
        None => None,
        Some(_) => Some(Arc::new(json(row, 6)?)),
    };
    let metadata = if get::<bool>(row, 7)? { Some(StoredPayload::read(row, 8)?) } else { None };
    let stored = StoredToken {
        run: parsed(row, 0)?,
        op: OpNumber(number(row, 1)?),
        hook: text(row, 2)?.into(),
        metadata,
        webhook,
        opened_at: timestamp(row, 3)?,
        keep_for: maybe_number(row, 4)?.map(Duration::from_micros),
        kept_until: maybe_timestamp(row, 5)?,
    };
    Ok((stored, TokenOwner::of_run(get(row, 11)?, maybe_timestamp(row, 12)?)))
}

/// The reply of a run to a message.
pub(crate) async fn reply(
    database: &Database,
    run: RunId,
    message: MessageId,
) -> Result<Option<StoredReply>, WorldError> {
    let values: [Parameter<'_>; 2] = [&run.to_string(), &message.to_string()];
    let rows = database.call(&database.sql.reply, &values).await?;
    let row = rows.first().ok_or_else(|| no_run(run))?;
    read_reply(row).map_err(|why| corrupt_error(&database.place, &why))
}

/// Reads the columns of `reply.sql`.
fn read_reply(row: &Row) -> Result<Option<StoredReply>, InvalidRow> {
    let Some(outcome) = get::<Option<&str>>(row, 0)? else { return Ok(None) };
    Ok(Some(StoredReply { at: timestamp(row, 1)?, reply: EncodedReply::read(row, outcome, 2)? }))
}

/// Deletes some tokens that are not kept any more, and some old replies.
pub(crate) async fn prune_tokens(database: &Database, time: &TimeSource) -> Result<(), WorldError> {
    if database.sql.interface < 3 {
        return Ok(());
    }
    let at = time.statement_time();
    let values: [Parameter<'_>; 3] = [&at, &micros(REPLY_KEPT), &(PRUNE_REPLIES_MAX as i32)];
    database.call(&database.sql.prune_tokens, &values).await.map(drop)
}
