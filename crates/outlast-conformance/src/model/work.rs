//! The model's claims and commits.

use outlast_core::RunFailure;
use outlast_core::limits::{DEADLINE_GRACE, HISTORY_IN_CLAIM_EVENTS_MAX, PREFERENCE};
use outlast_core::queue::rank;
use outlast_core::takeover::class_room;
use outlast_core::turn::BasedOn;
use outlast_core::{
    ClaimRequest, Committed, Event, FailedBuilds, HeartbeatDetails, HolderColumns, Message, RunId, SessionId,
    Start, Status, SuspectRoom, Then, Timestamp, Turn, TurnId, TurnRecord,
};

use super::runs::{Model, ModelRun, Refusal};

/// The expected answer to a claim.
#[derive(Debug, PartialEq)]
pub(super) struct ExpectedWork {
    pub(super) claimed: Vec<ClaimFacts>,
    /// The held runs with unread messages, and the messages.
    pub(super) unread: Vec<(RunId, Vec<Message>)>,
    /// `None` when it is not compared, because the claim left out ready runs.
    pub(super) next_due: Option<Option<Timestamp>>,
}

/// The compared parts of a claimed run.
#[derive(Debug, PartialEq)]
pub(super) struct ClaimFacts {
    pub(super) run: RunId,
    pub(super) turn: TurnId,
    pub(super) turn_at: Timestamp,
    pub(super) seq: u64,
    pub(super) consumed: u64,
    /// Its unread messages.
    pub(super) inbox: Vec<Message>,
    pub(super) columns: HolderColumns,
    pub(super) is_fresh: bool,
    pub(super) is_overdue: bool,
    /// The number of turns in its history; `None` when the claim leaves it out.
    pub(super) turns: Option<usize>,
    /// The heartbeat details of attempts.
    pub(super) details: Vec<HeartbeatDetails>,
}

/// A run that a session may claim at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// Whether it is claimed to be ended as overdue; those come last.
    is_overdue: bool,
    rank: Timestamp,
    run: RunId,
    /// The time from which the session may claim it.
    available_at: Timestamp,
    class: u32,
}

/// Whether a claim with runs of these higher crash classes may include the run as well.
fn may_claim(run: &ModelRun, request: &ClaimRequest, given: &[u32]) -> bool {
    let class = run.crashes.min(4);
    let has_class_room = class < 2
        || match request.suspects {
            SuspectRoom::Nothing => false,
            SuspectRoom::Class { class: only, room } => class == only && given.len() < room,
            SuspectRoom::AnyClass { room } | SuspectRoom::TrialFirst { room } => {
                given.iter().all(|other| *other == class) && given.len() < class_room(class, room)
            }
        };
    has_class_room && run.view.format <= request.format
}

impl Model {
    pub(super) fn claim(
        &mut self,
        session: SessionId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<ExpectedWork, Refusal> {
        if !self.is_live(session) {
            return Err(Refusal::Fenced);
        }
        let unread =
            self.runs.iter().filter(|run| run.view.owner == Some(session) && !run.unread().is_empty());
        let mut unread: Vec<_> = unread.map(|run| (run.view.id, run.unread().to_vec())).collect();
        unread.sort_by_key(|(run, _)| *run);

        let mut claimed = Vec::new();
        // The higher crash classes of the claimed runs.
        let mut classes: Vec<u32> = Vec::new();
        let mut limit = request.limit;
        if self.gets_trial(session, request, now) {
            limit = limit.min(1);
        }
        while claimed.len() < limit {
            let mut candidates = self.candidates(session, request, &classes);
            candidates.retain(|candidate| candidate.available_at <= now);
            if self.gets_trial(session, request, now) && claimed.is_empty() {
                candidates.retain(|candidate| candidate.class == 4 && !candidate.is_overdue);
            }
            let Some(first) = candidates.into_iter().min() else { break };
            let Some(run) = self.find(first.run) else { break };
            claimed.push(run.take(session, first.is_overdue));
            classes.extend(Some(first.class).filter(|class| *class >= 2));
        }
        let due = self.candidates(session, request, &[]);
        let due: Vec<Timestamp> = due.into_iter().map(|candidate| candidate.available_at).collect();
        let is_left_out = due.iter().any(|at| *at <= now);
        // Worlds may or may not count overdue runs that this worker may not claim.
        let may_have = |run: &ModelRun| may_claim(run, request, &[]);
        let hides_some = request.ends_overdue_from < Timestamp::NEVER && !self.runs.iter().all(may_have);
        let next_due = if is_left_out || hides_some { None } else { Some(due.into_iter().min()) };
        Ok(ExpectedWork { claimed, unread, next_due })
    }

    /// Whether a new session gets a run of the last crash class, and nothing else.
    fn gets_trial(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> bool {
        matches!(request.suspects, SuspectRoom::TrialFirst { .. })
            && self.candidates(session, request, &[]).iter().any(|candidate| {
                candidate.class == 4 && !candidate.is_overdue && candidate.available_at <= now
            })
    }

    fn candidates(&self, session: SessionId, request: &ClaimRequest, classes: &[u32]) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for run in &self.runs {
            let is_open = run.view.owner.is_none() && !run.view.status.is_final();
            if !is_open || !may_claim(run, request, classes) {
                continue;
            }
            let class = run.crashes.min(4);
            let has_failed_it = run.failed.contains(&request.build);
            let is_served = request.queues.contains(&run.start.queue) && request.code.contains(&run.code());
            let has_code = is_served && !has_failed_it;
            let run_id = run.view.id;
            if let Some(ready_at) = run.ready_at
                && (has_code || run.needs_no_code())
            {
                let others_first = run.last_holder.is_some_and(|last| last != session && self.is_live(last));
                let available_at = if others_first { ready_at.plus(PREFERENCE) } else { ready_at };
                let priority = if run.needs_no_code() { 0 } else { run.start.priority };
                let rank = rank(ready_at, priority);
                candidates.push(Candidate { is_overdue: false, rank, run: run_id, available_at, class });
            }
            let from = request.ends_overdue_from;
            if let Some(deadline) = run.view.deadline.filter(|_| from < Timestamp::NEVER) {
                let rank = deadline.plus(DEADLINE_GRACE);
                let available_at = rank.max(from);
                candidates.push(Candidate { is_overdue: true, rank, run: run_id, available_at, class });
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
        if !self.is_live(session) {
            return Err(Refusal::Fenced);
        }
        if let BasedOn::Start(start) = turn.based_on.clone() {
            return self.commit_start(session, *start, turn, now);
        }
        let run = self.find(turn.run).ok_or(Refusal::Fenced)?;
        if run.turn == turn.id {
            return Ok(Committed::Done);
        }
        if run.view.owner != Some(session) || turn.based_on != BasedOn::Turn(run.turn) {
            return Err(Refusal::Fenced);
        }
        run.record(&turn)?;
        self.finish(session, turn, now);
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
        self.finish(session, turn, now);
        Ok(Committed::Done)
    }

    /// Applies the outbox of a turn, and then its end.
    fn finish(&mut self, session: SessionId, mut turn: Turn, now: Timestamp) {
        let outbox = turn.outbox.take();
        if !matches!(turn.then, Then::Stuck(_)) {
            self.apply_outbox(&turn, *outbox.unwrap_or_default(), now);
        }
        if let Some(run) = self.find(turn.run) {
            run.finish(session, turn, now);
        }
    }
}

impl ModelRun {
    fn take(&mut self, session: SessionId, is_overdue: bool) -> ClaimFacts {
        self.view.owner = Some(session);
        self.view.status = Status::Running;
        self.view.wake_at = None;
        self.view.waits = Vec::new();
        self.ready_at = None;
        self.update_view();
        let is_left_out = self.last_holder == Some(session) || self.seq() > HISTORY_IN_CLAIM_EVENTS_MAX;
        ClaimFacts {
            run: self.view.id,
            turn: self.turn,
            turn_at: self.turn_at,
            seq: self.seq(),
            consumed: self.view.consumed,
            inbox: self.unread().to_vec(),
            columns: self.columns(),
            is_fresh: self.seq() == 1,
            is_overdue,
            turns: (!is_left_out).then_some(self.history.len()),
            details: self.details.values().cloned().collect(),
        }
    }

    /// Writes the turn into the history. Refused if it fires a timer over an unread message.
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
        if !is_stuck {
            self.view.consumed = turn.consumed;
            if !turn.events.is_empty() {
                self.history.push(turn.record());
            }
        }
        Ok(())
    }

    fn finish(&mut self, session: SessionId, turn: Turn, now: Timestamp) {
        self.crashes = turn.columns.after.crashes;
        self.turn = turn.id;
        let asks_to_stop = |event: &Event| matches!(event, Event::CancelRequested { .. });
        if !matches!(turn.then, Then::Stuck(_)) {
            self.view.deadline = turn.columns.after.deadline;
            self.view.kept = turn.columns.after.kept;
            if !turn.events.is_empty() {
                self.stuck = None;
                self.failed = FailedBuilds::default();
            }
            self.view.is_cancel_requested |= turn.events.iter().any(asks_to_stop);
        }
        match turn.then {
            Then::Hold => {}
            Then::Wait { wake_at, waits } => {
                self.view.status = Status::Waiting;
                self.stuck = None;
                self.view.owner = None;
                self.view.wake_at = wake_at;
                self.view.waits = waits;
                self.last_holder = Some(session);
                let since = (!self.unread().is_empty()).then_some(now);
                self.ready_at = [wake_at, since].into_iter().flatten().min();
            }
            Then::Release => self.release(now),
            Then::End(status) => {
                let failure = turn.events.iter().find_map(RunFailure::of_final);
                self.view.failure = failure.map(Box::new);
                self.view.status = status;
                self.view.owner = None;
                self.view.ended_at = Some(now);
                self.details.clear();
                self.view.deadline = None;
                self.ready_at = None;
                self.crashes = 0;
                self.stuck = None;
                self.failed = FailedBuilds::default();
            }
            Then::Stuck(stuck) => self.set_stuck(stuck, now),
        }
        self.update_view();
    }
}
