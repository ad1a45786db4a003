//! Which runs a session could claim: the look that a claim begins with.

use std::collections::HashMap;

use outlast_core::limits::{DEADLINE_GRACE, PREFERENCE, PRIORITY_MAX};
use outlast_core::queue::{rank, step_of_workflow};
use outlast_core::takeover::is_suspect;
use outlast_core::{ClaimRequest, Code, RunId, SessionId, Status, Timestamp, TurnId};
use rusqlite::{Connection, Error, OptionalExtension, Params, Row, params};

use crate::row::{maybe_moment, maybe_word, moment, number, word};
use crate::sql;

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
    pub(crate) crashes: u32,
    pub(crate) status: Status,
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) is_overdue: bool,
    rank: Timestamp,
}

/// Where the walk through one line stopped before its end.
struct Stopped {
    priority: u8,
    /// There was no room for all that is ready.
    is_full: bool,
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
    let mut look =
        Look { connection, now, session, request, limit, alive: HashMap::new(), found: Found::default() };
    let is_step = |code: &Code| step_of_workflow(&code.workflow).is_some();
    let asks_for_steps = request.code.iter().any(is_step);
    for queue in request.queues.iter() {
        let has_steps = asks_for_steps && look.has_steps(queue)?;
        for code in request.code.iter().filter(|code| has_steps || !is_step(code)) {
            look.scan_code(queue, code)?;
        }
    }
    look.scan(sql::READY_CODELESS, [], Needs::Nothing)?;
    look.choose();
    if request.ends_overdue_from <= now {
        look.scan_overdue()?;
    }
    Ok(look.found)
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

struct Look<'a> {
    connection: &'a Connection,
    now: Timestamp,
    session: SessionId,
    request: &'a ClaimRequest,
    limit: usize,
    alive: HashMap<SessionId, bool>,
    found: Found,
}

impl Look<'_> {
    /// Whether a queue has any queued step. A worker has the code of each of its steps, and most queues have
    /// none of them: so the cost of a claim does not grow with the number of steps.
    fn has_steps(&self, queue: &str) -> Result<bool, Error> {
        self.connection.prepare_cached(sql::READY_STEPS)?.exists([queue])
    }

    /// Walks the lines of one queue and workflow. Where all runs have the same priority, and that is the
    /// lowest, one walk is enough.
    fn scan_code(&mut self, queue: &str, code: &Code) -> Result<(), Error> {
        let (workflow, version, now) = (&*code.workflow, code.version, self.now.as_micros());
        let mut highest = PRIORITY_MAX;
        loop {
            let params = params![queue, workflow, version, highest];
            let Some(stopped) = self.scan(sql::READY_BY_CODE, params, Needs::Code)? else { return Ok(()) };
            if stopped.is_full {
                // What is ready is left for the next claim; only what will be is due.
                self.scan_due(sql::DUE_BY_CODE, params![queue, workflow, version, stopped.priority, now])?;
            }
            let Some(lower) = stopped.priority.checked_sub(1) else { return Ok(()) };
            highest = lower;
        }
    }

    /// Walks lines in order of readiness, each until nothing earlier can come; says where it stopped if
    /// more lines may follow, or there was no room for all that is ready.
    fn scan(&mut self, sql: &str, params: impl Params, needs: Needs) -> Result<Option<Stopped>, Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        let (mut room, mut has_suspect, mut line) = (self.limit, false, None);
        while let Some(row) = rows.next()? {
            let (ready_at, priority) = (moment(row, 11)?, number(row, 15)?);
            if line.replace(priority) != Some(priority) {
                (room, has_suspect) = (self.limit, false);
            }
            if self.is_past_next_due(ready_at) {
                return Ok(Some(Stopped { priority, is_full: false }));
            }
            let is_suspect = is_suspect(number(row, 10)?);
            if !self.fits(row, needs)? || is_suspect && has_suspect {
                continue;
            }
            let due = self.due(row, ready_at)?;
            if due > self.now {
                self.see(due);
            } else if room == 0 {
                return Ok(Some(Stopped { priority, is_full: true }));
            } else {
                room -= 1;
                has_suspect |= is_suspect;
                self.found.ready.push(ready(row, ready_at)?);
            }
        }
        Ok(None)
    }

    /// Adds runs that are overdue to those that were chosen, as long as there is room.
    fn scan_overdue(&mut self) -> Result<(), Error> {
        let mut suspect = self.request.suspect && !self.found.ready.iter().any(|run| is_suspect(run.crashes));
        let mut statement = self.connection.prepare_cached(sql::READY_OVERDUE)?;
        let mut rows = statement.query([latest_overdue(self.now)])?;
        while self.found.ready.len() < self.limit
            && let Some(row) = rows.next()?
        {
            let (run, is_suspect) = (word::<RunId>(row, 0)?, is_suspect(number(row, 10)?));
            let is_chosen = self.found.ready.iter().any(|chosen| chosen.run == run);
            if is_chosen || is_suspect && !suspect {
                continue;
            }
            suspect &= !is_suspect;
            let overdue_at = moment(row, 14)?.plus(DEADLINE_GRACE);
            self.found.ready.push(Ready { is_overdue: true, ..ready(row, overdue_at)? });
        }
        Ok(())
    }

    /// Walks runs that are not ready yet, until nothing earlier can come.
    fn scan_due(&mut self, sql: &str, params: impl Params) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            let ready_at = moment(row, 11)?;
            if self.is_past_next_due(ready_at) {
                break;
            }
            if self.fits(row, Needs::Code)? {
                let due = self.due(row, ready_at)?;
                self.see(due);
            }
        }
        Ok(())
    }

    fn is_past_next_due(&self, ready_at: Timestamp) -> bool {
        ready_at > self.now && self.found.next_due.is_some_and(|due| due <= ready_at)
    }

    /// Whether this worker could ever have the run.
    fn fits(&self, row: &Row<'_>, needs: Needs) -> Result<bool, Error> {
        if is_suspect(number(row, 10)?) && !self.request.suspect {
            return Ok(false);
        }
        if needs == Needs::Nothing {
            return Ok(true);
        }
        let format: u32 = number(row, 3)?;
        let barred = row.get_ref(12)?.as_str_or_null()?;
        Ok(format <= self.request.format && barred != Some(&*self.request.build))
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

    /// Merges what the indexes gave: in order, each run once, one suspect, no more than asked for.
    fn choose(&mut self) {
        let mut ready = std::mem::take(&mut self.found.ready);
        ready.sort_by_key(|run| (run.rank, run.run));
        ready.dedup_by_key(|run| run.run);
        let mut has_suspect = false;
        ready.retain(|run| !is_suspect(run.crashes) || !std::mem::replace(&mut has_suspect, true));
        ready.truncate(self.limit);
        self.found.ready = ready;
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
        crashes: number(row, 10)?,
        status: word(row, 13)?,
        deadline: maybe_moment(row, 14)?,
        is_overdue: false,
        rank: rank(ready_at, number(row, 15)?),
    })
}
