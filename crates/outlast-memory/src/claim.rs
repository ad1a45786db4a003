//! Claims: the longest ready first, and only to those who may have them.

use outlast_core::limits::CLAIM_RUNS_MAX;
use outlast_core::{ClaimRequest, Claimed, RunId, SessionId, Status, Timestamp, Unread, Work, WorldError};

use crate::state::State;

impl State {
    pub(crate) fn claim(
        &mut self,
        session: SessionId,
        request: &ClaimRequest,
        now: Timestamp,
        epoch: u64,
    ) -> Result<Work, WorldError> {
        self.check_session(session)?;
        let unread = self.unread(session);
        let limit = request.limit.min(CLAIM_RUNS_MAX);
        let offered: Vec<RunId> = self.ready.offers(session, request, now).take(limit).collect();
        let claimed: Vec<Claimed> =
            offered.into_iter().filter_map(|run| self.take(session, run, request, now)).collect();
        let next_due = self.ready.next_due(session, request, now);
        Ok(Work { claimed, unread, next_due, epoch })
    }

    fn unread(&self, session: SessionId) -> Vec<Unread> {
        let Some(session) = self.sessions.get(&session) else { return Vec::new() };
        let runs = session.unread.iter().filter_map(|id| Some((*id, self.runs.get(id)?)));
        runs.map(|(id, run)| Unread { run: id, messages: run.inbox_after(run.consumed) }).collect()
    }

    /// Gives a run that stands in line to the session.
    fn take(
        &mut self,
        session: SessionId,
        id: RunId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Option<Claimed> {
        self.set_status(id, Status::Running);
        let run = self.runs.get_mut(&id)?;
        let place = run.place.take()?;
        self.ready.remove(&place, id);
        run.owner = Some(session);
        run.updated_at = now;
        run.wake_at = None;
        run.waits = Vec::new();
        run.stuck = None;
        let holder = self.sessions.get_mut(&session)?;
        holder.held.insert(id);
        if run.has_unread() {
            holder.unread.insert(id);
        }
        Some(Claimed {
            run: id,
            workflow: run.code.workflow.clone(),
            version: run.code.version,
            turn: run.turn,
            seq: run.seq,
            turn_at: run.turn_at,
            consumed: run.consumed,
            inbox: run.inbox_after(run.consumed),
            crashes: run.crashes,
            is_fresh: run.is_fresh(),
            history: (!(request.known)(id, run.turn)).then(|| run.history.clone()),
        })
    }
}
