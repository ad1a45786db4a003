//! The state machine of a run: whether a turn is accepted, and the row of the run after it.
//!
//! Core decides, worlds store. A world reads the run's position, calls [`judge`] to decide whether the turn may be
//! committed, and writes the columns of [`RowChange`]. Worlds decide three things themselves, because only they know
//! them: the time of the change, which of the [`Readiness`] values applies (a message may have arrived between the
//! claim and the commit), and the columns that others may change at the same time (the number of messages, the marks
//! of cancel and terminate, and the format, which only increases).
//!
//! A run leaves its holder in three ways: by a turn ([`RowChange::of`]), because its worker leaves, or because its
//! worker crashed (both [`Released`]). A session that has expired still holds its runs until another session takes
//! over.

mod columns;
mod pause;
mod reopen;

use std::sync::Arc;

use crate::error::WorldError;
use crate::event::Event;
use crate::failed_builds::Failed;
use crate::format::{FIRST_FORMAT, format_of_events};
use crate::id::{RunId, SessionId, TurnId};
use crate::limits::FAILED_BUILD_RETRY;
use crate::marks::Marks;
use crate::refusal::not_resumable;
use crate::run::{RunFailure, Start, Status, Stuck, Wait};
use crate::takeover::{HeldRuns, count_crash, poison};
use crate::time::Timestamp;
use crate::turn::{BasedOn, Then, Turn};

pub use columns::{HolderColumns, TurnColumns};
pub use pause::{PauseEffect, is_paused_by, marks_after_send};
pub use reopen::{EndedRun, reopened};

/// The position of a run, as a world reads it before a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The session that holds the run.
    pub owner: Option<SessionId>,
    /// Its last turn.
    pub turn: TurnId,
    /// The number of its next event.
    pub next_event: u64,
    /// The number of messages that it has consumed.
    pub consumed: u64,
    /// The number of messages that were sent to it.
    pub sent: u64,
}

/// How a world handles a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is written.
    Accepted,
    /// It was written before: the response is the same, and nothing is written.
    Repeated,
}

/// Whether a turn of a run that a session holds may be committed. `missed` is the time at which the first message was
/// accepted that the turn has not consumed; it matters only for a turn that fired timers.
///
/// # Errors
///
/// [`WorldError::Fenced`] when the session does not hold the run or the turn is based on another one,
/// [`WorldError::Conflict`] when the turn fires a timer that is later than an unread message,
/// [`WorldError::Invalid`] when the turn is inconsistent, in itself or with the run.
pub fn judge(
    turn: &Turn,
    session: SessionId,
    position: &Position,
    missed: Option<Timestamp>,
) -> Result<Verdict, WorldError> {
    CommitTerms::of(turn).judge(session, position, missed)
}

/// The part of a turn that decides whether it is accepted, without its events: for a world that passes a turn to
/// another thread.
#[derive(Clone, Debug, PartialEq)]
pub struct CommitTerms {
    /// The run.
    pub run: RunId,
    /// The turn's id.
    pub id: TurnId,
    /// The turn that it was computed from; `None` when it starts the run.
    pub based_on: Option<TurnId>,
    /// The number of its first event.
    pub seq: u64,
    /// The number of messages that the run has consumed after it.
    pub consumed: u64,
    /// See [`Turn::fired_until`].
    pub fired_until: Option<Timestamp>,
    /// Whether it makes the run stuck, and therefore consumes nothing.
    pub is_stuck: bool,
    /// Whether it is consistent; see [`check`].
    pub validity: Result<(), WorldError>,
}

impl CommitTerms {
    /// The commit terms of a turn.
    pub fn of(turn: &Turn) -> Self {
        Self {
            run: turn.run,
            id: turn.id,
            based_on: match &turn.based_on {
                BasedOn::Turn(from) => Some(*from),
                BasedOn::Start(_) => None,
            },
            seq: turn.seq,
            consumed: turn.consumed,
            fired_until: turn.fired_until,
            is_stuck: matches!(turn.then, Then::Stuck(_)),
            validity: check(turn),
        }
    }

    /// See [`judge`].
    ///
    /// # Errors
    ///
    /// Those of [`judge`].
    pub fn judge(
        &self,
        session: SessionId,
        position: &Position,
        missed: Option<Timestamp>,
    ) -> Result<Verdict, WorldError> {
        let Some(from) = self.based_on else {
            return Err(invalid(self.run, "the run already exists"));
        };
        if position.turn == self.id {
            return Ok(Verdict::Repeated);
        }
        match position.owner {
            Some(owner) if owner == session => {}
            Some(owner) => return Err(fenced(self.run, &format!("session {owner} holds it"))),
            None => return Err(fenced(self.run, "nobody holds it")),
        }
        if position.turn != from {
            let reason = format!("it was computed from {from}, the last turn is {}", position.turn);
            return Err(fenced(self.run, &reason));
        }
        if self.seq != position.next_event {
            let reason =
                format!("it begins with event {}, the next one is {}", self.seq, position.next_event);
            return Err(invalid(self.run, &reason));
        }
        self.validity.clone()?;
        if self.is_stuck {
            return Ok(Verdict::Accepted);
        }
        if self.consumed < position.consumed {
            return Err(invalid(self.run, "it consumed less than the turn before"));
        }
        if self.consumed > position.sent {
            return Err(invalid(self.run, "it consumed more messages than were sent"));
        }
        match (self.fired_until, missed) {
            (Some(fired), Some(accepted)) if accepted <= fired => Err(missed_message(self.run, fired)),
            _ => Ok(Verdict::Accepted),
        }
    }
}

/// Checks that a turn is consistent in itself, independent of its run.
///
/// # Errors
///
/// [`WorldError::Invalid`] when it is inconsistent.
pub fn check(turn: &Turn) -> Result<(), WorldError> {
    if let Then::End(status) = turn.then
        && turn.events.last().and_then(Status::of_final) != Some(status)
    {
        let reason = format!("it ends as {status} and its last event does not say so");
        return Err(invalid(turn.run, &reason));
    }
    let BasedOn::Start(start) = &turn.based_on else { return Ok(()) };
    if start.run != turn.run {
        return Err(invalid(turn.run, &format!("it starts run {}", start.run)));
    }
    if turn.seq != 0 || turn.consumed != 0 {
        return Err(invalid(turn.run, "a first turn begins with event 0 and has consumed nothing"));
    }
    let begins = matches!(turn.events.first(), Some(Event::RunStarted(_)));
    if !begins && !matches!(turn.then, Then::Stuck(_)) {
        return Err(invalid(turn.run, "a first turn begins with `run_started`"));
    }
    Ok(())
}

/// The error when the session does not hold the run, or another turn was committed before.
pub fn fenced(run: RunId, reason: &str) -> WorldError {
    WorldError::fenced(format!("the turn of run {run} is refused: {reason}; forget the run"))
}

/// The error for an inconsistent turn.
pub fn invalid(run: RunId, reason: &str) -> WorldError {
    WorldError::invalid(format!(
        "the turn of run {run} makes no sense: {reason}; this is a bug in the worker"
    ))
}

/// The error when the turn fired a timer although an earlier message is unread.
pub fn missed_message(run: RunId, fired: Timestamp) -> WorldError {
    WorldError::conflict(format!(
        "run {run} fired a timer of {fired} and has not read a message from before; read its inbox first"
    ))
}

/// When a run is ready to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyAt {
    /// Only when a message is sent to it.
    Never,
    /// At the time of the change.
    Now,
    /// At the time of the change, or at this time if that is earlier.
    NowOr(Timestamp),
    /// At this time.
    At(Timestamp),
    /// This long after the change.
    After(std::time::Duration),
}

impl ReadyAt {
    /// The time, for a change at `now`.
    pub fn moment(self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Now => Some(now),
            Self::NowOr(at) => Some(at.min(now)),
            Self::At(at) => Some(at),
            Self::After(pause) => Some(now.plus(pause)),
        }
    }
}

/// The possible ready times of a run. The world writes one of them, depending on the unread messages of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// When the run is ready if it has read all its messages.
    pub if_read: ReadyAt,
    /// When the run is ready if it has unread messages.
    pub if_unread: ReadyAt,
    /// When the run is ready if it [can be ended](crate::EndableWithoutCode::can_end) without its code.
    pub if_can_end: ReadyAt,
    /// When the run is ready if it is paused, and cannot be ended without its code.
    pub if_paused: ReadyAt,
}

impl Readiness {
    const fn always(at: ReadyAt) -> Self {
        Self { if_read: at, if_unread: at, if_can_end: at, if_paused: ReadyAt::Never }
    }

    /// The value that applies. `marks` are those after the change.
    pub fn choose(self, has_unread: bool, can_end: bool, marks: Marks) -> ReadyAt {
        if can_end {
            self.if_can_end
        } else if marks.is_paused() {
            self.if_paused
        } else if has_unread {
            self.if_unread
        } else {
            self.if_read
        }
    }

    /// The same for a run whose deadline is the only thing that makes it ready while it is paused.
    fn with_deadline(self, deadline: Option<Timestamp>) -> Self {
        Self { if_paused: deadline.map_or(ReadyAt::Never, ReadyAt::At), ..self }
    }
}

/// The row of a run after a turn: every column that only its holder changes.
#[derive(Clone, Debug, PartialEq)]
pub struct RowChange<'a> {
    /// The status of the run.
    pub status: Status,
    /// The session that holds it from now on.
    pub owner: Option<SessionId>,
    /// The session that may still have the run's future, and that can claim the run first.
    pub preferred: Option<SessionId>,
    /// Its last turn.
    pub turn: TurnId,
    /// The number of its next event.
    pub next_event: u64,
    /// The time of its last turn.
    pub turn_at: Timestamp,
    /// The number of messages that it has consumed; `None` leaves the number unchanged.
    pub consumed: Option<u64>,
    /// When a waiting run is due without a message.
    pub wake_at: Option<Timestamp>,
    /// The waits of a waiting run.
    pub waits: &'a [Wait],
    /// When it is ready to be claimed.
    pub ready: Readiness,
    /// The holder's columns.
    pub columns: Arc<HolderColumns>,
    /// Whether this turn delivered a cancel. Senders set the same mark, and nothing clears it.
    pub requests_cancel: bool,
    /// The marks that the turn sets. Others stay, except those that it clears.
    pub sets_marks: Marks,
    /// The marks that the turn clears.
    pub clears_marks: Marks,
    /// The lowest format that can represent the events of the turn. The run gets it if its own is lower; senders can
    /// raise it, too.
    pub format: u32,
    /// The version of the workflow from now on, if the turn continued the run as a new generation.
    pub version: Option<u32>,
    /// Whether the row must be written even if the turn has consumed nothing. A turn that only appends to the history
    /// does not change it: the last turn is then found in the history.
    pub writes_row: bool,
}

impl<'a> RowChange<'a> {
    /// The row of a run after an accepted turn of this session.
    pub fn of(turn: &'a Turn, session: SessionId) -> Self {
        let next_event = turn.next_event();
        let progresses = next_event > turn.seq;
        let mut change = Self {
            status: Status::Running,
            owner: None,
            preferred: None,
            turn: turn.id,
            next_event,
            turn_at: turn.at,
            consumed: Some(turn.consumed),
            wake_at: None,
            waits: &[],
            ready: Readiness::always(ReadyAt::Never),
            columns: turn.held_columns(),
            requests_cancel: turn.events.iter().any(|event| matches!(event, Event::CancelRequested { .. })),
            sets_marks: Marks::NONE,
            clears_marks: Marks::NONE,
            format: added_format(turn),
            version: added_version(turn),
            writes_row: true,
        };
        match &turn.then {
            Then::Hold => {
                change.owner = Some(session);
                change.writes_row =
                    !progresses || change.requests_cancel || turn.columns.before != change.columns;
            }
            Then::Wait { wake_at, waits } => change.wait(session, *wake_at, waits),
            Then::Release => change.release(),
            Then::End(status) => {
                change.status = *status;
                let failure = turn.events.last().and_then(RunFailure::of_final).map(Box::new);
                let ended = change.columns.ended();
                let marks = ended.marks.of_holder();
                change.set(HolderColumns { failure, marks, ..ended });
            }
            Then::Stuck(stuck) => change.stick(turn, stuck),
        }
        let (before, after) = (turn.columns.before.marks.of_holder(), change.columns.marks.of_holder());
        change.sets_marks = after.without(before);
        change.clears_marks = before.without(after);
        if change.status == Status::Failed && turn.columns.after.marks.is_quarantined() {
            change.sets_marks = change.sets_marks.with(Marks::QUARANTINED);
        }
        if change.requests_cancel || change.has_ended() || after.is_compensating() {
            // A run that was asked to stop, or compensates, is not paused: it continues until it has ended.
            change.clears_marks = change.clears_marks.with(Marks::PAUSED);
        }
        if change.owner.is_none() {
            change.ready = change.ready.with_deadline(change.columns.deadline);
        }
        change
    }

    /// The marks of the run after the turn, which had these before.
    pub fn marks_after(&self, marks: Marks) -> Marks {
        marks.without(self.clears_marks).with(self.sets_marks)
    }

    /// The first row of a run that no worker has claimed.
    pub fn started(start: &Start, now: Timestamp) -> RowChange<'static> {
        let wake_at = start.not_before.filter(|begin| *begin > now);
        RowChange {
            status: Status::Pending,
            owner: None,
            preferred: None,
            turn: start.turn,
            next_event: 1,
            turn_at: now,
            consumed: Some(0),
            wake_at,
            waits: &[],
            ready: Readiness {
                if_can_end: ReadyAt::Now,
                ..Readiness::always(wake_at.map_or(ReadyAt::Now, ReadyAt::At))
            },
            columns: Arc::new(HolderColumns::of_start(start)),
            requests_cancel: false,
            sets_marks: Marks::NONE,
            clears_marks: Marks::NONE,
            format: start.format(),
            version: None,
            writes_row: true,
        }
    }

    /// The same change without its waits, which it borrows: for a world that has already encoded them.
    pub fn drop_waits(self) -> RowChange<'static> {
        RowChange {
            status: self.status,
            owner: self.owner,
            preferred: self.preferred,
            turn: self.turn,
            next_event: self.next_event,
            turn_at: self.turn_at,
            consumed: self.consumed,
            wake_at: self.wake_at,
            waits: &[],
            ready: self.ready,
            columns: self.columns,
            requests_cancel: self.requests_cancel,
            sets_marks: self.sets_marks,
            clears_marks: self.clears_marks,
            format: self.format,
            version: self.version,
            writes_row: self.writes_row,
        }
    }

    /// Whether the row must be written for a run that had consumed this number of messages before the turn.
    pub fn must_write(&self, consumed: u64) -> bool {
        self.writes_row || self.consumed.is_some_and(|now| now != consumed)
    }

    /// Whether the run has ended.
    pub fn has_ended(&self) -> bool {
        self.status.is_final()
    }

    /// Sets the columns. Unchanged columns stay shared.
    fn set(&mut self, columns: HolderColumns) {
        if *self.columns != columns {
            self.columns = Arc::new(columns);
        }
    }

    fn wait(&mut self, session: SessionId, wake_at: Option<Timestamp>, waits: &'a [Wait]) {
        self.status = Status::Waiting;
        let is_retrying = waits.iter().any(|wait| matches!(wait, Wait::Retry { .. }));
        // This build could continue the run. Builds that could not stay in the list until the run progresses.
        if self.columns.stuck.is_some() || self.columns.is_retrying != is_retrying {
            self.set(HolderColumns { stuck: None, is_retrying, ..(*self.columns).clone() });
        }
        // Only the worker of a waiting run keeps its future: a worker that releases a run stops.
        self.preferred = Some(session);
        self.wake_at = wake_at;
        self.waits = waits;
        self.ready = Readiness {
            if_read: wake_at.map_or(ReadyAt::Never, ReadyAt::At),
            ..Readiness::always(wake_at.map_or(ReadyAt::Now, ReadyAt::NowOr))
        };
    }

    fn release(&mut self) {
        self.status = released_status(self.columns.stuck.as_deref());
        self.ready = Readiness::always(ReadyAt::Now);
    }

    /// A stuck turn consumes and appends nothing, so that another build can try the same run.
    fn stick(&mut self, turn: &Turn, stuck: &Stuck) {
        let TurnColumns { before, after } = &turn.columns;
        let Failed { list, replaced_oldest } = before.failed_builds.with(&stuck.build, self.next_event);
        self.status = Status::Stuck;
        self.consumed = None;
        self.requests_cancel = false;
        let before = match &turn.based_on {
            BasedOn::Turn(_) => (**before).clone(),
            BasedOn::Start(start) => HolderColumns::of_start(start),
        };
        self.set(HolderColumns {
            crashes: after.crashes,
            stuck: Some(Box::new(stuck.clone())),
            failed_builds: list,
            ..before
        });
        self.ready = stuck_readiness(replaced_oldest);
    }
}

/// The lowest format that can represent the events of a turn.
fn added_format(turn: &Turn) -> u32 {
    let started = match &turn.based_on {
        BasedOn::Turn(_) => FIRST_FORMAT,
        BasedOn::Start(start) => start.format(),
    };
    if matches!(turn.then, Then::Stuck(_)) { started } else { started.max(format_of_events(&turn.events)) }
}

/// The version of the workflow with which a turn continues its run.
fn added_version(turn: &Turn) -> Option<u32> {
    if matches!(turn.then, Then::Stuck(_)) {
        return None;
    }
    turn.events.iter().rev().find_map(|event| match event {
        Event::RunContinued(continued) => Some(continued.started.version),
        _ => None,
    })
}

fn stuck_readiness(replaced_oldest: bool) -> Readiness {
    let pause = if replaced_oldest { ReadyAt::After(FAILED_BUILD_RETRY) } else { ReadyAt::Now };
    Readiness { if_can_end: ReadyAt::Now, ..Readiness::always(pause) }
}

/// The status of a run that its worker releases without progress.
fn released_status(stuck: Option<&Stuck>) -> Status {
    if stuck.is_some() { Status::Stuck } else { Status::Pending }
}

/// Why a session releases all its runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReason<'a> {
    /// Its worker leaves.
    Left,
    /// Its worker crashed.
    Crashed {
        /// What the session held.
        held_runs: HeldRuns,
        /// The build of the worker.
        build: &'a str,
    },
}

/// The row of a run after its session ended. The run has no holder and no preferred session, is ready, and has no
/// waits. All other columns do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Released {
    /// The status of the run.
    pub status: Status,
    /// When it is ready to be claimed.
    pub ready: Readiness,
    /// The holder's columns.
    pub columns: HolderColumns,
}

impl Released {
    /// The row of a run that an ended session held and whose next event has this number.
    pub fn of(before: &HolderColumns, next_event: u64, why: ReleaseReason<'_>) -> Self {
        let failed_builds = before.failed_builds.at_event(next_event);
        // The reason was cleared by the first turn in which the run progressed.
        let freed = Self {
            status: released_status(before.stuck.as_deref()),
            ready: Readiness::always(ReadyAt::Now).with_deadline(before.deadline),
            columns: HolderColumns { failed_builds, ..before.clone() },
        };
        let ReleaseReason::Crashed { held_runs, build } = why else { return freed };
        let crash = count_crash(before.crashes, held_runs);
        if !crash.is_poison {
            let columns = HolderColumns { crashes: crash.crashes, ..freed.columns };
            return Self { columns, ..freed };
        }
        let Failed { list, replaced_oldest } = freed.columns.failed_builds.with(build, next_event);
        Self {
            status: Status::Stuck,
            ready: stuck_readiness(replaced_oldest).with_deadline(before.deadline),
            columns: HolderColumns {
                crashes: crash.crashes,
                stuck: Some(Box::new(poison(build))),
                failed_builds: list,
                ..freed.columns
            },
        }
    }
}

/// When a run is ready after a message was accepted for it.
///
/// A run that is held, stuck, or delayed does not change, unless it can now be ended without its code. A paused run is
/// ready at its deadline, whichever messages it has.
pub fn ready_after_send(receiver: &Awaiting, now: Timestamp) -> Option<Timestamp> {
    let stays = receiver.status == Status::Stuck || receiver.starts_later;
    let at_once = Some(receiver.ready_at.map_or(now, |at| at.min(now)));
    match receiver.pause {
        _ if receiver.is_held => receiver.ready_at,
        _ if receiver.can_end => at_once,
        PauseEffect::Paused { deadline } => deadline,
        PauseEffect::Ended { begins_at } => Some(begins_at.map_or(now, |begin| begin.max(now))),
        PauseEffect::NotPaused if stays => receiver.ready_at,
        PauseEffect::NotPaused => at_once,
    }
}

/// The inputs of [`ready_after_send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaiting {
    /// The status of the run.
    pub status: Status,
    /// Whether a session holds it.
    pub is_held: bool,
    /// Whether it was started with a delay and has not begun.
    pub starts_later: bool,
    /// Whether it can be ended without its code, including the new message.
    pub can_end: bool,
    /// When it was ready before.
    pub ready_at: Option<Timestamp>,
    /// Whether it is paused after the message.
    pub pause: PauseEffect,
}

/// When a run is ready after its failed builds may try it again. Its list of failed builds is cleared as well. A paused
/// run stays paused.
///
/// # Errors
///
/// [`WorldError::Conflict`] when it has ended or a session holds it.
pub fn resumed(
    run: RunId,
    status: Status,
    marks: Marks,
    ready_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, WorldError> {
    match status {
        Status::Stuck if !marks.is_paused() => Ok(Some(now)),
        Status::Stuck => Ok(ready_at),
        Status::Pending | Status::Waiting => Ok(ready_at),
        _ => Err(not_resumable(run, status)),
    }
}

#[cfg(test)]
mod tests;
