//! Streams and published state: writing chunks of steps, and what the turns of workflows write, as parameters of
//! `commit_writes.sql`.

use outlast_core::limits::{STREAM_CHUNKS_MAX, STREAMS_MAX};
use outlast_core::refusal::{attempt_fenced, missing_chunks, session_gone, streams_fenced, too_many_streams};
use outlast_core::stream::write_pack;
use outlast_core::world::Answers;
use outlast_core::{RunId, SessionId, StreamWrite, StreamWritten, Timestamp, Turn, WorldError};
use tokio_postgres::Row;

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter};
use crate::encoding::json_rows::JsonRows;
use crate::encoding::message::StoredPayload;
use crate::encoding::row::{InvalidRow, get, to_i64};
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;
use crate::write::outbox::effective_outbox;

/// The limits of a run's streams: their number, and the number of entries that one keeps.
pub(crate) fn limits() -> Vec<i64> {
    vec![to_i64(STREAMS_MAX), to_i64(STREAM_CHUNKS_MAX)]
}

/// Writes chunks of steps.
pub(crate) async fn write_chunks(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
    writes: &[StreamWrite],
) -> Answers<StreamWritten> {
    let (mut rows, mut packs) = (JsonRows::default(), Vec::with_capacity(writes.len()));
    for write in writes {
        add_write(&mut rows, write);
        packs.push(write_pack(&write.chunks));
    }
    let (id, at) = (session.to_string(), time.statement_time());
    let values: [Parameter<'_>; 5] = [&id, &at, &rows.array(), &packs, &limits()];
    let found = database.call(&database.sql.write_chunks, &values).await?;
    let mut answers =
        vec![Err(WorldError::Corrupt("the database returned too few rows".into())); writes.len()];
    let read = |row: &Row| -> Result<(usize, String, i64), InvalidRow> {
        let nth = usize::try_from(get::<i32>(row, 0)?).unwrap_or_default();
        Ok((nth, get(row, 1)?, get::<Option<i64>>(row, 2)?.unwrap_or_default()))
    };
    for row in &found {
        let (nth, code, detail) = read(row).map_err(|why| corrupt_error(&database.place, &why))?;
        match (nth.checked_sub(1), &*code) {
            (None, "gone") => return Err(session_gone(session)),
            (None, _) => time.observe(Timestamp::from_micros(detail)),
            (Some(index), code) if index < writes.len() => {
                answers[index] = answer(&writes[index], code, detail.unsigned_abs());
            }
            _ => {}
        }
    }
    Ok(answers)
}

fn add_write(rows: &mut JsonRows, write: &StreamWrite) {
    rows.begin_row();
    rows.word("run", write.run);
    rows.text("stream", &write.stream);
    rows.unsigned("op", write.op.0);
    rows.word("attempt", write.attempt);
    rows.word("session", write.attempt.session());
    rows.unsigned("count", write.attempt.count());
    rows.unsigned("first", write.first);
    rows.unsigned("n", write.chunks.len() as u64);
    if let Some(keep_last) = write.keep_last {
        rows.unsigned("keep", keep_last);
    }
    rows.flag("closes", write.closes);
}

/// The answer to a write for a code of the statement.
fn answer(write: &StreamWrite, code: &str, detail: u64) -> Result<StreamWritten, WorldError> {
    match code {
        "done" | "closed" => Ok(StreamWritten { is_closed: code == "closed", dropped: detail }),
        "owner" => Err(streams_fenced(write.run)),
        "older" => Err(attempt_fenced(write.run, write.attempt)),
        "missing" => Err(missing_chunks(&write.stream, write.first, detail)),
        "streams" => Err(too_many_streams(write.run)),
        other => Err(WorldError::Corrupt(format!("the database answered `{other}` to a write").into())),
    }
}

/// What the turns of one statement write, as its parameters.
#[derive(Debug, Default)]
pub(crate) struct TurnWrites {
    pub(crate) streams: JsonRows,
    pub(crate) packs: Vec<String>,
    pub(crate) states: JsonRows,
    pub(crate) bodies: Vec<Option<String>>,
    pub(crate) raws: Vec<Option<Vec<u8>>>,
}

impl TurnWrites {
    /// Whether the turns write nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.packs.is_empty() && self.bodies.is_empty()
    }

    /// Adds what a turn writes; `turn_nth` is the turn's number in its batch.
    pub(crate) fn add(&mut self, turn: &Turn, turn_nth: i64) {
        let Some(outbox) = effective_outbox(turn) else { return };
        for append in &outbox.writes.streams {
            let rows = &mut self.streams;
            rows.begin_row();
            rows.number("turn_nth", turn_nth);
            rows.word("run", turn.run);
            rows.word("turn", turn.id);
            rows.text("stream", &append.stream);
            rows.unsigned("n", append.chunks.len() as u64);
            if let Some(keep_last) = append.keep_last {
                rows.unsigned("keep", keep_last);
            }
            rows.flag("closes", append.closes);
            rows.unsigned("dropped", append.dropped);
            rows.unsigned("late", append.late);
            self.packs.push(write_pack(&append.chunks));
        }
        if let Some(state) = &outbox.writes.state {
            let stored = state.payload.as_ref().map(StoredPayload::of);
            let rows = &mut self.states;
            rows.begin_row();
            rows.number("turn_nth", turn_nth);
            rows.word("run", turn.run);
            rows.word("turn", turn.id);
            rows.unsigned("dropped", state.dropped);
            if let Some(codec) = stored.as_ref().and_then(|stored| stored.codec.as_ref()) {
                rows.plain_text("codec", codec);
            }
            let (body, raw) = stored.map_or((None, None), |stored| (stored.body, stored.raw));
            self.bodies.push(body);
            self.raws.push(raw);
        }
    }
}

/// The run of a turn that changes its streams or state, or replies to a message.
pub(crate) fn written_run(turn: &Turn) -> Option<RunId> {
    let writes = |outbox: &&outlast_core::Outbox| !outbox.writes.is_empty() || !outbox.replies.is_empty();
    effective_outbox(turn).filter(writes).map(|_| turn.run)
}

/// The name of a stream as it is stored.
pub(crate) fn stored_name(stream: &str) -> String {
    escape_nul(stream).into_owned()
}
