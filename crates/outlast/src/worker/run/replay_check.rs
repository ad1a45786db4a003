//! Replays of a live run: by a paranoid worker before every commit, and by every worker after a conflict.

use outlast_core::event::TurnRecord;
use outlast_core::{Stuck, StuckReason, TurnId};

use super::exit::Exit;
use super::live_run::LiveRun;
use super::task::{add_missing_turns, machine_from, read_history};
use super::turn::Draft;
use crate::replay::Machine;

impl LiveRun<'_> {
    /// In a paranoid worker, replays the run before a commit: if the replay differs, the run is stuck and nothing of
    /// the turn is stored.
    pub(super) async fn check_by_replay(&mut self, draft: &Draft, is_start: bool) -> Result<(), Exit> {
        if self.task.session.settings.is_paranoid && self.machine.ended().is_none() {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            Box::pin(self.compare_with_replay(draft, is_start)).await?;
        }
        Ok(())
    }

    /// Replays the whole history with this turn, compares the result, and continues with the replayed future.
    async fn compare_with_replay(&mut self, draft: &Draft, is_start: bool) -> Result<(), Exit> {
        let turn = TurnRecord {
            // Not marked as continued: this is the whole turn, even if it is committed in parts.
            id: TurnId::from_bits(0),
            seq: self.position.seq,
            at: draft.at,
            build: self.task.session.settings.build.clone(),
            events: draft.events.clone(),
        };
        let mut replayed = self.replayed(Some(turn), is_start).await?;
        // The replayed machine has already ended retry pauses that were over.
        self.machine.take_due(self.timers_checked_at);
        // A replay does not know which pauses a wake has ended.
        replayed.end_pauses(&self.machine.startable());
        let (live, replay) = (self.machine.summary(), replayed.summary());
        if live != replay {
            let message =
                format!("run {} differs after a replay.\nlive:\n{live}\nreplayed:\n{replay}", self.task.run);
            return Err(Exit::Stuck(Stuck::new(StuckReason::Diverged, message)));
        }
        if !self.machine.has_adopted() {
            replayed.take_adopted();
        }
        replayed.take_pending_outbox_of(&mut self.machine);
        self.machine.drop_here();
        *self.machine = replayed;
        Ok(())
    }

    /// Replays the history, with an additional turn that is not committed yet.
    pub(super) async fn replayed(
        &mut self,
        turn: Option<TurnRecord>,
        is_start: bool,
    ) -> Result<Machine, Exit> {
        let at = turn.as_ref().map_or(self.position.at, |turn| turn.at);
        let is_committed = turn.is_none();
        let reason = if turn.is_some() { "check" } else { "conflict" };
        let mut history = if is_start {
            Vec::new()
        } else {
            let from = self.position.columns.replay_from;
            read_history(&self.task.session, self.task.run, from).await.map_err(Exit::read_failed)?
        };
        // Ignore turns of a worker that has taken over the run in the meantime.
        history.retain(|turn| turn.seq < self.position.seq);
        history.extend(turn.filter(|turn| !turn.events.is_empty()));
        let history = add_missing_turns(&self.task.session, self.task.run, history).await;
        let mut history = history.map_err(Exit::read_failed)?;
        if let Some(retry) = self.pending_retry.as_deref().filter(|_| is_committed) {
            history = retry.request.split(history).replayed;
        }
        let mut machine = machine_from(self.task, history, false, reason)?;
        machine.set_attempting(&self.attempts.ops());
        machine.take_due(self.timers_checked_at);
        machine.set_time(at);
        Ok(machine)
    }
}
