//! The model's claims and commits.

use outlast_core::limits::{DEADLINE_GRACE, PREFERENCE};
use outlast_core::queue::rank;
use outlast_core::refusal::{child_exists, child_refused};
use outlast_core::turn::From;
use outlast_core::{
    Beyond, ClaimRequest, Committed, Headers, Message, MessageBody, MessageId, NewChild, NewMessage, RunId,
    SessionId, Start, Started, Status, Then, Timestamp, Turn, TurnId, TurnRecord,
};

use super::runs::{Model, ModelRun, Refusal};

/// What a claim should bring.
#[derive(Debug, PartialEq)]
pub(super) struct Brought {
    pub(super) claimed: Vec<Facts>,
    /// The runs with unread messages, and those.
    pub(super) unread: Vec<(RunId, Vec<Message>)>,
    /// `None` when it is not compared: something is ready that the claim left out.
    pub(super) next_due: Option<Option<Timestamp>>,
}

/// What a claim tells of a run.
#[derive(Debug, PartialEq)]
pub(super) struct Facts {
    pub(super) run: RunId,
    pub(super) turn: TurnId,
    pub(super) turn_at: Timestamp,
    pub(super) seq: u64,
    pub(super) consumed: u64,
    /// Its unread messages.
    pub(super) inbox: Vec<Message>,
    pub(super) crashes: u32,
    pub(super) is_fresh: bool,
    pub(super) deadline: Option<Timestamp>,
    pub(super) is_overdue: bool,
    /// How many turns its history has.
    pub(super) turns: usize,
}

/// A run that a session may have at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Whether it is given to be ended; those come last.
    is_overdue: bool,
    rank: Timestamp,
    run: RunId,
    /// From when on the session may have it.
    available_at: Timestamp,
}

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
        let mut unread: Vec<_> = unread.map(|run| (run.view.id, run.unread().to_vec())).collect();
        unread.sort_by_key(|(run, _)| *run);

        let mut claimed = Vec::new();
        let mut suspect = request.suspect;
        while claimed.len() < request.limit {
            let mut candidates = self.candidates(session, request, suspect);
            candidates.retain(|candidate| candidate.available_at <= now);
            let Some(first) = candidates.into_iter().min() else { break };
            let Some(run) = self.find(first.run) else { break };
            suspect &= !run.is_suspect();
            claimed.push(run.take(session, first.is_overdue));
        }
        let due = self.candidates(session, request, request.suspect);
        let due: Vec<Timestamp> = due.into_iter().map(|candidate| candidate.available_at).collect();
        let is_left_out = due.iter().any(|at| *at <= now);
        // Nor is it fixed whether an overdue suspect is in sight of a worker that may not carry one.
        let hides_suspect = request.ends_overdue_from < Timestamp::NEVER
            && !request.suspect
            && self.runs.iter().any(ModelRun::is_suspect);
        let next_due = if is_left_out || hides_suspect { None } else { Some(due.into_iter().min()) };
        Ok(Brought { claimed, unread, next_due })
    }

    fn candidates(&self, session: SessionId, request: &ClaimRequest, suspect: bool) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for run in &self.runs {
            let is_open = run.view.owner.is_none() && !run.view.status.is_final();
            if !is_open || (run.is_suspect() && !suspect) {
                continue;
            }
            let is_kept_from_it = run.not_for.as_deref() == Some(&*request.build);
            let is_served = request.queues.contains(&run.start.queue) && request.code.contains(&run.code());
            let has_code = is_served && !is_kept_from_it;
            let run_id = run.view.id;
            if let Some(ready_at) = run.ready_at
                && (has_code || run.needs_no_code())
            {
                let others_first = run.last_holder.is_some_and(|last| last != session && self.lives(last));
                let available_at = if others_first { ready_at.plus(PREFERENCE) } else { ready_at };
                let priority = if run.needs_no_code() { 0 } else { run.start.priority };
                let rank = rank(ready_at, priority);
                candidates.push(Candidate { is_overdue: false, rank, run: run_id, available_at });
            }
            let from = request.ends_overdue_from;
            if let Some(deadline) = run.view.deadline.filter(|_| from < Timestamp::NEVER) {
                let rank = deadline.plus(DEADLINE_GRACE);
                let available_at = rank.max(from);
                candidates.push(Candidate { is_overdue: true, rank, run: run_id, available_at });
            }
        }
        candidates
    }

    pub(super) fn commit(
        &mut self,
        session: SessionId,
        turn: Turn,
        now: Timestamp,
    ) -> Result<Committed, Refusal> {
        if !self.lives(session) {
            return Err(Refusal::Fenced);
        }
        if let From::Start(start) = turn.from.clone() {
            return self.commit_start(session, *start, turn, now);
        }
        let run = self.find(turn.run).ok_or(Refusal::Fenced)?;
        if run.turn == turn.id {
            return Ok(Committed::Done);
        }
        if run.view.owner != Some(session) || turn.from != From::Turn(run.turn) {
            return Err(Refusal::Fenced);
        }
        run.record(&turn)?;
        self.follow(session, turn, now);
        Ok(Committed::Done)
    }

    fn commit_start(
        &mut self,
        session: SessionId,
        start: Start,
        turn: Turn,
        now: Timestamp,
    ) -> Result<Committed, Refusal> {
        let existed = self.started_before(&start, now)?;
        let last = self.find(turn.run).map(|run| run.turn);
        match existed {
            Some(_) if last == Some(turn.id) => return Ok(Committed::Done),
            Some(existed) => return Ok(Committed::Existed(existed)),
            None => {}
        }
        let first = match turn.then {
            Then::Stuck(_) => TurnRecord { build: turn.build.clone(), ..start.first_turn(turn.at) },
            _ => turn.record(),
        };
        let mut run = ModelRun::new(start, first, now);
        run.take(session, false);
        self.add(run);
        self.follow(session, turn, now);
        Ok(Committed::Done)
    }

    /// What a turn does beyond its run, and then what becomes of that.
    fn follow(&mut self, session: SessionId, mut turn: Turn, now: Timestamp) {
        let beyond = turn.beyond.take();
        if !matches!(turn.then, Then::Stuck(_)) {
            self.reach_beyond(&turn, *beyond.unwrap_or_default(), now);
        }
        if let Some(run) = self.find(turn.run) {
            run.follow(session, turn, now);
        }
    }

    fn reach_beyond(&mut self, turn: &Turn, beyond: Beyond, now: Timestamp) {
        for child in beyond.children {
            let Some(body) = self.start_child(child, now) else { continue };
            let is_told = !matches!(turn.then, Then::End(_));
            if let Some(run) = self.find(turn.run).filter(|_| is_told) {
                // Worlds name their answers as they like.
                let id = MessageId::from_bits(0);
                run.accept(NewMessage { id, run: turn.run, body, headers: Headers::new() }, now);
            }
        }
        for message in beyond.messages {
            // A refusal comes to nothing.
            let _ = self.send(message, now);
        }
        if let Some(run) = self.find(turn.run) {
            run.view.tags.extend(beyond.tags);
        }
    }

    fn start_child(&mut self, child: NewChild, now: Timestamp) -> Option<MessageBody> {
        let NewChild { start, wants_answer } = child;
        let op = start.parent?.op;
        match self.start(start.clone(), now) {
            Err(error) => Some(MessageBody::Refused { op, failure: child_refused(&start, &error) }),
            Ok(Started { run, .. }) if wants_answer => Some(MessageBody::ChildStarted { op, run }),
            Ok(Started { is_new: true, .. }) => None,
            Ok(Started { run, .. }) => Some(MessageBody::Refused { op, failure: child_exists(&start, run) }),
        }
    }
}

impl ModelRun {
    fn take(&mut self, session: SessionId, is_overdue: bool) -> Facts {
        self.view.owner = Some(session);
        self.view.status = Status::Running;
        self.view.wake_at = None;
        self.view.waits = Vec::new();
        self.view.stuck = None;
        self.ready_at = None;
        Facts {
            run: self.view.id,
            turn: self.turn,
            turn_at: self.turn_at,
            seq: self.seq(),
            consumed: self.view.consumed,
            inbox: self.unread().to_vec(),
            crashes: self.view.crashes,
            is_fresh: self.seq() == 1,
            deadline: self.view.deadline,
            is_overdue,
            turns: self.history.len(),
        }
    }

    /// Writes the turn into the history, unless it is stuck or fires over a message.
    fn record(&mut self, turn: &Turn) -> Result<(), Refusal> {
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        let is_there = (self.view.consumed..=self.view.sent).contains(&turn.consumed);
        if !is_stuck && !is_there {
            return Err(Refusal::Other);
        }
        let unread = self.inbox.iter().skip(turn.consumed as usize);
        let fires_over = |fired| unread.clone().any(|message| message.at <= fired);
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
        Ok(())
    }

    fn follow(&mut self, session: SessionId, turn: Turn, now: Timestamp) {
        let is_stuck = matches!(turn.then, Then::Stuck(_));
        if turn.clears_deadline && !is_stuck {
            self.view.deadline = None;
        }
        match turn.then {
            Then::Hold => {}
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
                self.view.deadline = None;
                self.ready_at = None;
            }
            Then::Stuck(stuck) => self.get_stuck(stuck, now),
        }
    }
}
