//! Claims: the lowest rank first, and only to those who may have them.

use outlast_core::limits::CLAIM_RUNS_MAX;
use outlast_core::takeover::is_suspect;
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
        let mut claimed: Vec<Claimed> =
            offered.into_iter().filter_map(|run| self.take(session, run, request, now)).collect();
        if request.ends_overdue_from <= now {
            let suspect = request.suspect && !claimed.iter().any(|claimed| is_suspect(claimed.crashes));
            let overdue = self.overdue(suspect, limit - claimed.len(), now);
            let overdue = overdue.into_iter().filter_map(|run| self.take(session, run, request, now));
            claimed.extend(overdue.map(|claimed| Claimed { is_overdue: true, ..claimed }));
        }
        let next_overdue = self.deadlines.next_due(now, request.ends_overdue_from);
        let next_due = self.ready.next_due(session, request, now).into_iter().chain(next_overdue).min();
        Ok(Work { claimed, unread, next_due, epoch })
    }

    fn unread(&self, session: SessionId) -> Vec<Unread> {
        let Some(session) = self.sessions.get(&session) else { return Vec::new() };
        let runs = session.unread.iter().filter_map(|id| Some((*id, self.runs.get(id)?)));
        runs.map(|(id, run)| Unread { run: id, messages: run.inbox_after(run.consumed) }).collect()
    }

    /// The runs that are overdue, at most one suspect among them.
    fn overdue(&self, mut suspect: bool, limit: usize, now: Timestamp) -> Vec<RunId> {
        let may_be_given = |id: &RunId| {
            let is_suspect = self.runs.get(id).is_some_and(|run| is_suspect(run.crashes));
            let may = suspect || !is_suspect;
            suspect &= !is_suspect;
            may
        };
        self.deadlines.overdue(now).filter(may_be_given).take(limit).collect()
    }

    /// Gives a run that nobody holds to the session.
    fn take(
        &mut self,
        session: SessionId,
        id: RunId,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Option<Claimed> {
        self.set_status(id, Status::Running);
        let run = self.runs.get_mut(&id)?;
        if let Some(place) = run.place.take() {
            self.ready.remove(&place, id);
        }
        if let Some(deadline) = run.deadline {
            self.deadlines.remove(deadline, id);
        }
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
            deadline: run.deadline,
            is_overdue: false,
            history: (!(request.known)(id, run.turn)).then(|| run.history.clone()),
        })
    }
}
