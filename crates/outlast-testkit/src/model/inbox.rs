//! The model's inboxes and sessions.

use outlast_core::takeover::{crashes_after, poison};
use outlast_core::{Join, Message, NewMessage, Report, RunId, SessionId, Status, Stuck, Timestamp};

use super::runs::{Model, ModelRun, ModelSession, Refusal};

impl Model {
    pub(super) fn send(&mut self, message: NewMessage, now: Timestamp) -> Result<u64, Refusal> {
        let run = self.find(message.run).ok_or(Refusal::NotFound)?;
        if let Some(known) = run.inbox.iter().find(|known| known.id == message.id) {
            return Ok(known.position);
        }
        if run.view.status.is_final() {
            return Err(Refusal::Conflict);
        }
        Ok(run.accept(message, now))
    }

    pub(super) fn join(&mut self, join: Join, now: Timestamp) {
        for run in &mut self.runs {
            let by_another = run.not_for.as_ref().is_some_and(|build| **build != *join.build);
            let is_for_it = join.code.contains(&run.code()) && join.queues.contains(&run.start.queue);
            if run.view.status == Status::Stuck && by_another && is_for_it {
                run.ready_at = Some(run.ready_at.unwrap_or(now));
            }
        }
        let expires_at = now.plus(join.time);
        self.sessions.push(ModelSession {
            join,
            beat_at: now,
            report: Report::default(),
            expires_at,
            is_dead: false,
        });
        self.sessions.sort_by_key(|session| session.join.session);
    }

    pub(super) fn beat(
        &mut self,
        session: SessionId,
        report: Report,
        now: Timestamp,
    ) -> Result<u64, Refusal> {
        let held = self.held(session).len() as u64;
        let session = self.sessions.iter_mut().find(|other| other.join.session == session);
        let session = session.ok_or(Refusal::Fenced)?;
        session.expires_at = now.plus(session.join.time);
        session.beat_at = now;
        session.report = report;
        Ok(held)
    }

    pub(super) fn leave(&mut self, session: SessionId, now: Timestamp) {
        self.sessions.retain(|other| other.join.session != session);
        for run in self.runs.iter_mut().filter(|run| run.view.owner == Some(session)) {
            run.let_go(now);
        }
    }

    pub(super) fn takeover(&mut self, by: SessionId, now: Timestamp) -> Result<u64, Refusal> {
        if !self.lives(by) {
            return Err(Refusal::Fenced);
        }
        let is_gone = |session: &ModelSession| {
            session.join.session != by && (session.is_dead || session.expires_at <= now)
        };
        let (gone, alive) = std::mem::take(&mut self.sessions).into_iter().partition(is_gone);
        self.sessions = alive;
        let mut taken = 0;
        let gone: Vec<ModelSession> = gone;
        for dead in gone {
            let is_its = |run: &ModelRun| run.view.owner == Some(dead.join.session);
            let suspect_aboard = self.runs.iter().any(|run| is_its(run) && run.is_suspect());
            for run in self.runs.iter_mut().filter(|run| is_its(run)) {
                taken += 1;
                run.view.crashes = crashes_after(run.view.crashes, suspect_aboard);
                run.let_go(now);
                if let Some(stuck) = poison(run.view.crashes, &dead.join.build) {
                    run.get_stuck(stuck, now);
                }
            }
        }
        Ok(taken)
    }

    pub(super) fn resume(&mut self, run: RunId, now: Timestamp) -> Result<(), Refusal> {
        let run = self.find(run).ok_or(Refusal::NotFound)?;
        if run.view.status != Status::Stuck {
            return Err(Refusal::Conflict);
        }
        run.not_for = None;
        run.ready_at = Some(now);
        Ok(())
    }
}

impl ModelRun {
    /// Adds a message that is new; answers its position.
    pub(super) fn accept(&mut self, message: NewMessage, now: Timestamp) -> u64 {
        let NewMessage { id, body, headers, .. } = message;
        let position = self.inbox.len() as u64 + 1;
        self.view.sent = position;
        self.inbox.push(Message { id, position, at: now, body, headers });
        let is_delayed = self.view.status == Status::Pending && self.view.wake_at.is_some_and(|at| at > now);
        let stays_put = self.view.status == Status::Stuck || is_delayed;
        if self.view.owner.is_none() && (self.needs_no_code() || !stays_put) {
            self.ready_at = Some(self.ready_at.map_or(now, |at| at.min(now)));
        }
        position
    }

    /// Nobody holds it any more, and anybody may have it.
    pub(super) fn let_go(&mut self, now: Timestamp) {
        self.view.owner = None;
        self.view.status = Status::Pending;
        self.last_holder = None;
        self.ready_at = Some(now);
    }

    pub(super) fn get_stuck(&mut self, stuck: Stuck, now: Timestamp) {
        self.view.owner = None;
        self.view.status = Status::Stuck;
        self.last_holder = None;
        self.ready_at = self.needs_no_code().then_some(now);
        self.not_for = Some(stuck.build.clone());
        self.view.stuck = Some(stuck);
    }
}
