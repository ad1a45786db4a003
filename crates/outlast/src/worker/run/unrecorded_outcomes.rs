//! The outcomes of attempts of a run that gets stuck or was paused. They are stored in the run's inbox, so that the
//! attempts are not repeated when the run continues.

use std::pin::pin;

use futures_util::future::{Either, select};
use outlast_core::Event;

use super::fact::{Fact, attempt_of};
use super::live_run::LiveRun;

impl LiveRun<'_> {
    /// Waits for the running attempts, for at most the drain time: their outcomes are stored before the run is marked
    /// as stuck.
    pub(super) async fn finish_attempts(&mut self) {
        let session = self.task.session.clone();
        let end = session.clock.now().plus(session.settings.drain);
        let mut drained = pin!(session.clock.sleep_until(end));
        while !self.attempts.is_empty() {
            let end = match select(pin!(self.attempts.next()), drained.as_mut()).await {
                Either::Left((end, _)) => end,
                Either::Right(_) => {
                    let run = self.task.run;
                    tracing::warn!(%run, "the drain time is over, and attempts of a stuck run are still running");
                    return;
                }
            };
            self.accept_end_later(end);
        }
    }

    /// Publishes the outcomes among the facts of a turn to the watchdog, which stores them if the turn does not return.
    pub(super) fn publish_outcomes(&self, facts: &[Fact]) {
        let outcomes = facts.iter().filter_map(|fact| fact.event(&self.machine));
        let outcomes = outcomes.filter(|event| !self.is_in_inbox(event));
        // Most turns have one fact. A vector that grows would have room for four.
        let mut delivered = Vec::with_capacity(facts.len());
        delivered.extend(outcomes);
        self.task.mailbox.outcomes.set_delivered(delivered);
    }

    /// The outcomes of attempts that are not in the history: those of a turn that was not committed, and those of
    /// attempts that have ended since.
    pub(super) fn into_unrecorded_outcomes(mut self) -> Vec<Event> {
        let mut facts = std::mem::take(&mut self.arrived_during_commit);
        while let Some(end) = self.attempts.try_next() {
            self.accept_end(end, &mut facts);
        }
        self.keep_unrecorded(Vec::new(), 0, facts);
        std::mem::take(&mut self.unrecorded_outcomes)
    }

    /// Keeps the outcomes of attempts from a turn that is not committed: those among its events, if the steps were
    /// requested before it, and those among facts that were not delivered yet.
    pub(super) fn keep_unrecorded(
        &mut self,
        events: Vec<Event>,
        ops_before: u64,
        facts: impl IntoIterator<Item = Fact>,
    ) {
        let delivered = events.into_iter().filter(|event| event.op().is_some_and(|op| op.0 < ops_before));
        let delivered = Fact::recovered_outcomes(delivered.collect(), self.position.at);
        let outcomes = delivered.into_iter().chain(facts);
        let outcomes = outcomes.filter_map(|fact| fact.into_event(&self.machine));
        let outcomes: Vec<_> = outcomes.filter(|event| !self.is_in_inbox(event)).collect();
        self.unrecorded_outcomes.extend(outcomes);
    }

    /// Whether the inbox contains this outcome already.
    fn is_in_inbox(&self, event: &Event) -> bool {
        attempt_of(event).is_some_and(|attempt| self.outcomes_in_inbox.contains(&attempt))
    }
}
