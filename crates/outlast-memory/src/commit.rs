//! Committing turns. Core decides whether a turn is accepted and computes the run's row; this module stores the result.

use outlast_core::refusal::check_batch;
use outlast_core::state::{check, fenced, judge};
use outlast_core::turn::BasedOn;
use outlast_core::world::Answers;
use outlast_core::{
    Committed, RowChange, RunId, SessionId, Start, Then, Timestamp, Turn, TurnRecord, Verdict, WorldError,
};

use crate::state::{Notifications, State};

impl State {
    pub(crate) fn commit(
        &mut self,
        session: SessionId,
        turns: &[Turn],
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Answers<Committed> {
        check_batch(turns.len())?;
        Ok(turns.iter().map(|turn| self.commit_turn(session, turn, now, notifications)).collect())
    }

    fn commit_turn(
        &mut self,
        session: SessionId,
        turn: &Turn,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Committed, WorldError> {
        self.check_session(session)?;
        if let BasedOn::Start(start) = &turn.based_on {
            return self.commit_start(session, start, turn, now, notifications);
        }
        let run = self.runs.get_mut(&turn.run).ok_or_else(|| fenced(turn.run, "there is no such run"))?;
        let missed =
            usize::try_from(turn.consumed).ok().and_then(|at| run.inbox.get(at)).map(|first| first.at);
        if judge(turn, session, &run.position(), missed)? == Verdict::Repeated {
            return Ok(Committed::Done);
        }
        if turn.next_event() > turn.seq {
            run.history.push(turn.record());
        }
        self.apply(session, turn, now, notifications);
        Ok(Committed::Done)
    }

    /// Commits a turn that starts its run: the start and the turn are one change.
    fn commit_start(
        &mut self,
        session: SessionId,
        start: &Start,
        turn: &Turn,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<Committed, WorldError> {
        if let Some(existed) = self.started_before(start, now)? {
            let is_repeat = self.get(existed.run)?.was_started_by(turn);
            return Ok(if is_repeat { Committed::Done } else { Committed::Existed(existed) });
        }
        check(turn)?;
        let first = match turn.then {
            // A stuck turn adds no events of its own, but the start is recorded.
            Then::Stuck(_) => TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) },
            _ => turn.record(),
        };
        self.cancel_replaced(start, now, notifications);
        self.insert(start.clone(), first, now);
        if let (Some(run), Some(holder)) = (self.runs.get_mut(&turn.run), self.sessions.get_mut(&session)) {
            run.owner = Some(session);
            holder.held.insert(turn.run);
        }
        self.apply(session, turn, now, notifications);
        Ok(Committed::Done)
    }

    /// Applies the outbox, then stores the row. The outbox comes first, while the run is still held, so that the run
    /// does not wait if it gets an answer.
    fn apply(&mut self, session: SessionId, turn: &Turn, now: Timestamp, notifications: &mut Notifications) {
        if let Some(outbox) = turn.outbox.as_deref().filter(|_| !matches!(turn.then, Then::Stuck(_))) {
            self.apply_outbox(turn, outbox, now, notifications);
        }
        self.store(turn.run, &RowChange::of(turn, session), now, notifications);
    }

    /// Stores the row that core has computed.
    fn store(
        &mut self,
        id: RunId,
        change: &RowChange<'_>,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        if change.owner.is_none() {
            self.remove_from_session(id);
        }
        self.set_status(id, change.status);
        let Some(run) = self.runs.get_mut(&id) else { return };
        run.turn = change.turn;
        run.seq = change.next_event;
        run.turn_at = change.turn_at;
        run.consumed = change.consumed.unwrap_or(run.consumed);
        run.preferred = change.preferred;
        run.wake_at = change.wake_at;
        run.waits = change.waits.to_vec();
        run.is_cancel_requested |= change.requests_cancel;
        run.format = run.format.max(change.format);
        run.code.version = change.version.unwrap_or(run.code.version);
        run.columns = change.columns.clone();
        run.marks = change.marks_after(run.marks);
        if let Some(owner) = change.owner {
            if !run.has_unread()
                && let Some(session) = self.sessions.get_mut(&owner)
            {
                session.unread.remove(&id);
            }
            return;
        }
        run.updated_at = now;
        if change.has_ended() {
            run.ended_at = Some(now);
            run.details.clear();
            notifications.ended.extend(self.ended(id).ok().flatten());
            return;
        }
        let at = change.ready.choose(run.has_unread(), run.can_end(), run.marks).moment(now);
        self.set_ready_at(id, at, now, notifications);
    }
}
