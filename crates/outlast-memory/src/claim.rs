//! Claims: runs are assigned in order of their ranks, to workers that may claim them.

use outlast_core::limits::{CLAIM_RUNS_MAX, HISTORY_IN_CLAIM_EVENTS_MAX};
use outlast_core::takeover::Admission;
use outlast_core::{
    ClaimRequest, Claimed, ClaimedHistory, RunId, SessionId, Status, SuspectRoom, Timestamp, UnreadMessages,
    Work, WorldError,
};

use crate::run::Run;
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
        let claimed = match self.trial(session, request, now) {
            Some(run) => self.claim_run(session, run, now).into_iter().collect(),
            None => self.claim_ready(session, request, now),
        };
        let next_overdue = self.deadlines.next_due(now, request.ends_overdue_from);
        let next_due = self.ready.next_due(session, request, now).into_iter().chain(next_overdue).min();
        Ok(Work { claimed, unread, next_due, epoch })
    }

    /// The trial of a new session: a run that may have crashed four workers, which the session executes alone.
    fn trial(&self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> Option<RunId> {
        let is_trial = matches!(request.suspects, SuspectRoom::TrialFirst { room } if room > 0);
        if is_trial && request.limit > 0 { self.ready.trial(session, request, now) } else { None }
    }

    /// Claims ready runs, then overdue ones.
    fn claim_ready(&mut self, session: SessionId, request: &ClaimRequest, now: Timestamp) -> Vec<Claimed> {
        let limit = request.limit.min(CLAIM_RUNS_MAX);
        let mut admission = Admission::new(request.suspects);
        let candidates: Vec<RunId> =
            self.ready.candidates(session, request, admission, now).take(limit).collect();
        let mut claimed: Vec<Claimed> =
            candidates.into_iter().filter_map(|run| self.claim_run(session, run, now)).collect();
        if request.ends_overdue_from <= now {
            claimed.iter().for_each(|claimed| {
                admission.admit(claimed.columns.crashes);
            });
            let overdue = self.overdue(request, admission, limit - claimed.len(), now);
            let overdue = overdue.into_iter().filter_map(|run| self.claim_run(session, run, now));
            claimed.extend(overdue.map(|claimed| Claimed { is_overdue: true, ..claimed }));
        }
        claimed
    }

    /// The unread messages of the runs that the session holds.
    fn unread(&self, session: SessionId) -> Vec<UnreadMessages> {
        let Some(session) = self.sessions.get(&session) else { return Vec::new() };
        let runs = session.unread.iter().filter_map(|id| Some((*id, self.runs.get(id)?)));
        runs.map(|(id, run)| UnreadMessages { run: id, messages: run.inbox_after(run.consumed) }).collect()
    }

    /// The overdue runs that the request admits.
    fn overdue(
        &self,
        request: &ClaimRequest,
        mut admission: Admission,
        limit: usize,
        now: Timestamp,
    ) -> Vec<RunId> {
        let is_admitted = |id: &RunId| {
            self.runs
                .get(id)
                .is_some_and(|run| run.format <= request.format && admission.admit(run.columns.crashes))
        };
        self.deadlines.overdue(now).filter(is_admitted).take(limit).collect()
    }

    /// Assigns a run that no session holds to the session. The reason why it was stuck remains until it progresses.
    fn claim_run(&mut self, session: SessionId, id: RunId, now: Timestamp) -> Option<Claimed> {
        self.set_status(id, Status::Running);
        let run = self.runs.get_mut(&id)?;
        if let Some(entry) = run.ready_entry.take() {
            self.ready.remove(&entry, id);
        }
        if let Some(deadline) = run.columns.deadline {
            self.deadlines.remove(deadline, id);
        }
        run.owner = Some(session);
        run.updated_at = now;
        run.wake_at = None;
        run.waits = Vec::new();
        let holder = self.sessions.get_mut(&session)?;
        holder.held.insert(id);
        if run.has_unread() {
            holder.unread.insert(id);
        }
        Some(claimed(id, run, session))
    }
}

fn claimed(id: RunId, run: &Run, session: SessionId) -> Claimed {
    let is_long = run.seq.saturating_sub(run.columns.replay_from) > HISTORY_IN_CLAIM_EVENTS_MAX;
    let is_left_out = is_long || run.preferred == Some(session);
    Claimed {
        run: id,
        workflow: run.code.workflow.clone(),
        version: run.code.version,
        turn: run.turn,
        seq: run.seq,
        turn_at: run.turn_at,
        consumed: run.consumed,
        inbox: run.inbox_after(run.consumed),
        columns: run.columns.clone(),
        is_fresh: run.is_fresh(),
        can_end_without_code: run.can_end(),
        is_overdue: false,
        history: if is_left_out {
            ClaimedHistory::LeftOut
        } else {
            ClaimedHistory::Whole(run.replayed_history().to_vec())
        },
        details: run.details.values().cloned().collect(),
    }
}
