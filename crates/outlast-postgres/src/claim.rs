//! Claiming: giving a session the runs that are ready, with what it needs to go on.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use outlast_core::limits::{
    CLAIM_RUNS_MAX, DEADLINE_GRACE, HISTORY_TURNS_READ_MAX, INBOX_READ_MAX, PREFERENCE,
};
use outlast_core::refusal::session_gone;
use outlast_core::{
    ClaimRequest, Claimed, Event, Message, RunId, SessionId, Timestamp, TurnId, TurnRecord, Unread, Work,
    WorldError,
};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::error::corrupt;
use crate::message::{Values1, message};
use crate::row::{Damaged, damaged, get, maybe_moment, micros, moment, number, stored, text, turn, word};
use crate::store::Store;
use crate::text::stored as stored_text;

/// How many messages are read of one run.
const INBOX_ROWS: i64 = INBOX_READ_MAX as i64;

/// Gives the session what is ready.
pub(crate) async fn claim(
    store: &Store,
    time: &Time,
    session: SessionId,
    request: &ClaimRequest,
    epoch: u64,
) -> Result<Work, WorldError> {
    let rows = ask(store, time, session, request).await?;
    let given = Given::read(&rows, request).map_err(|why| corrupt(&store.place, &why))?;
    let Some(mut given) = given else { return Err(session_gone(session)) };
    let next_due = given.next_due(time, request.ends_overdue_from);
    let unread = given.unread(store, session).await?;
    given.bring(store, request).await?;
    Ok(Work { claimed: given.claimed, unread, next_due, epoch })
}

/// Gives the session a run that was just started, if it may have it.
pub(crate) async fn claim_one(
    store: &Store,
    time: &Time,
    session: SessionId,
    request: &ClaimRequest,
    epoch: u64,
    run: RunId,
) -> Result<Work, WorldError> {
    let (session_text, at, run) = (session.to_string(), time.at(), run.to_string());
    let Asked { queues, workflows, versions, format, .. } = Asked::of(request);
    let values: [Values1<'_>; 7] = [&session_text, &at, &run, &queues, &workflows, &versions, &format];
    let rows = store.call(&store.sql.claim_one, &values).await?;
    let given = Given::read(&rows, request).map_err(|why| corrupt(&store.place, &why))?;
    let Some(mut given) = given else { return Err(session_gone(session)) };
    let next_due = given.next_due(time, request.ends_overdue_from);
    given.bring(store, request).await?;
    Ok(Work { claimed: given.claimed, unread: Vec::new(), next_due, epoch })
}

/// What is asked for, as values of a statement.
struct Asked {
    queues: Vec<String>,
    workflows: Vec<String>,
    versions: Vec<i64>,
    build: String,
    format: i32,
}

impl Asked {
    fn of(request: &ClaimRequest) -> Self {
        let queues = request.queues.iter().map(|queue| stored_text(queue).into_owned()).collect();
        let mut codes: Vec<(String, i64)> = request
            .code
            .iter()
            .map(|code| (stored_text(&code.workflow).into_owned(), i64::from(code.version)))
            .collect();
        // As the index has them: the database leaps from one to the next.
        codes.sort_unstable();
        let (workflows, versions) = codes.into_iter().unzip();
        let build = stored_text(&request.build).into_owned();
        let format = i32::try_from(request.format).unwrap_or(i32::MAX);
        Self { queues, workflows, versions, build, format }
    }
}

/// Asks for what is ready.
async fn ask(
    store: &Store,
    time: &Time,
    session: SessionId,
    request: &ClaimRequest,
) -> Result<Vec<Row>, WorldError> {
    let (session, at) = (session.to_string(), time.at());
    let limit = request.limit.min(CLAIM_RUNS_MAX) as i32;
    let Asked { queues, workflows, versions, build, format } = Asked::of(request);
    let overdue_from = request.ends_overdue_from.as_micros();
    let (grace, preference) = (micros(DEADLINE_GRACE), micros(PREFERENCE));
    let values: [Values1<'_>; 12] = [
        &session,
        &at,
        &limit,
        &queues,
        &workflows,
        &versions,
        &build,
        &format,
        &request.suspect,
        &overdue_from,
        &grace,
        &preference,
    ];
    store.call(&store.sql.claim, &values).await
}

/// What a claim brought.
struct Given {
    claimed: Vec<Claimed>,
    /// Where messages of a run begin that it has not consumed, if there are any.
    unread: Vec<(String, i64)>,
    /// Whether something is unread that the session held before.
    has_unread: bool,
    now: Timestamp,
    next_due: Option<Timestamp>,
    next_deadline: Option<Timestamp>,
}

impl Given {
    /// Reads the answer; `None` when the session is gone.
    fn read(rows: &[Row], request: &ClaimRequest) -> Result<Option<Self>, Damaged> {
        let mut given = Self {
            claimed: Vec::new(),
            unread: Vec::new(),
            has_unread: false,
            now: Timestamp::from_micros(0),
            next_due: None,
            next_deadline: None,
        };
        for row in rows {
            match get::<&str>(row, 0)? {
                "gone" => return Ok(None),
                "now" => {
                    given.now = moment(row, 12)?;
                    given.next_due = maybe_moment(row, 13)?;
                    given.next_deadline = maybe_moment(row, 10)?;
                    given.has_unread = get(row, 11)?;
                }
                _ => given.add(row, request)?,
            }
        }
        Ok(Some(given))
    }

    fn add(&mut self, row: &Row, request: &ClaimRequest) -> Result<(), Damaged> {
        let (run, seq, consumed): (RunId, u64, u64) = (word(row, 1)?, number(row, 5)?, number(row, 8)?);
        if number::<u64>(row, 7)? > consumed {
            self.unread.push((run.to_string(), stored(consumed)));
        }
        let (turn, turn_at) = (word(row, 4)?, moment(row, 6)?);
        let history = if (request.known)(run, turn) { None } else { first_turn(row, turn, turn_at)? };
        self.claimed.push(Claimed {
            run,
            workflow: name(request, text(row, 2)?),
            version: number(row, 3)?,
            turn,
            seq,
            turn_at,
            consumed,
            inbox: Vec::new(),
            crashes: get::<i32>(row, 9)?.unsigned_abs(),
            is_fresh: seq <= 1,
            deadline: maybe_moment(row, 10)?,
            is_overdue: get(row, 11)?,
            history,
        });
        Ok(())
    }

    /// The messages that wait for runs that the session held before.
    async fn unread(&self, store: &Store, session: SessionId) -> Result<Vec<Unread>, WorldError> {
        if !self.has_unread {
            return Ok(Vec::new());
        }
        let rows = store.call(&store.sql.unread, &[&session.to_string(), &INBOX_ROWS]).await?;
        let mut unread = unread_of(&rows).map_err(|why| corrupt(&store.place, &why))?;
        unread.retain(|unread| self.claimed.iter().all(|claimed| claimed.run != unread.run));
        Ok(unread)
    }

    /// When the next run is due, by the clock of this process: that may be ahead of the database's.
    fn next_due(&self, time: &Time, overdue_from: Timestamp) -> Option<Timestamp> {
        time.learn(self.now);
        let overdue = self.next_deadline.map(|deadline| deadline.plus(DEADLINE_GRACE).max(overdue_from));
        let overdue = overdue.filter(|due| *due < Timestamp::NEVER);
        let due = self.next_due.into_iter().chain(overdue).min()?;
        if time.is_virtual() || due <= self.now {
            return Some(due);
        }
        Some(due.max(time.clock().now().plus(due.since(self.now))))
    }

    /// Reads the histories and the messages of what was given. The runs are the session's, so nobody adds
    /// to their histories meanwhile.
    async fn bring(&mut self, store: &Store, request: &ClaimRequest) -> Result<(), WorldError> {
        let unknown = self
            .claimed
            .iter()
            .filter(|claimed| claimed.history.is_none() && !(request.known)(claimed.run, claimed.turn));
        let unknown: Vec<String> = unknown.map(|claimed| claimed.run.to_string()).collect();
        if unknown.is_empty() && self.unread.is_empty() {
            return Ok(());
        }
        let (runs, after): (Vec<String>, Vec<i64>) = self.unread.drain(..).unzip();
        let read = store.with_connection(async |connection: &Object| {
            let histories = connection.prepare_cached(&store.sql.histories).await?;
            let inboxes = connection.prepare_cached(&store.sql.inboxes).await?;
            let history_values: [Values1<'_>; 1] = [&unknown];
            let inbox_values: [Values1<'_>; 3] = [&runs, &after, &INBOX_ROWS];
            futures_util::future::try_join(
                async {
                    if unknown.is_empty() {
                        Ok(Vec::new())
                    } else {
                        connection.query(&histories, &history_values).await
                    }
                },
                async {
                    if runs.is_empty() {
                        Ok(Vec::new())
                    } else {
                        connection.query(&inboxes, &inbox_values).await
                    }
                },
            )
            .await
        });
        let (histories, inboxes) = read.await.map_err(|failed| store.world_error(&failed))?;
        self.sort_in(&unknown, &histories, &inboxes).map_err(|why| corrupt(&store.place, &why))
    }

    fn sort_in(&mut self, unknown: &[String], histories: &[Row], inboxes: &[Row]) -> Result<(), Damaged> {
        let mut turns: HashMap<&str, Vec<TurnRecord>> =
            unknown.iter().map(|run| (run.as_str(), Vec::new())).collect();
        for row in histories {
            turns.entry(get(row, 5)?).or_default().push(turn(row)?);
        }
        let mut messages: HashMap<&str, Vec<Message>> = HashMap::new();
        for row in inboxes {
            messages.entry(get(row, 11)?).or_default().push(message(row)?);
        }
        for claimed in &mut self.claimed {
            let run = claimed.run.to_string();
            claimed.history = claimed.history.take().or_else(|| turns.remove(run.as_str()));
            claimed.inbox = messages.remove(run.as_str()).unwrap_or_default();
        }
        Ok(())
    }
}

/// The history of a run that has but one turn.
fn first_turn(row: &Row, id: TurnId, at: Timestamp) -> Result<Option<Vec<TurnRecord>>, Damaged> {
    let Some(events) = get::<Option<&str>>(row, 15)? else { return Ok(None) };
    let events = Event::read_all(events).map_err(|error| damaged(15, error))?;
    Ok(Some(vec![TurnRecord { id, seq: 0, at, build: text(row, 14)?.into(), events }]))
}

/// The workflow's name, shared with the request where it has it.
fn name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

fn unread_of(rows: &[Row]) -> Result<Vec<Unread>, Damaged> {
    let mut unread: Vec<Unread> = Vec::new();
    for row in rows {
        let run: RunId = word(row, 11)?;
        match unread.last_mut() {
            Some(last) if last.run == run => last.messages.push(message(row)?),
            _ => unread.push(Unread { run, messages: vec![message(row)?] }),
        }
    }
    Ok(unread)
}

/// A part of a run's history.
pub(crate) async fn history(
    store: &Store,
    run: RunId,
    from: u64,
    limit: usize,
) -> Result<Vec<TurnRecord>, WorldError> {
    let limit = limit.min(HISTORY_TURNS_READ_MAX) as i64;
    let rows = store.call(&store.sql.history, &[&run.to_string(), &stored(from), &limit]).await?;
    let turns: Result<Vec<_>, _> = rows.iter().map(turn).collect();
    turns.map_err(|why| corrupt(&store.place, &why))
}

/// The messages of a run behind a position.
pub(crate) async fn inbox(store: &Store, run: RunId, after: u64) -> Result<Vec<Message>, WorldError> {
    let rows =
        store.call(&store.sql.inboxes, &[&vec![run.to_string()], &vec![stored(after)], &INBOX_ROWS]).await?;
    let messages: Result<Vec<_>, _> = rows.iter().map(message).collect();
    messages.map_err(|why| corrupt(&store.place, &why))
}

/// How many messages a run has consumed; `None` when there is no such run.
pub(crate) async fn consumed(store: &Store, run: RunId) -> Result<Option<u64>, WorldError> {
    let rows = store.call(&store.sql.run_exists, &[&run.to_string()]).await?;
    let consumed = rows.first().map(|row| number(row, 0)).transpose();
    consumed.map_err(|why| corrupt(&store.place, &why))
}
