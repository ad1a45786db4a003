//! Which runs a session could claim: the look that a claim begins with.

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
use crate::schema::row::{maybe_word, moment, number, word};
use crate::schema::sql;

/// Where the columns of the holder begin in the rows of the statements of a claim.
const COLUMNS: usize = 14;

/// A run that could be claimed.
#[derive(Debug)]
pub(crate) struct Ready {
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
    pub(crate) is_overdue: bool,
    rank: Timestamp,
}

/// Where the walk through the lines of one queue and workflow stopped.
struct Stopped {
    line: String,
    priority: u8,
    why: Why,
}

/// Why the walk through a line stopped before its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The worker may have nothing of the line.
    NotForUs,
    /// Nothing that is earlier than what was seen can come in this priority.
    NothingEarlier,
    /// There was no room for all that is ready in this priority.
    Full,
}

/// What a look found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Runs to claim, the lowest rank first, and behind those the overdue ones.
    pub(crate) ready: Vec<Ready>,
    /// When the next one could be claimed, apart from those that become overdue.
    pub(crate) next_due: Option<Timestamp>,
}

/// Looks for at most `limit` runs that the session may have now.
pub(crate) fn look(
    connection: &Connection,
    now: Timestamp,
    session: SessionId,
    request: &ClaimRequest,
    limit: usize,
) -> Result<Found, Error> {
    if matches!(request.suspects, SuspectRoom::TrialFirst { room } if room > 0) && limit > 0 {
        let trial = Look::new(connection, now, session, request, Classes::LastOnly, 1).everything()?;
        if !trial.ready.is_empty() {
            let others = Look::new(connection, now, session, request, Classes::Admitted, 0).everything()?;
            return Ok(Found { ready: trial.ready, next_due: others.next_due });
        }
    }
    Look::new(connection, now, session, request, Classes::Admitted, limit).everything()
}

/// When the next run that nobody holds is given as overdue, if that begins at `from`.
pub(crate) fn next_overdue(
    connection: &Connection,
    now: Timestamp,
    from: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let given = if from <= now { latest_overdue(now) } else { i64::MIN };
    let mut statement = connection.prepare_cached(sql::OVERDUE_NEXT)?;
    let deadline = statement.query_row([given], |row| moment(row, 0)).optional()?;
    let due = deadline.map(|deadline| deadline.plus(DEADLINE_GRACE).max(from));
    Ok(due.filter(|due| *due < Timestamp::NEVER))
}

/// The latest deadline that makes a run overdue, as SQLite stores it.
fn latest_overdue(now: Timestamp) -> i64 {
    let grace = i64::try_from(DEADLINE_GRACE.as_micros()).unwrap_or(i64::MAX);
    now.as_micros().saturating_sub(grace)
}

/// What a run needs of the worker that claims it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    Code,
    Nothing,
}

/// Which crash classes a look is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Classes {
    /// Those that the request may be given.
    Admitted,
    /// The last one: a new session takes a run of it alone.
    LastOnly,
}

struct Look<'a> {
    connection: &'a Connection,
    now: Timestamp,
    session: SessionId,
    request: &'a ClaimRequest,
    classes: Classes,
    admission: Admission,
    limit: usize,
    alive: HashMap<SessionId, bool>,
    found: Found,
}

impl<'a> Look<'a> {
    fn new(
        connection: &'a Connection,
        now: Timestamp,
        session: SessionId,
        request: &'a ClaimRequest,
        classes: Classes,
        limit: usize,
    ) -> Self {
        let admission = Admission::new(request.suspects);
        let (alive, found) = Default::default();
        Self { connection, now, session, request, classes, admission, limit, alive, found }
    }

    /// Looks at all that the request asks for.
    fn everything(mut self) -> Result<Found, Error> {
        let is_step = |code: &Code| step_of_workflow(&code.workflow).is_some();
        let asks_for_steps = self.request.code.iter().any(is_step);
        for queue in self.request.queues.iter() {
            let has_steps = asks_for_steps && self.has_steps(queue)?;
            for code in self.request.code.iter().filter(|code| has_steps || !is_step(code)) {
                self.scan_code(queue, code)?;
            }
        }
        self.scan(&sql::READY_CODELESS, [], Needs::Nothing)?;
        self.choose();
        if self.classes == Classes::Admitted && self.request.ends_overdue_from <= self.now {
            self.scan_overdue()?;
        }
        Ok(self.found)
    }

    /// Whether a queue has any queued step. A worker has the code of each of its steps, and most queues have
    /// none of them: so the cost of a claim does not grow with the number of steps.
    fn has_steps(&self, queue: &str) -> Result<bool, Error> {
        self.connection.prepare_cached(sql::READY_STEPS)?.exists([queue])
    }

    /// Walks the lines of one queue and workflow that the worker may have, and skips the others as a whole. Where
    /// all runs stand in one line and priority, one walk is enough.
    fn scan_code(&mut self, queue: &str, code: &Code) -> Result<(), Error> {
        let mut behind = String::new();
        loop {
            let params = params![queue, &*code.workflow, code.version, behind];
            let Some(stopped) = self.scan(&sql::READY_BY_CODE, params, Needs::Code)? else { return Ok(()) };
            behind.clone_from(&stopped.line);
            self.scan_rest_of_line(queue, code, stopped)?;
        }
    }

    /// Walks the lower priorities of a line, one at a time where each stops early.
    fn scan_rest_of_line(&mut self, queue: &str, code: &Code, first: Stopped) -> Result<(), Error> {
        let (workflow, version, now) = (&*code.workflow, code.version, self.now.as_micros());
        let mut next = Some(first);
        while let Some(Stopped { line, priority, why }) = next {
            if why == Why::NotForUs {
                return Ok(());
            }
            if why == Why::Full {
                // What is ready is left for the next claim; only what will be is due.
                self.scan_due(&sql::DUE_IN_LINE, params![queue, workflow, version, line, priority, now])?;
            }
            let Some(lower) = priority.checked_sub(1) else { return Ok(()) };
            let params = params![queue, workflow, version, line, lower];
            next = self.scan(&sql::READY_IN_LINE, params, Needs::Code)?;
        }
        Ok(())
    }

    /// Walks runs in order of lines and readiness, each priority until nothing earlier can come; says where it
    /// stopped if more may follow.
    fn scan(&mut self, sql: &str, params: impl Params, needs: Needs) -> Result<Option<Stopped>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let (mut rooms, mut at) = (Rooms::default(), None);
        let mut line = String::new();
        while let Some(row) = rows.next()? {
            let (ready_at, priority, crashes) =
                (moment(row, 10)?, number(row, 12)?, columns::crashes(row, COLUMNS)?);
            let stop = |why, line| Ok(Some(Stopped { line, priority, why }));
            let is_new_line = needs == Needs::Code && row.get_ref(13)?.as_str()? != line;
            if is_new_line {
                line = row.get(13)?;
                if !self.fits(row, needs)? {
                    return stop(Why::NotForUs, line);
                }
            }
            if at.replace(priority) != Some(priority) || is_new_line {
                rooms = Rooms::default();
            }
            if self.is_past_next_due(ready_at) {
                return stop(Why::NothingEarlier, line);
            }
            if needs == Needs::Nothing && !self.fits(row, needs)? {
                continue;
            }
            let due = self.due(row, ready_at)?;
            if due > self.now {
                self.see(due);
                continue;
            }
            match rooms.take(&self.admission, crashes, self.limit) {
                Room::Taken => self.found.ready.push(ready(row, ready_at)?),
                Room::ClassIsFull if needs == Needs::Nothing => {}
                Room::ClassIsFull | Room::Full => return stop(Why::Full, line),
            }
        }
        Ok(None)
    }

    /// Adds runs that are overdue to those that were chosen, as long as there is room.
    fn scan_overdue(&mut self) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(&sql::READY_OVERDUE)?;
        let mut rows = statement.query([latest_overdue(self.now)])?;
        while self.found.ready.len() < self.limit
            && let Some(row) = rows.next()?
        {
            let run = word::<RunId>(row, 0)?;
            let is_chosen = self.found.ready.iter().any(|chosen| chosen.run == run);
            if is_chosen || !self.can_read(row)? || !self.admission.admit(columns::crashes(row, COLUMNS)?) {
                continue;
            }
            let deadline = columns::deadline(row, COLUMNS)?.unwrap_or(self.now);
            let overdue_at = deadline.plus(DEADLINE_GRACE);
            self.found.ready.push(Ready { is_overdue: true, ..ready(row, overdue_at)? });
        }
        Ok(())
    }

    /// Walks runs that are not ready yet, until nothing earlier can come.
    fn scan_due(&mut self, sql: &str, params: impl Params) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            let ready_at = moment(row, 10)?;
            if self.is_past_next_due(ready_at) {
                break;
            }
            let due = self.due(row, ready_at)?;
            self.see(due);
        }
        Ok(())
    }

    fn is_past_next_due(&self, ready_at: Timestamp) -> bool {
        ready_at > self.now && self.found.next_due.is_some_and(|due| due <= ready_at)
    }

    /// Whether this worker could ever have the run: what all runs of a line have in common.
    fn fits(&self, row: &Row<'_>, needs: Needs) -> Result<bool, Error> {
        let crashes = columns::crashes(row, COLUMNS)?;
        let is_of_class = match self.classes {
            Classes::Admitted => self.admission.allows(crashes),
            Classes::LastOnly => crash_class(crashes) == CRASH_CLASS_MAX,
        };
        if !is_of_class || !self.can_read(row)? {
            return Ok(false);
        }
        Ok(needs == Needs::Nothing || !columns::builds(row, COLUMNS)?.contains(&self.request.build))
    }

    fn can_read(&self, row: &Row<'_>) -> Result<bool, Error> {
        Ok(number::<u32>(row, 3)? <= self.request.format)
    }

    /// When this worker may have the run: others wait for the one that has its future.
    fn due(&mut self, row: &Row<'_>, ready_at: Timestamp) -> Result<Timestamp, Error> {
        let preferred: Option<SessionId> = maybe_word(row, 4)?;
        match preferred {
            Some(other) if other != self.session && self.is_alive(other)? => Ok(ready_at.plus(PREFERENCE)),
            _ => Ok(ready_at),
        }
    }

    fn is_alive(&mut self, session: SessionId) -> Result<bool, Error> {
        if let Some(alive) = self.alive.get(&session) {
            return Ok(*alive);
        }
        let mut statement = self.connection.prepare_cached(sql::SESSION_ALIVE)?;
        let alive = statement.query_row([session.to_string()], |row| row.get(0))?;
        self.alive.insert(session, alive);
        Ok(alive)
    }

    fn see(&mut self, due: Timestamp) {
        self.found.next_due = Some(self.found.next_due.map_or(due, |earlier| earlier.min(due)));
    }

    /// Merges what the indexes gave: in order, each run once, as many of the higher crash classes as are admitted, no
    /// more than asked for.
    fn choose(&mut self) {
        let mut ready = std::mem::take(&mut self.found.ready);
        ready.sort_by_key(|run| (run.rank, run.run));
        ready.dedup_by_key(|run| run.run);
        let admission = &mut self.admission;
        let admitted = ready.into_iter().filter(|run| admission.admit(run.columns.crashes));
        self.found.ready = admitted.take(self.limit).collect();
    }
}

/// How many runs were found in one priority of a line, by crash class.
#[derive(Default)]
struct Rooms {
    usual: usize,
    suspects: [usize; CRASH_CLASS_MAX as usize + 1],
}

/// Whether there is room for one more run.
enum Room {
    Taken,
    /// Not for one of this crash class.
    ClassIsFull,
    /// Not for any run behind it.
    Full,
}

impl Rooms {
    fn take(&mut self, admission: &Admission, crashes: u32, limit: usize) -> Room {
        if self.usual >= limit {
            return Room::Full;
        }
        if !is_suspect(crashes) {
            self.usual += 1;
            return Room::Taken;
        }
        let class = crash_class(crashes);
        let Some(taken) = self.suspects.get_mut(class as usize) else { return Room::ClassIsFull };
        if *taken >= limit.min(admission.class_room(class)) {
            return Room::ClassIsFull;
        }
        *taken += 1;
        Room::Taken
    }
}

fn ready(row: &Row<'_>, ready_at: Timestamp) -> Result<Ready, Error> {
    Ok(Ready {
        run: word(row, 0)?,
        workflow: row.get(1)?,
        version: number(row, 2)?,
        turn: word(row, 5)?,
        next_seq: number(row, 6)?,
        turn_at: moment(row, 7)?,
        sent: number(row, 8)?,
        consumed: number(row, 9)?,
        preferred: maybe_word(row, 4)?,
        status: word(row, 11)?,
        columns: columns::read(row, COLUMNS)?,
        is_overdue: false,
        rank: rank(ready_at, number(row, 12)?),
    })
}

#[cfg(test)]
mod tests;
