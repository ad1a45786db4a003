//! Claiming: giving a session the runs that are ready, with what it needs to go on.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use outlast_core::limits::{
    CLAIM_RUNS_MAX, DEADLINE_GRACE, HISTORY_IN_CLAIM_EVENTS_MAX, HISTORY_TURNS_READ_MAX, INBOX_READ_MAX,
    PREFERENCE, PRIORITY_AGE,
};
use outlast_core::refusal::{check_histories, no_run, session_gone};
use outlast_core::takeover::{CRASH_CLASS_MAX, class_room, is_suspect};
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, Event, HeartbeatDetails, Message, OpNumber, RunId, SessionId,
    SuspectRoom, Timestamp, TurnId, TurnRecord, UnreadMessages, Work, WorldError,
};
use tokio_postgres::Row;

use crate::clock::Time;
use crate::columns;
use crate::error::corrupt;
use crate::message::{StoredPayload, Values1, message};
use crate::row::{Damaged, get, maybe_moment, micros, moment, number, stored, text, turn, word};
use crate::store::{Store, Values};
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
    given.bring(store).await?;
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
    given.bring(store).await?;
    Ok(Work { claimed: given.claimed, unread: Vec::new(), next_due, epoch })
}

/// What is asked for, as values of a statement.
struct Asked {
    queues: Vec<String>,
    workflows: Vec<String>,
    versions: Vec<i64>,
    build: String,
    format: i32,
    /// By crash class, how many runs the worker may be given; the classes that are like any run have no room of their own.
    rooms: Vec<i32>,
    /// Whether it takes one run of the last class and nothing else, if there is one.
    is_trial: bool,
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
        let rooms = (1..=CRASH_CLASS_MAX).map(|class| room_of(request.suspects, class)).collect();
        let is_trial = matches!(request.suspects, SuspectRoom::TrialFirst { .. });
        Self { queues, workflows, versions, build, format, rooms, is_trial }
    }
}

/// How many runs of a crash class a request has room for.
fn room_of(suspects: SuspectRoom, class: u32) -> i32 {
    let room = match suspects {
        _ if !is_suspect(class) => 0,
        SuspectRoom::Nothing => 0,
        SuspectRoom::AnyClass { room } | SuspectRoom::TrialFirst { room } => class_room(class, room),
        SuspectRoom::Class { class: only, room } => room * usize::from(only == class),
    };
    room.min(CLAIM_RUNS_MAX) as i32
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
    let Asked { queues, workflows, versions, build, format, rooms, is_trial } = Asked::of(request);
    let overdue_from = request.ends_overdue_from.as_micros();
    let (grace, preference, age) = (micros(DEADLINE_GRACE), micros(PREFERENCE), micros(PRIORITY_AGE));
    let values: [Values1<'_>; 14] = [
        &session,
        &at,
        &limit,
        &queues,
        &workflows,
        &versions,
        &build,
        &format,
        &rooms,
        &is_trial,
        &overdue_from,
        &grace,
        &preference,
        &age,
    ];
    store.call(&store.sql.claim, &values).await
}

/// What a claim brought.
#[derive(Default)]
struct Given {
    claimed: Vec<Claimed>,
    /// Where messages of a run begin that it has not consumed, if there are any.
    unread: Vec<(String, i64)>,
    /// The runs whose histories are read.
    unknown: Vec<String>,
    /// The runs of which heartbeats of lost attempts are kept.
    detailed: Vec<String>,
    /// Whether something is unread that the session held before.
    has_unread: bool,
    now: Option<Timestamp>,
    next_due: Option<Timestamp>,
    next_deadline: Option<Timestamp>,
}

impl Given {
    /// Reads the answer; `None` when the session is gone.
    fn read(rows: &[Row], request: &ClaimRequest) -> Result<Option<Self>, Damaged> {
        let mut given = Self::default();
        for row in rows {
            match get::<&str>(row, 0)? {
                "gone" => return Ok(None),
                "now" => {
                    given.now = Some(moment(row, 12)?);
                    given.next_due = maybe_moment(row, 13)?;
                    given.next_deadline = maybe_moment(row, 14)?;
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
        if get(row, 10)? {
            self.detailed.push(run.to_string());
        }
        let (turn, turn_at) = (word(row, 4)?, moment(row, 6)?);
        let history = self.history(row, run, seq, (turn, turn_at))?;
        self.claimed.push(Claimed {
            run,
            workflow: name(request, text(row, 2)?),
            version: number(row, 3)?,
            turn,
            seq,
            turn_at,
            consumed,
            inbox: Vec::new(),
            columns: columns::read(row, 17)?,
            is_fresh: seq <= 1,
            is_overdue: get(row, 11)?,
            history,
            details: Vec::new(),
        });
        Ok(())
    }

    /// The history of a run as far as the claim brought it; what is to be read is noted.
    fn history(
        &mut self,
        row: &Row,
        run: RunId,
        seq: u64,
        (turn, turn_at): (TurnId, Timestamp),
    ) -> Result<ClaimedHistory, Damaged> {
        if get::<bool>(row, 9)? || seq > HISTORY_IN_CLAIM_EVENTS_MAX {
            return Ok(ClaimedHistory::LeftOut);
        }
        let Some(events) = get::<Option<&str>>(row, 16)? else {
            self.unknown.push(run.to_string());
            return Ok(ClaimedHistory::Whole(Vec::new()));
        };
        let build = text(row, 15)?.into();
        Ok(match Event::read_turn(events, 0) {
            Ok(events) => {
                ClaimedHistory::Whole(vec![TurnRecord { id: turn, seq: 0, at: turn_at, build, events }])
            }
            Err(error) => ClaimedHistory::Unreadable(error.to_string()),
        })
    }

    /// The messages that wait for runs that the session held before.
    async fn unread(&self, store: &Store, session: SessionId) -> Result<Vec<UnreadMessages>, WorldError> {
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
        let now = self.now?;
        time.learn(now);
        let overdue = self.next_deadline.map(|deadline| deadline.plus(DEADLINE_GRACE).max(overdue_from));
        let overdue = overdue.filter(|due| *due < Timestamp::NEVER);
        let due = self.next_due.into_iter().chain(overdue).min()?;
        if time.is_virtual() || due <= now {
            return Some(due);
        }
        Some(due.max(time.clock().now().plus(due.since(now))))
    }

    /// Reads the histories, the messages and the heartbeats of what was given. The runs are the session's, so nobody
    /// adds to their histories meanwhile.
    async fn bring(&mut self, store: &Store) -> Result<(), WorldError> {
        if self.unknown.is_empty() && self.unread.is_empty() && self.detailed.is_empty() {
            return Ok(());
        }
        let (runs, after): (Vec<String>, Vec<i64>) = self.unread.drain(..).unzip();
        let (unknown, detailed) = (&self.unknown, &self.detailed);
        let read = store.with_connection(async |connection: &Object| {
            let history_values: [Values1<'_>; 1] = [unknown];
            let inbox_values: [Values1<'_>; 3] = [&runs, &after, &INBOX_ROWS];
            let detail_values: [Values1<'_>; 1] = [detailed];
            futures_util::future::try_join3(
                rows_of(connection, &store.sql.histories, &history_values, !unknown.is_empty()),
                rows_of(connection, &store.sql.inboxes, &inbox_values, !runs.is_empty()),
                rows_of(connection, &store.sql.details, &detail_values, !detailed.is_empty()),
            )
            .await
        });
        let (histories, inboxes, details) = read.await.map_err(|failed| store.world_error(&failed))?;
        self.sort_in(&histories, &inboxes, &details).map_err(|why| corrupt(&store.place, &why))
    }

    fn sort_in(&mut self, histories: &[Row], inboxes: &[Row], details: &[Row]) -> Result<(), Damaged> {
        let mut turns: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in histories {
            turns.entry(get(row, 5)?).or_default().push(row);
        }
        let mut messages: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in inboxes {
            messages.entry(get(row, 11)?).or_default().push(row);
        }
        let mut beats: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in details {
            beats.entry(get(row, 0)?).or_default().push(row);
        }
        for claimed in &mut self.claimed {
            let run = claimed.run.to_string();
            let run = run.as_str();
            bring_one(claimed, turns.remove(run), messages.remove(run), beats.remove(run));
        }
        Ok(())
    }
}

/// The rows of a statement, if they are wanted.
async fn rows_of(
    connection: &Object,
    sql: &str,
    values: Values<'_>,
    is_wanted: bool,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    if !is_wanted {
        return Ok(Vec::new());
    }
    let statement = connection.prepare_cached(sql).await?;
    connection.query(&statement, values).await
}

/// Gives a claimed run what was read of it. What cannot be read is an error of this run alone.
fn bring_one(
    claimed: &mut Claimed,
    turns: Option<Vec<&Row>>,
    messages: Option<Vec<&Row>>,
    beats: Option<Vec<&Row>>,
) {
    let read = || -> Result<_, Damaged> {
        let turns =
            turns.map(|rows| rows.into_iter().map(turn).collect::<Result<Vec<_>, _>>()).transpose()?;
        let messages =
            messages.unwrap_or_default().into_iter().map(message).collect::<Result<Vec<_>, _>>()?;
        Ok((turns, messages))
    };
    // Details that cannot be read are as good as none: the attempt begins anew.
    let beats = beats.unwrap_or_default().into_iter().filter_map(|row| details_of(claimed.run, row).ok());
    claimed.details = beats.collect();
    match read() {
        Ok((turns, messages)) => {
            if let Some(turns) = turns {
                claimed.history = ClaimedHistory::Whole(turns);
            }
            claimed.inbox = messages;
        }
        Err(why) => claimed.history = ClaimedHistory::Unreadable(why.to_string()),
    }
    if matches!(claimed.history, ClaimedHistory::Unreadable(_)) {
        claimed.inbox.clear();
    }
}

fn details_of(run: RunId, row: &Row) -> Result<HeartbeatDetails, Damaged> {
    let details = Some(StoredPayload::read(row, 3)?);
    Ok(HeartbeatDetails { run, op: OpNumber(number(row, 1)?), attempt: number(row, 2)?, details })
}

/// The workflow's name, shared with the request where it has it.
fn name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

/// The messages by run. Those behind one that cannot be read are left out: a claim of the run says what is the matter.
fn unread_of(rows: &[Row]) -> Result<Vec<UnreadMessages>, Damaged> {
    let mut unread: Vec<UnreadMessages> = Vec::new();
    let mut unreadable: Option<RunId> = None;
    for row in rows {
        let run: RunId = word(row, 11)?;
        if unreadable == Some(run) {
            continue;
        }
        let Ok(message) = message(row) else {
            unreadable = Some(run);
            continue;
        };
        match unread.last_mut() {
            Some(last) if last.run == run => last.messages.push(message),
            _ => unread.push(UnreadMessages { run, messages: vec![message] }),
        }
    }
    Ok(unread)
}

/// The whole histories of runs, each or why it cannot be read.
pub(crate) async fn histories(
    store: &Store,
    runs: &[RunId],
) -> Result<Vec<Result<Vec<TurnRecord>, WorldError>>, WorldError> {
    check_histories(runs.len())?;
    let asked: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let rows = store.call(&store.sql.histories, &[&asked]).await?;
    let mut turns: HashMap<&str, Vec<&Row>> = HashMap::new();
    for row in &rows {
        turns.entry(get(row, 5).map_err(|why| corrupt(&store.place, &why))?).or_default().push(row);
    }
    let read = |run: &RunId| {
        let rows = turns.get(run.to_string().as_str()).ok_or_else(|| no_run(*run))?;
        let turns: Result<Vec<_>, _> = rows.iter().map(|row| turn(row)).collect();
        turns.map_err(|why| corrupt(&store.place, &why))
    };
    Ok(runs.iter().map(read).collect())
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
