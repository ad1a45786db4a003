//! The model's inboxes and sessions.

use outlast_core::limits::{FAILED_BUILD_RETRY, POISON_CRASHES};
use outlast_core::takeover::poison;
use outlast_core::{
    FailedBuilds, HeartbeatDetails, Join, Message, MessageBody, NewMessage, Report, RunId, Sent, SessionId,
    Status, Stuck, Timestamp,
};

use super::runs::{Model, ModelRun, ModelSession, Refusal};

impl Model {
    pub(super) fn send(&mut self, message: NewMessage, now: Timestamp) -> Result<Sent, Refusal> {
        let run = self.find(message.run).ok_or(Refusal::NotFound)?;
        if let Some((_, sent)) = run.answers.iter().find(|(id, _)| *id == message.id) {
            return Ok(*sent);
        }
        if run.view.status.is_final() {
            return Err(Refusal::Conflict);
        }
        Ok(run.accept(message, now))
    }

    pub(super) fn join(&mut self, join: Join, now: Timestamp) {
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
        details: Vec<HeartbeatDetails>,
        now: Timestamp,
    ) -> Result<(u64, u32), Refusal> {
        let held = self.held(session).len() as u64;
        let rules = self.sessions.iter().map(|session| session.join.rules).min().unwrap_or_default();
        let known = self.sessions.iter_mut().find(|other| other.join.session == session);
        let known = known.ok_or(Refusal::Fenced)?;
        known.expires_at = now.plus(known.join.time);
        known.beat_at = now;
        known.report = report;
        for details in details {
            let run = self.find(details.run).filter(|run| run.view.owner == Some(session));
            run.into_iter().for_each(|run| run.store_details(&details));
        }
        Ok((held, rules))
    }

    pub(super) fn leave(&mut self, session: SessionId, now: Timestamp) {
        self.sessions.retain(|other| other.join.session != session);
        for run in self.runs.iter_mut().filter(|run| run.view.owner == Some(session)) {
            run.release(now);
            run.update_view();
        }
    }

    pub(super) fn takeover(&mut self, by: SessionId, now: Timestamp) -> Result<u64, Refusal> {
        if !self.is_live(by) {
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
            let held_runs: Vec<u32> =
                self.runs.iter().filter(|run| is_its(run)).map(|run| run.crashes.min(4)).collect();
            let highest = held_runs.iter().copied().max().unwrap_or_default();
            for run in self.runs.iter_mut().filter(|run| is_its(run)) {
                taken += 1;
                let class = run.crashes.min(4);
                let is_spared = [2, 3].contains(&highest) && class < highest;
                let is_beside = class == 4 && held_runs.len() > 1;
                run.release(now);
                if !is_spared && !is_beside {
                    run.crashes = (run.crashes + 1).min(POISON_CRASHES);
                    if run.crashes == POISON_CRASHES {
                        run.set_stuck(poison(&dead.join.build), now);
                    }
                }
                run.update_view();
            }
        }
        Ok(taken)
    }

    pub(super) fn resume(&mut self, run: RunId, now: Timestamp) -> Result<(), Refusal> {
        let run = self.find(run).ok_or(Refusal::NotFound)?;
        if run.view.owner.is_some() || run.view.status.is_final() {
            return Err(Refusal::Conflict);
        }
        run.failed = FailedBuilds::default();
        if run.view.status == Status::Stuck {
            run.ready_at = Some(now);
        }
        run.update_view();
        Ok(())
    }
}

impl ModelRun {
    /// Adds a message that is new.
    pub(super) fn accept(&mut self, message: NewMessage, now: Timestamp) -> Sent {
        let NewMessage { id, body, headers, .. } = message;
        let position = self.inbox.len() as u64 + 1;
        let sent = Sent { position, cancel_was_requested: self.view.is_cancel_requested, is_repeated: false };
        self.answers.push((id, sent));
        self.view.is_cancel_requested |= matches!(body, MessageBody::Cancel { .. });
        self.view.sent = position;
        self.inbox.push(Message { id, position, at: now, body, headers });
        let is_delayed = self.view.status == Status::Pending && self.view.wake_at.is_some_and(|at| at > now);
        let stays_unready = self.view.status == Status::Stuck || is_delayed;
        if self.view.owner.is_none() && (self.needs_no_code() || !stays_unready) {
            self.ready_at = Some(self.ready_at.map_or(now, |at| at.min(now)));
        }
        sent
    }

    /// Stores the heartbeat details of an attempt, unless a later attempt has some.
    fn store_details(&mut self, new: &HeartbeatDetails) {
        let is_later = self.details.get(&new.op).is_some_and(|known| known.attempt > new.attempt);
        match &new.details {
            _ if is_later => {}
            Some(_) => drop(self.details.insert(new.op, new.clone())),
            None => drop(self.details.remove(&new.op)),
        }
    }

    /// Releases the run: any session may claim it.
    pub(super) fn release(&mut self, now: Timestamp) {
        self.view.owner = None;
        self.view.status = if self.stuck.is_some() { Status::Stuck } else { Status::Pending };
        self.last_holder = None;
        self.ready_at = Some(now);
    }

    pub(super) fn set_stuck(&mut self, stuck: Stuck, now: Timestamp) {
        self.view.owner = None;
        self.view.status = Status::Stuck;
        self.last_holder = None;
        let failed = self.failed.with(&stuck.build, self.seq());
        let is_delayed = failed.replaced_oldest && !self.needs_no_code();
        self.ready_at = Some(if is_delayed { now.plus(FAILED_BUILD_RETRY) } else { now });
        self.failed = failed.list;
        self.stuck = Some(stuck);
    }
}
