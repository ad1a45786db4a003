//! Sessions: joining, beating, leaving, and taking over the runs of dead workers.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast_core::refusal::{check_join, session_gone};
use outlast_core::state::resumed;
use outlast_core::takeover::HeldRuns;
use outlast_core::{
    Beat, FailedBuilds, HeartbeatDetails, HeldRun, Join, ReleaseReason, Released, Report, RunId, SessionId,
    Timestamp, VERSION, WorkerView, WorldError,
};

use crate::state::{Notifications, State};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) join: Join,
    joined_at: Timestamp,
    beat_at: Timestamp,
    report: Report,
    expires_at: Timestamp,
    is_killed: bool,
    pub(crate) held: BTreeSet<RunId>,
    /// The held runs with unread messages.
    pub(crate) unread: BTreeSet<RunId>,
}

impl State {
    pub(crate) fn join(&mut self, join: Join, now: Timestamp) -> Result<(), WorldError> {
        check_join(&join)?;
        if self.sessions.contains_key(&join.session) {
            return Ok(());
        }
        let session = Session {
            joined_at: now,
            beat_at: now,
            report: Report::default(),
            expires_at: now.plus(join.time),
            is_killed: false,
            held: BTreeSet::new(),
            unread: BTreeSet::new(),
            join,
        };
        self.sessions.insert(session.join.session, session);
        self.update_rules();
        Ok(())
    }

    pub(crate) fn beat(
        &mut self,
        session: SessionId,
        report: &Report,
        details: &[HeartbeatDetails],
        now: Timestamp,
    ) -> Result<Beat, WorldError> {
        let entry = self.sessions.get_mut(&session).ok_or_else(|| session_gone(session))?;
        entry.report.clone_from(report);
        entry.beat_at = now;
        entry.expires_at = now.plus(entry.join.time);
        let beat = Beat { held: entry.held.len() as u64, rules: self.rules.unwrap_or(entry.join.rules) };
        for details in details {
            self.store_details(session, details);
        }
        Ok(beat)
    }

    /// Stores or deletes the heartbeat details of an attempt, if the session holds its run. Details of a later attempt
    /// are not replaced.
    fn store_details(&mut self, session: SessionId, details: &HeartbeatDetails) {
        let Some(run) = self.runs.get_mut(&details.run) else { return };
        let deletes_of_ended_run = details.details.is_none() && run.ended_at.is_some();
        if run.owner != Some(session) && !deletes_of_ended_run {
            return;
        }
        if run.details.get(&details.op).is_some_and(|known| known.attempt > details.attempt) {
            return;
        }
        match &details.details {
            Some(_) => run.details.insert(details.op, details.clone()),
            None => run.details.remove(&details.op),
        };
    }

    /// Updates the lowest rules that all joined sessions support. New runs get these rules.
    fn update_rules(&mut self) {
        self.rules = self.sessions.values().map(|session| session.join.readable_rules()).min();
    }

    pub(crate) fn held(&self, session: SessionId) -> Result<Vec<HeldRun>, WorldError> {
        let entry = self.sessions.get(&session).ok_or_else(|| session_gone(session))?;
        let held = entry.held.iter().filter_map(|run| Some((run, self.runs.get(run)?)));
        let held = held.map(|(&id, run)| HeldRun {
            run: id,
            turn: run.turn,
            seq: run.seq,
            session,
            columns: run.columns.clone(),
        });
        Ok(held.collect())
    }

    pub(crate) fn leave(&mut self, session: SessionId, now: Timestamp, notifications: &mut Notifications) {
        for run in self.end_session(session, now, notifications) {
            self.release(run, ReleaseReason::Left, now, notifications);
        }
    }

    #[cfg(feature = "test-support")]
    pub(crate) fn kill(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.is_killed = true;
        }
    }

    pub(crate) fn takeover(
        &mut self,
        by: SessionId,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<u64, WorldError> {
        self.check_session(by)?;
        let dead = self.sessions.values().filter(|session| session.is_killed || session.expires_at <= now);
        let dead: Vec<_> = dead.map(|dead| (dead.join.session, dead.join.build.clone())).collect();
        let mut taken = 0;
        for (session, build) in dead.into_iter().filter(|(session, _)| *session != by) {
            let runs = self.end_session(session, now, notifications);
            taken += runs.len() as u64;
            let crashes = runs.iter().filter_map(|id| self.runs.get(id)).map(|run| run.columns.crashes);
            let held_runs = HeldRuns::of(crashes);
            for id in runs {
                self.release(id, ReleaseReason::Crashed { held_runs, build: &build }, now, notifications);
            }
        }
        Ok(taken)
    }

    pub(crate) fn workers(&self) -> Vec<WorkerView> {
        let views = self.sessions.values().map(|session| {
            let mut view = WorkerView::of_session(session.join.session);
            view.host = session.join.host.clone();
            view.pid = session.join.pid;
            view.build = session.join.build.to_string();
            view.joined_at = session.joined_at;
            view.beat_at = session.beat_at;
            view.expires_at = session.expires_at;
            view.held = session.held.len() as u64;
            view.code = session.join.code.to_vec();
            view.queues = session.join.queues.iter().map(ToString::to_string).collect();
            view.report = session.report.clone();
            view.version = Some(VERSION.to_owned());
            view.format = session.join.format;
            view
        });
        views.collect()
    }

    pub(crate) fn resume(
        &mut self,
        id: RunId,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> Result<(), WorldError> {
        let run = self.get(id)?;
        let at = resumed(id, run.status, run.marks, run.ready_at(), now)?;
        if let Some(run) = self.runs.get_mut(&id) {
            Arc::make_mut(&mut run.columns).failed_builds = FailedBuilds::default();
        }
        self.set_ready_at(id, at, now, notifications);
        Ok(())
    }

    pub(crate) fn check_session(&self, session: SessionId) -> Result<(), WorldError> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(session_gone(session)) }
    }

    /// Releases a run whose session has ended.
    fn release(
        &mut self,
        id: RunId,
        reason: ReleaseReason<'_>,
        now: Timestamp,
        notifications: &mut Notifications,
    ) {
        self.remove_from_session(id);
        let Some(run) = self.runs.get_mut(&id) else { return };
        let released = Released::of(&run.columns, run.seq, reason);
        run.updated_at = now;
        run.preferred = None;
        run.wake_at = None;
        run.waits = Vec::new();
        run.columns = Arc::new(released.columns);
        let at = released.ready.choose(run.has_unread(), run.can_end(), run.marks).moment(now);
        self.set_status(id, released.status);
        self.set_ready_at(id, at, now, notifications);
    }

    /// Ends a session. Returns the runs that it held.
    fn end_session(
        &mut self,
        session: SessionId,
        now: Timestamp,
        notifications: &mut Notifications,
    ) -> BTreeSet<RunId> {
        let Some(ended) = self.sessions.remove(&session) else { return BTreeSet::new() };
        self.update_rules();
        for run in self.ready.preferring(session) {
            let at = self.runs.get(&run).and_then(|run| run.ready_entry.as_ref()).map(|entry| entry.at);
            self.set_ready_at(run, at, now, notifications);
        }
        ended.held
    }
}
