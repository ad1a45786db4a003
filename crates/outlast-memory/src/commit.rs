//! Commits: core decides whether a turn is accepted and what the run's row becomes; here it is stored.

use outlast_core::refusal::check_batch;
use outlast_core::state::{check, fenced, judge};
use outlast_core::turn::BasedOn;
use outlast_core::world::Answers;
use outlast_core::{
    Committed, RowChange, RunId, SessionId, Start, Then, Timestamp, Turn, TurnRecord, Verdict, WorldError,
};

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
        Ok(turns.iter().map(|turn| self.commit_turn(session, turn, now, effects)).collect())
    }

    fn commit_turn(
        &mut self,
        session: SessionId,
        turn: &Turn,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Committed, WorldError> {
        self.check_session(session)?;
        if let BasedOn::Start(start) = &turn.based_on {
            return self.commit_start(session, start, turn, now, effects);
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
        self.apply(session, turn, now, effects);
        Ok(Committed::Done)
    }

    /// Commits a turn that starts its run: what `start` does, and the turn, as one change.
    fn commit_start(
        &mut self,
        session: SessionId,
        start: &Start,
        turn: &Turn,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Committed, WorldError> {
        if let Some(existed) = self.started_before(start, now)? {
            let is_repeat = self.get(existed.run)?.was_begun_by(turn);
            return Ok(if is_repeat { Committed::Done } else { Committed::Existed(existed) });
        }
        check(turn)?;
        let first = match turn.then {
            // A stuck turn adds nothing of its own, but the run has begun.
            Then::Stuck(_) => TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) },
            _ => turn.record(),
        };
        self.insert(start.clone(), first, now);
        if let (Some(run), Some(holder)) = (self.runs.get_mut(&turn.run), self.sessions.get_mut(&session)) {
            run.owner = Some(session);
            holder.held.insert(turn.run);
        }
        self.apply(session, turn, now, effects);
        Ok(Committed::Done)
    }

    /// Does what the turn does to other runs while its run is still held, so that an answer is unread when the
    /// run goes to wait; then stores the row.
    fn apply(&mut self, session: SessionId, turn: &Turn, now: Timestamp, effects: &mut Effects) {
        if let Some(outbox) = turn.outbox.as_deref().filter(|_| !matches!(turn.then, Then::Stuck(_))) {
            self.post(turn, outbox, now, effects);
        }
        self.store(turn.run, &RowChange::of(turn, session), now, effects);
    }

    /// Stores what core made of the run's row.
    fn store(&mut self, id: RunId, change: &RowChange<'_>, now: Timestamp, effects: &mut Effects) {
        if change.owner.is_none() {
            self.let_go(id);
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
        run.columns = change.columns.clone();
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
            effects.ended.extend(self.ended(id).ok().flatten());
            return;
        }
        let at = change.ready.choose(run.has_unread(), run.can_end()).moment(now);
        self.line_up(id, at, now, effects);
    }
}
