//! The model's claims and commits.

use outlast_core::limits::PREFERENCE;
use outlast_core::turn::From;
use outlast_core::{ClaimRequest, Committed, RunId, SessionId, Status, Then, Timestamp, Turn};

use super::runs::{Model, ModelRun, Refusal};

/// What a claim should bring.
#[derive(Debug, PartialEq)]
pub(super) struct Brought {
    pub(super) claimed: Vec<Facts>,
    /// The runs with unread messages, and the positions of those.
    pub(super) unread: Vec<(RunId, Vec<u64>)>,
    /// `None` when it is not compared: something is ready that the claim left out.
    pub(super) next_due: Option<Option<Timestamp>>,
}

/// What a claim tells of a run: last turn, its time, next event, consumed, unread positions, crashes,
/// whether it is fresh, how many turns its history has.
pub(super) type Facts = (RunId, outlast_core::TurnId, Timestamp, u64, u64, Vec<u64>, u32, bool, usize);

impl Model {
    pub(super) fn claim(
        &mut self,
        session: SessionId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Brought, Refusal> {
        if !self.lives(session) {
            return Err(Refusal::Fenced);
        }
        let unread =
            self.runs.iter().filter(|run| run.view.owner == Some(session) && !run.unread().is_empty());
        let mut unread: Vec<_> = unread.map(|run| (run.view.id, positions(run))).collect();
        unread.sort();

        let mut claimed = Vec::new();
        let mut suspect = request.suspect;
        while claimed.len() < request.limit {
            let mut candidates: Vec<_> = self.candidates(session, request, suspect);
            candidates.retain(|(_, available_at, _)| *available_at <= now);
            let Some((_, _, run)) = candidates.into_iter().min_by_key(|(ready_at, _, run)| (*ready_at, *run))
            else {
                break;
            };
            let Some(run) = self.find(run) else { break };
            suspect &= !run.is_suspect();
            claimed.push(run.take(session));
        }
        let due: Vec<Timestamp> = self
            .candidates(session, request, suspect)
            .into_iter()
            .map(|(_, available_at, _)| available_at)
            .collect();
        let is_left_out = due.iter().any(|at| *at <= now);
        let next_due = if is_left_out { None } else { Some(due.into_iter().min()) };
        Ok(Brought { claimed, unread, next_due })
    }

    /// The runs that the session may have at some time: since when they are ready, from when on it may
    /// have them, and which they are.
    fn candidates(
        &self,
        session: SessionId,
        request: &ClaimRequest,
        suspect: bool,
    ) -> Vec<(Timestamp, Timestamp, RunId)> {
        let mut candidates = Vec::new();
        for run in &self.runs {
            let is_open = run.view.owner.is_none() && !run.view.status.is_final();
            let has_code = run.needs_no_code() || request.code.contains(&run.code());
            let is_kept_from_it = run.not_for.as_deref() == Some(&*request.build);
            let may_carry = suspect || !run.is_suspect();
            let Some(ready_at) = run.ready_at else { continue };
            if is_open && has_code && !is_kept_from_it && may_carry {
                let others_first = run.last_holder.is_some_and(|last| last != session && self.lives(last));
                let available_at = if others_first { ready_at.plus(PREFERENCE) } else { ready_at };
                candidates.push((ready_at, available_at, run.view.id));
            }
        }
        candidates
    }

    pub(super) fn commit(
        &mut self,
        session: SessionId,
        turn: Turn,
        build: &str,
        now: Timestamp,
    ) -> Result<Committed, Refusal> {
        if !self.lives(session) {
            return Err(Refusal::Fenced);
        }
        if let From::Start(start) = &turn.from {
            let existed = self.started_before(start)?;
            let last = self.find(turn.run).map(|run| run.turn);
            match existed {
                Some(_) if last == Some(turn.id) => return Ok(Committed::Done),
                Some(existed) => return Ok(Committed::Existed(existed)),
                None => {}
            }
            let first = match turn.then {
                Then::Stuck(_) => {
                    outlast_core::TurnRecord { build: build.into(), ..start.first_turn(turn.at) }
                }
                _ => turn.record(),
            };
            let mut run = ModelRun::new(start.clone(), first, now);
            run.follow(session, turn.then, now);
            self.runs.push(run);
            return Ok(Committed::Done);
        }
        let run = self.find(turn.run).ok_or(Refusal::Fenced)?;
        if run.turn == turn.id {
            return Ok(Committed::Done);
        }
        if run.view.owner != Some(session) || turn.from != From::Turn(run.turn) {
            return Err(Refusal::Fenced);
        }
        run.commit(session, turn, now)
    }
}

impl ModelRun {
    fn take(&mut self, session: SessionId) -> Facts {
        self.view.owner = Some(session);
        self.view.status = Status::Running;
        self.view.wake_at = None;
        self.view.waits = Vec::new();
        self.view.stuck = None;
        self.ready_at = None;
        let (seq, consumed, crashes) = (self.seq(), self.view.consumed, self.view.crashes);
        let turns = self.history.len();
        (self.view.id, self.turn, self.turn_at, seq, consumed, positions(self), crashes, seq == 1, turns)
    }

    fn commit(&mut self, session: SessionId, turn: Turn, now: Timestamp) -> Result<Committed, Refusal> {
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        let unread = &self.inbox[turn.consumed as usize..];
        let fires_over = |fired| unread.iter().any(|message| message.at <= fired);
        if !is_stuck && turn.fired_until.is_some_and(fires_over) {
            return Err(Refusal::Conflict);
        }
        self.turn = turn.id;
        self.turn_at = turn.at;
        self.view.crashes = 0;
        if !is_stuck {
            self.view.consumed = turn.consumed;
            if !turn.events.is_empty() {
                self.history.push(turn.record());
            }
        }
        self.follow(session, turn.then, now);
        Ok(Committed::Done)
    }

    fn follow(&mut self, session: SessionId, then: Then, now: Timestamp) {
        match then {
            Then::Hold => {
                self.view.status = Status::Running;
                self.view.owner = Some(session);
                self.ready_at = None;
            }
            Then::Wait { wake_at, waits } => {
                self.view.status = Status::Waiting;
                self.view.owner = None;
                self.view.wake_at = wake_at;
                self.view.waits = waits;
                self.last_holder = Some(session);
                let since = (!self.unread().is_empty()).then_some(now);
                self.ready_at = [wake_at, since].into_iter().flatten().min();
            }
            Then::Release => self.let_go(now),
            Then::End(status) => {
                self.view.status = status;
                self.view.owner = None;
                self.view.ended_at = Some(now);
                self.ready_at = None;
            }
            Then::Stuck(stuck) => self.get_stuck(stuck),
        }
    }
}

fn positions(run: &ModelRun) -> Vec<u64> {
    run.unread().iter().map(|message| message.position).collect()
}
