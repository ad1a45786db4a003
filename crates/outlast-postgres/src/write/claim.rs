//! Claims: assign ready runs to a session, and return everything that it needs to continue them.

use std::collections::HashMap;
use std::sync::Arc;

use deadpool_postgres::Object;
use outlast_core::limits::{
    CLAIM_RUNS_MAX, DEADLINE_GRACE, HISTORY_IN_CLAIM_EVENTS_MAX, PREFERENCE, PRIORITY_AGE,
};
use outlast_core::refusal::session_gone;
use outlast_core::takeover::{CRASH_CLASS_MAX, class_room, is_suspect};
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, Event, HeartbeatDetails, OpNumber, RunId, SessionId, SuspectRoom,
    Timestamp, TurnId, TurnRecord, UnreadMessages, Work, WorldError,
};
use tokio_postgres::Row;

use crate::clock::TimeSource;
use crate::connection::database::{Database, Parameter, Parameters};
use crate::encoding::message::{StoredPayload, read_message};
use crate::encoding::row::{
    InvalidRow, get, maybe_timestamp, micros, number, parsed, text, timestamp, to_i64, turn_record,
};
use crate::encoding::text::escape_nul;
use crate::error::corrupt_error;
use crate::notifications::claim_hints::ReturnedMessages;
use crate::read::history::INBOX_ROWS_MAX;
use crate::schema::holder_columns;

/// Assigns ready runs to the session. The messages that were `returned` by earlier claims are left out.
pub(crate) async fn claim(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
    request: &ClaimRequest,
    epoch: u64,
    returned: Option<&ReturnedMessages>,
) -> Result<Work, WorldError> {
    let rows = execute_claim(database, time, session, request).await?;
    let answer = ClaimAnswer::read(&rows, request).map_err(|why| corrupt_error(&database.place, &why))?;
    let Some(mut answer) = answer else { return Err(session_gone(session)) };
    let next_due = answer.next_due(time, request.ends_overdue_from);
    let unread = answer.unread(database, session, returned).await?;
    answer.load(database).await?;
    Ok(Work { claimed: answer.claimed, unread, next_due, epoch })
}

/// Assigns one run that was just started to the session, if it is ready and the session may claim it.
pub(crate) async fn claim_one(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
    request: &ClaimRequest,
    epoch: u64,
    run: RunId,
) -> Result<Work, WorldError> {
    let (session_text, at, run) = (session.to_string(), time.statement_time(), run.to_string());
    let ClaimParameters { queues, workflows, versions, format, .. } = ClaimParameters::of(request);
    let values: [Parameter<'_>; 7] = [&session_text, &at, &run, &queues, &workflows, &versions, &format];
    let rows = database.call(&database.sql.claim_one, &values).await?;
    let answer = ClaimAnswer::read(&rows, request).map_err(|why| corrupt_error(&database.place, &why))?;
    let Some(mut answer) = answer else { return Err(session_gone(session)) };
    let next_due = answer.next_due(time, request.ends_overdue_from);
    answer.load(database).await?;
    Ok(Work { claimed: answer.claimed, unread: Vec::new(), next_due, epoch })
}

/// A claim request as parameters of a statement.
struct ClaimParameters {
    queues: Vec<String>,
    workflows: Vec<String>,
    versions: Vec<i64>,
    build: String,
    format: i32,
    /// How many runs of each crash class the worker may claim, from class 1 on. 0 for a class whose runs are not
    /// suspects: the general limit applies to them.
    class_limits: Vec<i32>,
    /// Whether the claim is a trial: it returns a single run of the last class, if there is one.
    is_trial: bool,
}

impl ClaimParameters {
    fn of(request: &ClaimRequest) -> Self {
        let queues = request.queues.iter().map(|queue| escape_nul(queue).into_owned()).collect();
        let mut codes: Vec<(String, i64)> = request
            .code
            .iter()
            .map(|code| (escape_nul(&code.workflow).into_owned(), i64::from(code.version)))
            .collect();
        // In the order of the index `runs_ready`: the database skips from one entry to the next.
        codes.sort_unstable();
        let (workflows, versions) = codes.into_iter().unzip();
        let build = escape_nul(&request.build).into_owned();
        let format = i32::try_from(request.format).unwrap_or(i32::MAX);
        let class_limits = (1..=CRASH_CLASS_MAX).map(|class| class_limit(request.suspects, class)).collect();
        let is_trial = matches!(request.suspects, SuspectRoom::TrialFirst { .. });
        Self { queues, workflows, versions, build, format, class_limits, is_trial }
    }
}

/// How many runs of a crash class a request may claim.
fn class_limit(suspects: SuspectRoom, class: u32) -> i32 {
    let limit = match suspects {
        _ if !is_suspect(class) => 0,
        SuspectRoom::Nothing => 0,
        SuspectRoom::AnyClass { room } | SuspectRoom::TrialFirst { room } => class_room(class, room),
        SuspectRoom::Class { class: only, room } => room * usize::from(only == class),
    };
    limit.min(CLAIM_RUNS_MAX) as i32
}

/// Executes the statement of a claim.
async fn execute_claim(
    database: &Database,
    time: &TimeSource,
    session: SessionId,
    request: &ClaimRequest,
) -> Result<Vec<Row>, WorldError> {
    let (session, at) = (session.to_string(), time.statement_time());
    let limit = request.limit.min(CLAIM_RUNS_MAX) as i32;
    let ClaimParameters { queues, workflows, versions, build, format, class_limits, is_trial } =
        ClaimParameters::of(request);
    let overdue_from = request.ends_overdue_from.as_micros();
    let (grace, preference, age) = (micros(DEADLINE_GRACE), micros(PREFERENCE), micros(PRIORITY_AGE));
    let values: [Parameter<'_>; 14] = [
        &session,
        &at,
        &limit,
        &queues,
        &workflows,
        &versions,
        &build,
        &format,
        &class_limits,
        &is_trial,
        &overdue_from,
        &grace,
        &preference,
        &age,
    ];
    database.call(&database.sql.claim, &values).await
}

/// The answer to a claim.
#[derive(Default)]
struct ClaimAnswer {
    claimed: Vec<Claimed>,
    /// The claimed runs with unread messages, and the position of the last message that each has consumed.
    unread: Vec<(String, i64)>,
    /// The claimed runs whose histories are not part of the answer and must be read.
    runs_without_history: Vec<String>,
    /// The claimed runs with heartbeat details of lost attempts.
    runs_with_details: Vec<String>,
    /// Whether runs that the session held before have unread messages.
    has_unread: bool,
    now: Option<Timestamp>,
    next_due: Option<Timestamp>,
    next_deadline: Option<Timestamp>,
}

impl ClaimAnswer {
    /// Reads the answer; `None` if the session has ended.
    fn read(rows: &[Row], request: &ClaimRequest) -> Result<Option<Self>, InvalidRow> {
        let mut answer = Self::default();
        for row in rows {
            match get::<&str>(row, 0)? {
                "gone" => return Ok(None),
                "now" => {
                    answer.now = Some(timestamp(row, 12)?);
                    answer.next_due = maybe_timestamp(row, 13)?;
                    answer.next_deadline = maybe_timestamp(row, 14)?;
                    answer.has_unread = get(row, 11)?;
                }
                _ => answer.add(row, request)?,
            }
        }
        Ok(Some(answer))
    }

    /// Adds a claimed run.
    fn add(&mut self, row: &Row, request: &ClaimRequest) -> Result<(), InvalidRow> {
        let (run, seq, consumed): (RunId, u64, u64) = (parsed(row, 1)?, number(row, 5)?, number(row, 8)?);
        if number::<u64>(row, 7)? > consumed {
            self.unread.push((run.to_string(), to_i64(consumed)));
        }
        if get(row, 10)? {
            self.runs_with_details.push(run.to_string());
        }
        let (turn, turn_at) = (parsed(row, 4)?, timestamp(row, 6)?);
        let columns = holder_columns::read(row, 17)?;
        let replayed = seq.saturating_sub(columns.replay_from);
        let history = self.history(row, run, replayed, (turn, turn_at))?;
        self.claimed.push(Claimed {
            run,
            workflow: workflow_name(request, text(row, 2)?),
            version: number(row, 3)?,
            turn,
            seq,
            turn_at,
            consumed,
            inbox: Vec::new(),
            columns,
            is_fresh: seq <= 1,
            can_end_without_code: get::<&str>(row, 0)? == "ending",
            is_overdue: get(row, 11)?,
            history,
            details: Vec::new(),
        });
        Ok(())
    }

    /// The history of a run, if the row contains it; otherwise adds the run to `runs_without_history`. It is left out
    /// if this session held the run last, or if a replay needs too many events (`replayed`).
    fn history(
        &mut self,
        row: &Row,
        run: RunId,
        replayed: u64,
        (turn, turn_at): (TurnId, Timestamp),
    ) -> Result<ClaimedHistory, InvalidRow> {
        if get::<bool>(row, 9)? || replayed > HISTORY_IN_CLAIM_EVENTS_MAX {
            return Ok(ClaimedHistory::LeftOut);
        }
        let Some(events) = get::<Option<&str>>(row, 16)? else {
            self.runs_without_history.push(run.to_string());
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

    /// The unread messages of runs that the session held before.
    async fn unread(
        &self,
        database: &Database,
        session: SessionId,
        returned: Option<&ReturnedMessages>,
    ) -> Result<Vec<UnreadMessages>, WorldError> {
        if !self.has_unread {
            return Ok(Vec::new());
        }
        let positions = returned.into_iter().flat_map(|returned| &returned.positions);
        let (runs, after): (Vec<String>, Vec<i64>) =
            positions.map(|(run, position)| (run.to_string(), to_i64(*position))).unzip();
        let values: [Parameter<'_>; 4] = [&session.to_string(), &INBOX_ROWS_MAX, &runs, &after];
        let rows = database.call(&database.sql.unread, &values).await?;
        let mut unread = group_unread(&rows).map_err(|why| corrupt_error(&database.place, &why))?;
        unread.retain(|unread| self.claimed.iter().all(|claimed| claimed.run != unread.run));
        Ok(unread)
    }

    /// When the next run is due, on the clock of this process, which may be ahead of the database's.
    fn next_due(&self, time: &TimeSource, overdue_from: Timestamp) -> Option<Timestamp> {
        let now = self.now?;
        time.observe(now);
        let overdue = self.next_deadline.map(|deadline| deadline.plus(DEADLINE_GRACE).max(overdue_from));
        let overdue = overdue.filter(|due| *due < Timestamp::NEVER);
        let due = self.next_due.into_iter().chain(overdue).min()?;
        if time.is_virtual() || due <= now {
            return Some(due);
        }
        Some(due.max(time.clock().now().plus(due.since(now))))
    }

    /// Reads histories, messages and heartbeat details of the claimed runs. The session holds the runs, so nobody else
    /// adds to their histories meanwhile.
    async fn load(&mut self, database: &Database) -> Result<(), WorldError> {
        if self.runs_without_history.is_empty() && self.unread.is_empty() && self.runs_with_details.is_empty()
        {
            return Ok(());
        }
        let (runs, after): (Vec<String>, Vec<i64>) = self.unread.drain(..).unzip();
        let (runs_without_history, runs_with_details) = (&self.runs_without_history, &self.runs_with_details);
        let read = database.with_connection(async |connection: &Object| {
            let history_values: [Parameter<'_>; 1] = [runs_without_history];
            let inbox_values: [Parameter<'_>; 3] = [&runs, &after, &INBOX_ROWS_MAX];
            let detail_values: [Parameter<'_>; 1] = [runs_with_details];
            futures_util::future::try_join3(
                query_if(
                    connection,
                    &database.sql.histories,
                    &history_values,
                    !runs_without_history.is_empty(),
                ),
                query_if(connection, &database.sql.inboxes, &inbox_values, !runs.is_empty()),
                query_if(connection, &database.sql.details, &detail_values, !runs_with_details.is_empty()),
            )
            .await
        });
        let (histories, inboxes, details) = read.await.map_err(|failure| database.world_error(&failure))?;
        self.apply_rows(&histories, &inboxes, &details).map_err(|why| corrupt_error(&database.place, &why))
    }

    /// Distributes the rows that were read to the claimed runs.
    fn apply_rows(&mut self, histories: &[Row], inboxes: &[Row], details: &[Row]) -> Result<(), InvalidRow> {
        let mut turns: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in histories {
            turns.entry(get(row, 5)?).or_default().push(row);
        }
        let mut messages: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in inboxes {
            messages.entry(get(row, 11)?).or_default().push(row);
        }
        let mut heartbeats: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in details {
            heartbeats.entry(get(row, 0)?).or_default().push(row);
        }
        for claimed in &mut self.claimed {
            let run = claimed.run.to_string();
            let run = run.as_str();
            apply_loaded(claimed, turns.remove(run), messages.remove(run), heartbeats.remove(run));
        }
        Ok(())
    }
}

/// Executes a query, unless its rows are not wanted.
async fn query_if(
    connection: &Object,
    sql: &str,
    values: Parameters<'_>,
    is_wanted: bool,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    if !is_wanted {
        return Ok(Vec::new());
    }
    let statement = connection.prepare_cached(sql).await?;
    connection.query(&statement, values).await
}

/// Adds the rows that were read to a claimed run. A row that cannot be read is an error of this run alone.
fn apply_loaded(
    claimed: &mut Claimed,
    turns: Option<Vec<&Row>>,
    messages: Option<Vec<&Row>>,
    heartbeats: Option<Vec<&Row>>,
) {
    let read = || -> Result<_, InvalidRow> {
        let turns =
            turns.map(|rows| rows.into_iter().map(turn_record).collect::<Result<Vec<_>, _>>()).transpose()?;
        let messages =
            messages.unwrap_or_default().into_iter().map(read_message).collect::<Result<Vec<_>, _>>()?;
        Ok((turns, messages))
    };
    // Details that cannot be read are dropped: the next attempt begins without details.
    let heartbeats =
        heartbeats.unwrap_or_default().into_iter().filter_map(|row| read_details(claimed.run, row).ok());
    claimed.details = heartbeats.collect();
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

fn read_details(run: RunId, row: &Row) -> Result<HeartbeatDetails, InvalidRow> {
    let details = Some(StoredPayload::read(row, 3)?);
    Ok(HeartbeatDetails { run, op: OpNumber(number(row, 1)?), attempt: number(row, 2)?, details })
}

/// The workflow's name; shares the allocation of the request's name.
fn workflow_name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

/// Groups messages by run. If a message cannot be read, it and later ones of its run are left out: the next claim of
/// the run reports the error.
fn group_unread(rows: &[Row]) -> Result<Vec<UnreadMessages>, InvalidRow> {
    let mut unread: Vec<UnreadMessages> = Vec::new();
    let mut unreadable: Option<RunId> = None;
    for row in rows {
        let run: RunId = parsed(row, 11)?;
        if unreadable == Some(run) {
            continue;
        }
        let Ok(message) = read_message(row) else {
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
