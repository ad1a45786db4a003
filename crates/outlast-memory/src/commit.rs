//! Commits: a turn is checked whole, then applied whole.

use outlast_core::refusal::check_batch;
use outlast_core::turn::From;
use outlast_core::world::Answers;
use outlast_core::{
    Committed, RunId, SessionId, Start, Status, Then, Timestamp, Turn, TurnRecord, Wait, WorldError,
};

use crate::run::Run;
use crate::state::{Effects, State};

impl State {
    pub(crate) fn commit(
        &mut self,
        session: SessionId,
        turns: &[Turn],
        now: Timestamp,
        effects: &mut Effects,
    ) -> Answers<Committed> {
        check_batch(turns.len())?;
        Ok(turns.iter().map(|turn| self.commit_turn(session, turn.clone(), now, effects)).collect())
    }

    fn commit_turn(
        &mut self,
        session: SessionId,
        mut turn: Turn,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Committed, WorldError> {
        self.check_session(session)?;
        let from = match std::mem::replace(&mut turn.from, From::Turn(turn.id)) {
            From::Turn(from) => from,
            From::Start(start) => return self.commit_start(session, *start, turn, now, effects),
        };
        let run = self.runs.get(&turn.run).ok_or_else(|| fenced(turn.run))?;
        if run.turn == turn.id {
            return Ok(Committed::Done);
        }
        if run.owner != Some(session) || run.turn != from {
            return Err(fenced(turn.run));
        }
        check(run, &turn)?;
        self.apply(session, turn, now, effects);
        Ok(Committed::Done)
    }

    /// Commits a turn that starts its run: what `start` does, and the turn, as one change.
    fn commit_start(
        &mut self,
        session: SessionId,
        start: Start,
        mut turn: Turn,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Committed, WorldError> {
        if let Some(existed) = self.started_before(&start, now)? {
            let is_repeat = self.get(existed.run)?.was_begun_by(&turn);
            return Ok(if is_repeat { Committed::Done } else { Committed::Existed(existed) });
        }
        if turn.run != start.run || turn.seq != 0 || turn.consumed != 0 {
            return Err(invalid(turn.run, "the turn that starts a run is its first"));
        }
        check_end(&turn)?;
        let first = match turn.then {
            // A stuck turn adds nothing of its own, but the run has begun.
            Then::Stuck(_) => TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) },
            _ if turn.events.is_empty() => return Err(invalid(turn.run, "a history begins with an event")),
            _ => take_record(&mut turn),
        };
        let id = turn.run;
        self.insert(start, first, now);
        if let (Some(run), Some(holder)) = (self.runs.get_mut(&id), self.sessions.get_mut(&session)) {
            run.turn = turn.id;
            run.owner = Some(session);
            run.wake_at = None;
            holder.held.insert(id);
        }
        self.set_status(id, Status::Running);
        self.follow(session, turn, now, effects);
        Ok(Committed::Done)
    }

    /// Applies a turn that has been checked.
    fn apply(&mut self, session: SessionId, mut turn: Turn, now: Timestamp, effects: &mut Effects) {
        let Some(run) = self.runs.get_mut(&turn.run) else { return };
        run.turn = turn.id;
        run.turn_at = turn.at;
        run.crashes = 0;
        if !matches!(turn.then, Then::Stuck(_)) {
            run.seq += turn.events.len() as u64;
            run.consumed = turn.consumed;
            if !turn.events.is_empty() {
                run.history.push(take_record(&mut turn));
            }
        }
        self.follow(session, turn, now, effects);
    }

    /// Does what the turn does beyond its history, and then what becomes of the run.
    fn follow(&mut self, session: SessionId, mut turn: Turn, now: Timestamp, effects: &mut Effects) {
        let id = turn.run;
        if !matches!(turn.then, Then::Stuck(_)) {
            if let Some(beyond) = turn.beyond.take() {
                self.reach_beyond(&turn, *beyond, now, effects);
            }
            if turn.clears_deadline
                && let Some(run) = self.runs.get_mut(&id)
            {
                run.deadline = None;
            }
        }
        match turn.then {
            Then::Hold => self.hold(session, id),
            Then::Wait { wake_at, waits } => self.wait(session, id, wake_at, waits, now, effects),
            Then::Release => self.make_ready(id, now, effects),
            Then::End(status) => self.end(id, status, now, effects),
            Then::Stuck(stuck) => self.make_stuck(id, stuck, now, effects),
        }
    }

    fn hold(&mut self, session: SessionId, id: RunId) {
        // Only a run that had messages can have none left.
        let has_read_all = self.runs.get(&id).is_some_and(|run| run.consumed > 0 && !run.has_unread());
        if has_read_all && let Some(session) = self.sessions.get_mut(&session) {
            session.unread.remove(&id);
        }
    }

    fn wait(
        &mut self,
        session: SessionId,
        id: RunId,
        wake_at: Option<Timestamp>,
        waits: Vec<Wait>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        self.let_go(id);
        self.set_status(id, Status::Waiting);
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.updated_at = now;
        run.preferred = Some(session);
        run.wake_at = wake_at;
        run.waits = waits;
        // The check and the wait are one change: a message that came meanwhile wakes it.
        let at = if run.has_unread() { Some(wake_at.map_or(now, |at| at.min(now))) } else { wake_at };
        self.line_up(id, at, now, effects);
    }

    fn end(&mut self, id: RunId, status: Status, now: Timestamp, effects: &mut Effects) {
        self.let_go(id);
        self.set_status(id, status);
        if let Some(run) = self.runs.get_mut(&id) {
            run.updated_at = now;
            run.ended_at = Some(now);
            run.deadline = None;
        }
        effects.ended.extend(self.ended(id).ok().flatten());
    }
}

fn check(run: &Run, turn: &Turn) -> Result<(), WorldError> {
    check_end(turn)?;
    if turn.seq != run.seq {
        return Err(invalid(turn.run, "the turn's first event is not the next of the history"));
    }
    if matches!(turn.then, Then::Stuck(_)) {
        return Ok(());
    }
    if turn.consumed < run.consumed || turn.consumed > run.sent() {
        return Err(invalid(turn.run, "the turn consumes messages that are not there"));
    }
    let first_unread = run.inbox.get(turn.consumed as usize);
    match (turn.fired_until, first_unread) {
        (Some(fired), Some(message)) if message.at <= fired => Err(WorldError::Conflict(format!(
            "message {} came before the timer that the turn of run {} fires; read the inbox, then try again",
            message.id, turn.run
        ))),
        _ => Ok(()),
    }
}

/// A turn that ends its run says how, in its last event.
fn check_end(turn: &Turn) -> Result<(), WorldError> {
    match turn.then {
        Then::End(status) if turn.events.last().and_then(Status::of_final) != Some(status) => {
            Err(invalid(turn.run, "the last event does not say that the run ended like this"))
        }
        _ => Ok(()),
    }
}

/// The turn as history records it. Its events are moved, not copied.
fn take_record(turn: &mut Turn) -> TurnRecord {
    let events = std::mem::take(&mut turn.events);
    TurnRecord { id: turn.id, seq: turn.seq, at: turn.at, build: turn.build.clone(), events }
}

fn fenced(run: RunId) -> WorldError {
    WorldError::Fenced(format!(
        "the session does not hold run {run}, or another turn came before; forget the run"
    ))
}

fn invalid(run: RunId, reason: &str) -> WorldError {
    WorldError::Invalid(format!(
        "the turn of run {run} makes no sense: {reason}; this is a bug in the worker"
    ))
}
