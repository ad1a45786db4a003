//! The search for runs that a session can claim.
//!
//! **Lines.** The column `line` of a run contains everything that decides who may claim it, apart from its queue and
//! its code: the format, the crash class and the failed builds. So either a worker may claim all runs of a line, or
//! none. The index `runs_ready` is sorted by queue, workflow, version, line, priority and time. The search reads each
//! line that the worker may claim from its front, and skips each other line with one seek. That is why runs that the
//! worker may not claim do not slow down its claims.
//!
//! **Priorities.** Within a line the search reads one priority after the other. A priority is finished when the search
//! has found enough ready runs in it, or when its next run becomes ready later than the earliest one that is already
//! known.

use std::collections::HashMap;
use std::sync::Arc;

use outlast_core::limits::{DEADLINE_GRACE, PREFERENCE};
use outlast_core::queue::{rank, step_of_workflow};
use outlast_core::takeover::{Admission, CRASH_CLASS_MAX, crash_class, is_suspect};
use outlast_core::{
    ClaimRequest, Code, HolderColumns, RunId, SessionId, Status, SuspectRoom, Timestamp, TurnId,
};
use rusqlite::{Connection, Error, OptionalExtension, Params, Row, params};

use crate::schema::columns;
use crate::schema::row::{number, parsed, parsed_or_null, timestamp};
use crate::schema::sql;

/// The number of the first holder's column in the rows of the statements of a claim.
const HOLDER_COLUMNS: usize = 15;

/// A run that the session can claim.
#[derive(Debug)]
pub(crate) struct ReadyRun {
    pub(crate) run: RunId,
    pub(crate) workflow: String,
    pub(crate) version: u32,
    pub(crate) turn: TurnId,
    pub(crate) next_seq: u64,
    pub(crate) turn_at: Timestamp,
    pub(crate) sent: u64,
    pub(crate) consumed: u64,
    pub(crate) preferred: Option<SessionId>,
    pub(crate) status: Status,
    pub(crate) columns: Arc<HolderColumns>,
    pub(crate) can_end_without_code: bool,
    pub(crate) is_overdue: bool,
    rank: Timestamp,
}

/// Where a scan stopped before the last run.
struct ScanStop {
    line: String,
    priority: u8,
    reason: ScanStopReason,
}

/// Why a scan stopped before the last run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScanStopReason {
    /// The worker may not claim any run of the line.
    NotClaimable,
    /// The remaining runs of this priority become ready later than the earliest one that is already known.
    NothingEarlier,
    /// The scan found as many ready runs of this priority as the claim may take.
    LimitReached,
}

/// The result of the search.
#[derive(Debug, Default)]
pub(crate) struct ClaimableRuns {
    /// Runs to claim: those that are ready by rank, lowest first, then the overdue ones.
    pub(crate) ready: Vec<ReadyRun>,
    /// When the next run can be claimed, not counting runs that become overdue.
    pub(crate) next_due: Option<Timestamp>,
}

/// Finds at most `limit` runs that the session can claim now.
pub(crate) fn find_claimable(
    connection: &Connection,
    now: Timestamp,
    session: SessionId,
    request: &ClaimRequest,
    limit: usize,
) -> Result<ClaimableRuns, Error> {
    if matches!(request.suspects, SuspectRoom::TrialFirst { room } if room > 0) && limit > 0 {
        let trial = ClaimScan::new(connection, now, session, request, CrashClasses::LastOnly, 1).run()?;
        if !trial.ready.is_empty() {
            let others =
                ClaimScan::new(connection, now, session, request, CrashClasses::Admitted, 0).run()?;
            return Ok(ClaimableRuns { ready: trial.ready, next_due: others.next_due });
        }
    }
    ClaimScan::new(connection, now, session, request, CrashClasses::Admitted, limit).run()
}

/// When the next run that no session holds can be claimed as overdue, if overdue runs can be claimed from `from` on.
pub(crate) fn next_overdue(
    connection: &Connection,
    now: Timestamp,
    from: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let already_overdue = if from <= now { latest_overdue(now) } else { i64::MIN };
    let mut statement = connection.prepare_cached(sql::OVERDUE_NEXT)?;
    let deadline = statement.query_row([already_overdue], |row| timestamp(row, 0)).optional()?;
    let due = deadline.map(|deadline| deadline.plus(DEADLINE_GRACE).max(from));
    Ok(due.filter(|due| *due < Timestamp::NEVER))
}

/// The latest deadline of a run that is overdue now, in microseconds.
fn latest_overdue(now: Timestamp) -> i64 {
    let grace = i64::try_from(DEADLINE_GRACE.as_micros()).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(grace)
}

/// Whether the worker that claims a run needs the code of its workflow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequiredCode {
    Workflow,
    Nothing,
}

/// The crash classes that a search is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CrashClasses {
    /// Those that the request admits.
    Admitted,
    /// The last one, for the trial of a new session.
    LastOnly,
}

/// A search in progress.
struct ClaimScan<'a> {
    connection: &'a Connection,
    now: Timestamp,
    session: SessionId,
    request: &'a ClaimRequest,
    classes: CrashClasses,
    admission: Admission,
    limit: usize,
    /// Whether each preferred session still exists.
    session_exists: HashMap<SessionId, bool>,
    found: ClaimableRuns,
}

impl<'a> ClaimScan<'a> {
    fn new(
        connection: &'a Connection,
        now: Timestamp,
        session: SessionId,
        request: &'a ClaimRequest,
        classes: CrashClasses,
        limit: usize,
    ) -> Self {
        let admission = Admission::new(request.suspects);
        Self {
            connection,
            now,
            session,
            request,
            classes,
            admission,
            limit,
            session_exists: HashMap::new(),
            found: ClaimableRuns::default(),
        }
    }

    /// Searches all queues and workflows of the request.
    fn run(mut self) -> Result<ClaimableRuns, Error> {
        let is_step = |code: &Code| step_of_workflow(&code.workflow).is_some();
        let requests_steps = self.request.code.iter().any(is_step);
        for queue in self.request.queues.iter() {
            let has_steps = requests_steps && self.has_steps(queue)?;
            for code in self.request.code.iter().filter(|code| has_steps || !is_step(code)) {
                self.scan_code(queue, code)?;
            }
        }
        self.scan(&sql::READY_WITHOUT_CODE, [], RequiredCode::Nothing)?;
        self.select();
        if self.classes == CrashClasses::Admitted && self.request.ends_overdue_from <= self.now {
            self.scan_overdue()?;
        }
        Ok(self.found)
    }

    /// Whether a queue contains any queued step. Most queues contain none, and then the claim does not search for each
    /// step of the worker. So its cost does not grow with the number of steps.
    fn has_steps(&self, queue: &str) -> Result<bool, Error> {
        self.connection.prepare_cached(sql::READY_STEPS)?.exists([queue])
    }

    /// Scans all lines of one queue and workflow. If all runs have the same line and priority, one scan is enough.
    fn scan_code(&mut self, queue: &str, code: &Code) -> Result<(), Error> {
        let mut after_line = String::new();
        loop {
            let params = params![queue, &*code.workflow, code.version, after_line];
            let Some(stop) = self.scan(&sql::READY_BY_CODE, params, RequiredCode::Workflow)? else {
                return Ok(());
            };
            after_line.clone_from(&stop.line);
            self.scan_rest_of_line(queue, code, stop)?;
        }
    }

    /// Scans the remaining priorities of a line after a scan has stopped in it.
    fn scan_rest_of_line(&mut self, queue: &str, code: &Code, first: ScanStop) -> Result<(), Error> {
        let (workflow, version, now) = (&*code.workflow, code.version, self.now.as_micros());
        let mut next = Some(first);
        while let Some(ScanStop { line, priority, reason }) = next {
            if reason == ScanStopReason::NotClaimable {
                return Ok(());
            }
            if reason == ScanStopReason::LimitReached {
                // The other ready runs are for the next claim. Find when the first run of this priority that is not
                // ready yet becomes due.
                self.scan_due(&sql::DUE_IN_LINE, params![queue, workflow, version, line, priority, now])?;
            }
            let Some(lower) = priority.checked_sub(1) else { return Ok(()) };
            let params = params![queue, workflow, version, line, lower];
            next = self.scan(&sql::READY_IN_LINE, params, RequiredCode::Workflow)?;
        }
        Ok(())
    }

    /// Reads runs in the order of the statement, and collects those that can be claimed. Returns where it stopped, or
    /// `None` if it read all rows.
    fn scan(
        &mut self,
        sql: &str,
        params: impl Params,
        required: RequiredCode,
    ) -> Result<Option<ScanStop>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let (mut taken, mut current_priority) = (TakenRuns::default(), None);
        let mut line = String::new();
        while let Some(row) = rows.next()? {
            let (ready_at, priority, crashes) =
                (timestamp(row, 10)?, number(row, 12)?, columns::read_crashes(row, HOLDER_COLUMNS)?);
            let stop = |reason, line| Ok(Some(ScanStop { line, priority, reason }));
            let is_new_line = required == RequiredCode::Workflow && row.get_ref(13)?.as_str()? != line;
            if is_new_line {
                line = row.get(13)?;
                if !self.may_claim(row, required)? {
                    return stop(ScanStopReason::NotClaimable, line);
                }
            }
            if current_priority.replace(priority) != Some(priority) || is_new_line {
                taken = TakenRuns::default();
            }
            if self.is_past_next_due(ready_at) {
                return stop(ScanStopReason::NothingEarlier, line);
            }
            if required == RequiredCode::Nothing && !self.may_claim(row, required)? {
                continue;
            }
            let due = self.claimable_at(row, ready_at)?;
            if due > self.now {
                self.update_next_due(due);
                continue;
            }
            match taken.add(&self.admission, crashes, self.limit) {
                Added::Yes => self.found.ready.push(ready_run(row, ready_at)?),
                // Runs of other crash classes may follow, because these runs are not sorted by line.
                Added::ClassLimitReached if required == RequiredCode::Nothing => {}
                Added::ClassLimitReached | Added::LimitReached => {
                    return stop(ScanStopReason::LimitReached, line);
                }
            }
        }
        Ok(None)
    }

    /// Adds overdue runs to the selected ones, up to the limit.
    fn scan_overdue(&mut self) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(&sql::READY_OVERDUE)?;
        let mut rows = statement.query([latest_overdue(self.now)])?;
        while self.found.ready.len() < self.limit
            && let Some(row) = rows.next()?
        {
            let run = parsed::<RunId>(row, 0)?;
            let is_selected = self.found.ready.iter().any(|selected| selected.run == run);
            if is_selected
                || !self.can_read(row)?
                || !self.admission.admit(columns::read_crashes(row, HOLDER_COLUMNS)?)
            {
                continue;
            }
            let deadline = columns::read_deadline(row, HOLDER_COLUMNS)?.unwrap_or(self.now);
            let overdue_at = deadline.plus(DEADLINE_GRACE);
            self.found.ready.push(ReadyRun { is_overdue: true, ..ready_run(row, overdue_at)? });
        }
        Ok(())
    }

    /// Reads runs that are not ready yet, until the rest becomes ready later than the earliest one that is known.
    fn scan_due(&mut self, sql: &str, params: impl Params) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            let ready_at = timestamp(row, 10)?;
            if self.is_past_next_due(ready_at) {
                break;
            }
            let due = self.claimable_at(row, ready_at)?;
            self.update_next_due(due);
        }
        Ok(())
    }

    /// Whether a run becomes ready later than the earliest one that is already known.
    fn is_past_next_due(&self, ready_at: Timestamp) -> bool {
        ready_at > self.now && self.found.next_due.is_some_and(|due| due <= ready_at)
    }

    /// Whether this worker may claim the run when it is ready. The answer is the same for all runs of a line.
    fn may_claim(&self, row: &Row<'_>, required: RequiredCode) -> Result<bool, Error> {
        let crashes = columns::read_crashes(row, HOLDER_COLUMNS)?;
        let is_of_class = match self.classes {
            CrashClasses::Admitted => self.admission.allows(crashes),
            CrashClasses::LastOnly => crash_class(crashes) == CRASH_CLASS_MAX,
        };
        if !is_of_class || !self.can_read(row)? {
            return Ok(false);
        }
        Ok(required == RequiredCode::Nothing
            || !columns::read_failed_builds(row, HOLDER_COLUMNS)?.contains(&self.request.build))
    }

    /// Whether this build supports the run's format.
    fn can_read(&self, row: &Row<'_>) -> Result<bool, Error> {
        Ok(number::<u32>(row, 3)? <= self.request.format)
    }

    /// When this worker may claim the run. For a short time after `ready_at`, only the preferred session may claim it,
    /// because its worker may still have the run in memory.
    fn claimable_at(&mut self, row: &Row<'_>, ready_at: Timestamp) -> Result<Timestamp, Error> {
        let preferred: Option<SessionId> = parsed_or_null(row, 4)?;
        match preferred {
            Some(other) if other != self.session && self.exists(other)? => Ok(ready_at.plus(PREFERENCE)),
            _ => Ok(ready_at),
        }
    }

    fn exists(&mut self, session: SessionId) -> Result<bool, Error> {
        if let Some(exists) = self.session_exists.get(&session) {
            return Ok(*exists);
        }
        let mut statement = self.connection.prepare_cached(sql::SESSION_EXISTS)?;
        let exists = statement.query_row([session.to_string()], |row| row.get(0))?;
        self.session_exists.insert(session, exists);
        Ok(exists)
    }

    fn update_next_due(&mut self, due: Timestamp) {
        self.found.next_due = Some(self.found.next_due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Merges the results of all scans: sorts them by rank, removes duplicates, and applies the limits of the crash
    /// classes and of the claim.
    fn select(&mut self) {
        let mut ready = std::mem::take(&mut self.found.ready);
        ready.sort_by_key(|run| (run.rank, run.run));
        ready.dedup_by_key(|run| run.run);
        let admission = &mut self.admission;
        let admitted = ready.into_iter().filter(|run| admission.admit(run.columns.crashes));
        self.found.ready = admitted.take(self.limit).collect();
    }
}

/// The number of runs that a scan has taken from one priority of a line.
#[derive(Default)]
struct TakenRuns {
    not_suspect: usize,
    /// By crash class.
    suspects: [usize; CRASH_CLASS_MAX as usize + 1],
}

/// Whether one more run was taken.
enum Added {
    Yes,
    /// No, because of the limit of its crash class.
    ClassLimitReached,
    /// No, and no later run can be taken either.
    LimitReached,
}

impl TakenRuns {
    fn add(&mut self, admission: &Admission, crashes: u32, limit: usize) -> Added {
        if self.not_suspect >= limit {
            return Added::LimitReached;
        }
        if !is_suspect(crashes) {
            self.not_suspect += 1;
            return Added::Yes;
        }
        let class = crash_class(crashes);
        let Some(taken) = self.suspects.get_mut(class as usize) else { return Added::ClassLimitReached };
        if *taken >= limit.min(admission.class_room(class)) {
            return Added::ClassLimitReached;
        }
        *taken += 1;
        Added::Yes
    }
}

fn ready_run(row: &Row<'_>, ready_at: Timestamp) -> Result<ReadyRun, Error> {
    Ok(ReadyRun {
        run: parsed(row, 0)?,
        workflow: row.get(1)?,
        version: number(row, 2)?,
        turn: parsed(row, 5)?,
        next_seq: number(row, 6)?,
        turn_at: timestamp(row, 7)?,
        sent: number(row, 8)?,
        consumed: number(row, 9)?,
        preferred: parsed_or_null(row, 4)?,
        status: parsed(row, 11)?,
        columns: columns::read(row, HOLDER_COLUMNS)?,
        can_end_without_code: row.get(14)?,
        is_overdue: false,
        rank: rank(ready_at, number(row, 12)?),
    })
}

#[cfg(test)]
mod tests;
