//! Claims: assigning ready runs to a session, with everything that it needs to continue them.

use std::sync::Arc;

use outlast_core::limits::{CLAIM_RUNS_MAX, HISTORY_IN_CLAIM_EVENTS_MAX, INBOX_READ_MAX};
use outlast_core::refusal::session_gone;
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, HeartbeatDetails, Message, RunId, SessionId, Status, Timestamp,
    UnreadMessages, Work,
};
use rusqlite::{Connection, Error, params};

use crate::connection::error::{Refusal, describe_damage};
use crate::read::history::{history, inbox};
use crate::schema::row::{number, parsed, to_i64};
use crate::schema::sql;
use crate::sessions::heartbeat;
use crate::sessions::ready::{ClaimableRuns, ReadyRun, find_claimable, next_overdue};
use crate::write::lease_cache::CachedLease;
use crate::write::message::read_message;
use crate::write::tx::{SessionOwner, Tx};

/// A claim and the session that makes it.
pub(crate) struct Claim {
    pub(crate) session: SessionId,
    pub(crate) request: ClaimRequest,
}

/// The result of a claim, without the epoch.
pub(crate) struct ClaimResult {
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) unread: Vec<UnreadMessages>,
    pub(crate) next_due: Option<Timestamp>,
}

impl ClaimResult {
    pub(crate) fn into_work(self, epoch: u64) -> Work {
        Work { claimed: self.claimed, unread: self.unread, next_due: self.next_due, epoch }
    }
}

impl Claim {
    fn limit(&self) -> usize {
        self.request.limit.min(CLAIM_RUNS_MAX)
    }

    /// Answers the claim without a write if no run can be claimed; `None` if one can.
    pub(crate) fn answer_without_write(
        &self,
        connection: &Connection,
        now: Timestamp,
    ) -> Result<Option<ClaimResult>, Refusal> {
        let mut session = connection.prepare_cached(sql::SESSION_FOREIGN_WRITES)?;
        if !session.exists([self.session.to_string()])? {
            return Err(session_gone(self.session).into());
        }
        let ClaimableRuns { ready, next_due } =
            find_claimable(connection, now, self.session, &self.request, self.limit().min(1))?;
        if !ready.is_empty() {
            return Ok(None);
        }
        let next_due = self.with_overdue(connection, now, next_due)?;
        let unread = unread(connection, self.session)?;
        Ok(Some(ClaimResult { claimed: Vec::new(), unread, next_due }))
    }

    /// When the next run can be claimed, including runs that become overdue.
    fn with_overdue(
        &self,
        connection: &Connection,
        now: Timestamp,
        next_due: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, Error> {
        let overdue = next_overdue(connection, now, self.request.ends_overdue_from)?;
        Ok(next_due.into_iter().chain(overdue).min())
    }

    /// When the next run can be claimed after this claim. If the claim took overdue runs, the search is repeated,
    /// because one of them may have been the next one.
    fn next_due(
        &self,
        tx: &Tx<'_>,
        found: Option<Timestamp>,
        claimed_overdue: bool,
    ) -> Result<Option<Timestamp>, Error> {
        let next_due = if claimed_overdue {
            find_claimable(tx.connection, tx.now, self.session, &self.request, 0)?.next_due
        } else {
            found
        };
        self.with_overdue(tx.connection, tx.now, next_due)
    }
}

/// Assigns ready runs to the session.
pub(crate) fn claim(tx: &mut Tx<'_>, claim: &Claim) -> Result<ClaimResult, Refusal> {
    if tx.session_owner(claim.session)? == SessionOwner::Ended {
        return Err(session_gone(claim.session).into());
    }
    let unread = unread(tx.connection, claim.session)?;
    let ClaimableRuns { ready, next_due } =
        find_claimable(tx.connection, tx.now, claim.session, &claim.request, claim.limit())?;
    let has_details = !ready.is_empty() && heartbeat::any_stored(tx.connection)?;
    let mut result = ClaimResult { claimed: Vec::with_capacity(ready.len()), unread, next_due };
    for run in ready {
        let data = RunData::read(tx.connection, claim.session, &run, has_details)?;
        result.claimed.push(claim_run(tx, claim, run, data)?);
    }
    let claimed_overdue = result.claimed.iter().any(|claimed| claimed.is_overdue);
    result.next_due = claim.next_due(tx, next_due, claimed_overdue)?;
    Ok(result)
}

/// What a claim reads about one run in addition to its row.
struct RunData {
    history: ClaimedHistory,
    inbox: Vec<Message>,
    details: Vec<HeartbeatDetails>,
}

impl RunData {
    /// Reads the data of a run. If this build cannot read it, the history is `Unreadable`, and the claim of the other
    /// runs continues.
    fn read(
        connection: &Connection,
        session: SessionId,
        run: &ReadyRun,
        has_details: bool,
    ) -> Result<Self, Error> {
        // The worker reads a long history afterwards, so that commits do not wait for it.
        let from = run.columns.replay_from;
        let is_long = run.next_seq.saturating_sub(from) > HISTORY_IN_CLAIM_EVENTS_MAX;
        // A session that held the run last may still have it in memory.
        let is_left_out = is_long || run.preferred == Some(session);
        let read_all = || {
            let history = if is_left_out {
                ClaimedHistory::LeftOut
            } else {
                ClaimedHistory::Whole(history(connection, run.run, from, i64::MAX)?)
            };
            let has_unread = run.sent > run.consumed;
            let inbox = if has_unread { inbox(connection, run.run, run.consumed)? } else { Vec::new() };
            let details =
                if has_details { heartbeat::details_of_run(connection, run.run)? } else { Vec::new() };
            Ok(Self { history, inbox, details })
        };
        read_all().or_else(|error: Error| {
            let history = ClaimedHistory::Unreadable(unreadable_reason(error)?);
            Ok(Self { history, inbox: Vec::new(), details: Vec::new() })
        })
    }
}

/// Why this build cannot read a stored value. An error of SQLite itself is returned as an error.
fn unreadable_reason(error: Error) -> Result<String, Error> {
    if error.sqlite_error_code().is_some() { Err(error) } else { Ok(describe_damage(&error)) }
}

/// Assigns a ready run to the session, and builds what the claim returns for it.
fn claim_run(tx: &mut Tx<'_>, claim: &Claim, run: ReadyRun, data: RunData) -> Result<Claimed, Error> {
    let params = params![run.run.to_string(), claim.session.to_string(), tx.now.as_micros()];
    tx.execute(sql::RUN_CLAIM, params)?;
    tx.count_move(run.status, Status::Running);
    let (session, next_seq, consumed) = (claim.session, run.next_seq, run.consumed);
    tx.cache_lease(run.run, CachedLease { session, turn: run.turn, next_seq, consumed });
    Ok(Claimed {
        run: run.run,
        workflow: shared_name(&claim.request, run.workflow),
        version: run.version,
        turn: run.turn,
        seq: run.next_seq,
        turn_at: run.turn_at,
        consumed: run.consumed,
        inbox: data.inbox,
        columns: run.columns,
        is_fresh: run.next_seq <= 1,
        can_end_without_code: run.can_end_without_code,
        is_overdue: run.is_overdue,
        history: data.history,
        details: data.details,
    })
}

/// The workflow's name. It shares the memory of the request's name if the request contains it.
fn shared_name(request: &ClaimRequest, workflow: String) -> Arc<str> {
    let known = request.code.iter().find(|code| *code.workflow == *workflow);
    known.map_or_else(|| workflow.into(), |code| code.workflow.clone())
}

/// The unread messages of the runs that the session holds, for each run up to the first message that this build cannot
/// read. When such a run waits and is claimed again, the claim reports that it is unreadable.
fn unread(connection: &Connection, session: SessionId) -> Result<Vec<UnreadMessages>, Error> {
    let mut statement = connection.prepare_cached(sql::UNREAD)?;
    let runs = statement.query_map([session.to_string()], |row| Ok((parsed(row, 0)?, number(row, 1)?)))?;
    let mut unread = Vec::new();
    for found in runs {
        let (run, consumed) = found?;
        let messages = readable_messages(connection, run, consumed)?;
        if !messages.is_empty() {
            unread.push(UnreadMessages { run, messages });
        }
    }
    Ok(unread)
}

/// The messages of a run after a position, up to the first one that this build cannot read.
fn readable_messages(connection: &Connection, run: RunId, after: u64) -> Result<Vec<Message>, Error> {
    let mut statement = connection.prepare_cached(sql::INBOX_READ)?;
    let params = params![run.to_string(), to_i64(after), INBOX_READ_MAX as i64];
    let mut messages = Vec::new();
    for found in statement.query_map(params, read_message)? {
        match found {
            Ok(message) => messages.push(message),
            Err(error) => {
                unreadable_reason(error)?;
                break;
            }
        }
    }
    Ok(messages)
}
