//! Replays of a live run: of a paranoid worker before every commit, and of others after a refused one.

use outlast_core::event::TurnRecord;
use outlast_core::{Stuck, StuckReason, TurnId};

use super::{Draft, Gone, Live, Machine, machine_from, read_history};

impl Live<'_> {
    /// A paranoid worker replays before it commits: what diverges is stuck, and history has none of it.
    pub(super) async fn doubt(&mut self, draft: &Draft, is_start: bool) -> Result<(), Gone> {
        if self.task.session.settings.is_paranoid && self.machine.ended().is_none() {
            // Rare, and large: not in the state of every run.
            Box::pin(self.verify(draft, is_start)).await?;
        }
        Ok(())
    }

    /// Replays the whole history with this turn, compares, and goes on with the replayed future.
    async fn verify(&mut self, draft: &Draft, is_start: bool) -> Result<(), Gone> {
        let turn = TurnRecord {
            // The whole turn, though it may be committed in parts.
            id: TurnId::from_bits(0),
            seq: self.place.seq,
            at: draft.at,
            build: self.task.session.settings.build.clone(),
            events: draft.events.clone(),
        };
        let mut replayed = self.replayed(Some(turn), is_start).await?;
        // A pause that was over when it began: the replayed machine has found that out already.
        self.machine.take_due(self.looked_at);
        let (live, replay) = (self.machine.summary(), replayed.summary());
        if live != replay {
            let message = format!(
                "run {} is not the same after a replay.\nlive:\n{live}\nreplayed:\n{replay}",
                self.task.run
            );
            return Err(Gone::Stuck(Stuck { reason: StuckReason::Diverged, message, build: String::new() }));
        }
        replayed.take_wishes_of(&mut self.machine);
        self.machine = replayed;
        Ok(())
    }

    /// The machine as a replay of the history makes it, with a turn that is not committed yet.
    pub(super) async fn replayed(
        &mut self,
        turn: Option<TurnRecord>,
        is_start: bool,
    ) -> Result<Machine, Gone> {
        let at = turn.as_ref().map_or(self.place.at, |turn| turn.at);
        let mut history = if is_start {
            Vec::new()
        } else {
            read_history(&self.task.session, self.task.run).await.map_err(Gone::of)?
        };
        // Whoever took the run over meanwhile has gone on with it. That is not this machine's life.
        history.retain(|turn| turn.seq < self.place.seq);
        history.extend(turn.filter(|turn| !turn.events.is_empty()));
        let mut machine = machine_from(self.task, history, false)?;
        machine.set_attempting(&self.attempts.ops());
        machine.take_due(self.looked_at);
        machine.set_time(at);
        Ok(machine)
    }
}
