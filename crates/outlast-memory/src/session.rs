//! Sessions: joining, beating, leaving, and the takeover of those whose worker is gone.

use std::collections::BTreeSet;

use outlast_core::refusal::{check_join, not_stuck, session_gone};
use outlast_core::takeover::{crashes_after, is_suspect, poison};
use outlast_core::{
    Beat, Held, Join, Report, RunId, SessionId, Status, Stuck, StuckReason, Timestamp, WorkerView, WorldError,
};

use crate::state::{Effects, State};

#[derive(Debug)]
pub(crate) struct Session {
    join: Join,
    joined_at: Timestamp,
    beat_at: Timestamp,
    report: Report,
    expires_at: Timestamp,
    is_killed: bool,
    pub(crate) held: BTreeSet<RunId>,
    /// Those of them that have unread messages.
    pub(crate) unread: BTreeSet<RunId>,
}

impl State {
    pub(crate) fn join(
        &mut self,
        join: Join,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), WorldError> {
        check_join(&join)?;
        if self.sessions.contains_key(&join.session) {
            return Ok(());
        }
        for id in self.stuck.clone() {
            let Some(run) = self.runs.get(&id) else { continue };
            let has_code = join.code.contains(&run.code) && join.queues.contains(&run.queue);
            let by_another_build = run.stuck_build.as_ref().is_some_and(|build| *build != join.build);
            if has_code && by_another_build && run.place.is_none() {
                self.line_up(id, Some(now), now, effects);
            }
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
        Ok(())
    }

    pub(crate) fn beat(
        &mut self,
        session: SessionId,
        report: &Report,
        now: Timestamp,
    ) -> Result<Beat, WorldError> {
        let entry = self.sessions.get_mut(&session).ok_or_else(|| session_gone(session))?;
        entry.report.clone_from(report);
        entry.beat_at = now;
        entry.expires_at = now.plus(entry.join.time);
        Ok(Beat { held: entry.held.len() as u64 })
    }

    pub(crate) fn held(&self, session: SessionId) -> Result<Vec<Held>, WorldError> {
        let entry = self.sessions.get(&session).ok_or_else(|| session_gone(session))?;
        let held = entry.held.iter().filter_map(|run| Some((run, self.runs.get(run)?)));
        Ok(held.map(|(&id, run)| Held { run: id, turn: run.turn, seq: run.seq, session }).collect())
    }

    pub(crate) fn leave(&mut self, session: SessionId, now: Timestamp, effects: &mut Effects) {
        for run in self.end_session(session, now, effects) {
            self.make_ready(run, now, effects);
        }
    }

    pub(crate) fn kill(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.is_killed = true;
        }
    }

    pub(crate) fn takeover(
        &mut self,
        by: SessionId,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<u64, WorldError> {
        self.check_session(by)?;
        let dead = self.sessions.values().filter(|session| session.is_killed || session.expires_at <= now);
        let dead: Vec<_> = dead.map(|dead| (dead.join.session, dead.join.build.clone())).collect();
        let mut taken = 0;
        for (session, build) in dead.into_iter().filter(|(session, _)| *session != by) {
            let runs = self.end_session(session, now, effects);
            taken += runs.len() as u64;
            let is_aboard = |id| self.runs.get(id).is_some_and(|run| is_suspect(run.crashes));
            let suspect_aboard = runs.iter().any(is_aboard);
            for id in runs {
                let Some(run) = self.runs.get_mut(&id) else { continue };
                run.crashes = crashes_after(run.crashes, suspect_aboard);
                match poison(run.crashes, &build) {
                    Some(stuck) => self.make_stuck(id, stuck, now, effects),
                    None => self.make_ready(id, now, effects),
                }
            }
        }
        Ok(taken)
    }

    pub(crate) fn workers(&self) -> Vec<WorkerView> {
        let views = self.sessions.values().map(|session| WorkerView {
            session: session.join.session,
            host: session.join.host.clone(),
            pid: session.join.pid,
            build: session.join.build.to_string(),
            joined_at: session.joined_at,
            beat_at: session.beat_at,
            expires_at: session.expires_at,
            held: session.held.len() as u64,
            code: session.join.code.to_vec(),
            queues: session.join.queues.iter().map(ToString::to_string).collect(),
            report: session.report.clone(),
        });
        views.collect()
    }

    pub(crate) fn resume(
        &mut self,
        id: RunId,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), WorldError> {
        let status = self.get(id)?.status;
        if status != Status::Stuck {
            return Err(not_stuck(id, status));
        }
        if let Some(run) = self.runs.get_mut(&id) {
            run.stuck_build = None;
        }
        self.line_up(id, Some(now), now, effects);
        Ok(())
    }

    pub(crate) fn check_session(&self, session: SessionId) -> Result<(), WorldError> {
        if self.sessions.contains_key(&session) { Ok(()) } else { Err(session_gone(session)) }
    }

    /// Lets a run go that its worker had to give up: it is ready at once, for everyone.
    pub(crate) fn make_ready(&mut self, id: RunId, now: Timestamp, effects: &mut Effects) {
        self.let_go(id);
        if let Some(run) = self.runs.get_mut(&id) {
            run.updated_at = now;
            run.preferred = None;
        }
        self.set_status(id, Status::Pending);
        self.line_up(id, Some(now), now, effects);
    }

    /// Lets a run go that cannot go on. Only a poisoned one still needs to be known as a suspect.
    pub(crate) fn make_stuck(&mut self, id: RunId, stuck: Stuck, now: Timestamp, effects: &mut Effects) {
        self.let_go(id);
        if let Some(run) = self.runs.get_mut(&id) {
            debug_assert!(stuck.reason == StuckReason::Poison || run.crashes == 0, "a commit clears crashes");
            run.updated_at = now;
            run.preferred = None;
            run.stuck_build = Some(stuck.build.as_str().into());
            run.stuck = Some(stuck);
        }
        self.set_status(id, Status::Stuck);
        // What came meanwhile and needs no code does not wait for another build either.
        let is_ready = self.runs.get(&id).is_some_and(|run| run.needs_no_code());
        self.line_up(id, is_ready.then_some(now), now, effects);
    }

    /// Ends a session; answers the runs it held.
    fn end_session(&mut self, session: SessionId, now: Timestamp, effects: &mut Effects) -> BTreeSet<RunId> {
        let Some(ended) = self.sessions.remove(&session) else { return BTreeSet::new() };
        for run in self.ready.preferring(session) {
            let at = self.runs.get(&run).and_then(|run| run.place.as_ref()).map(|place| place.at);
            self.line_up(run, at, now, effects);
        }
        ended.held
    }
}
