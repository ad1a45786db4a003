//! What is not lost when a run gets stuck: the outcomes of its attempts. And what is told of a turn once it is
//! committed: payloads that were rejected.

use std::pin::pin;

use futures_util::future::{Either, select};
use outlast_core::{Event, Judgement, MessageId, RunId, Turn};

use super::{Fact, Live, attempt_of};

impl Live<'_> {
    /// Waits for the attempts that are running, for at most the drain time: their outcomes are stored before
    /// the run is marked stuck, so that they are not made again.
    pub(in crate::worker) async fn finish_attempts(&mut self) {
        let session = self.task.session.clone();
        let end = session.clock.now().plus(session.settings.drain);
        let mut drained = pin!(session.clock.sleep_until(end));
        while !self.attempts.is_empty() {
            match select(pin!(self.attempts.next()), drained.as_mut()).await {
                Either::Left((ended, _)) => self.early.push(Fact::attempt(ended)),
                Either::Right(_) => {
                    let run = self.task.run;
                    tracing::warn!(%run, "the drain time is over; attempts of a stuck run still run");
                    return;
                }
            }
        }
    }

    /// The turn that is computed from these facts may not come back: the watchdog stores their outcomes then.
    pub(super) fn tell_watchdog(&self, facts: &[Fact]) {
        let is_new =
            |event: &Event| attempt_of(event).is_none_or(|attempt| !self.in_inbox.contains(&attempt));
        let told = facts.iter().filter_map(|fact| fact.outcome(&self.machine)).filter(is_new);
        self.task.notes.outcomes.set_told(told.collect());
    }

    /// Outcomes of attempts that the history does not have: those of a turn that was no good, and those that
    /// have ended since.
    pub(in crate::worker) fn into_untold(mut self) -> Vec<Event> {
        let mut facts = std::mem::take(&mut self.early);
        while let Some(end) = self.attempts.try_next() {
            facts.push(Fact::attempt(end));
        }
        self.keep_untold(Vec::new(), 0, facts);
        std::mem::take(&mut self.untold)
    }

    /// Remembers outcomes of attempts: those in the events of a turn, if they were asked for before it, and those
    /// that the turn was not told of yet.
    pub(super) fn keep_untold(
        &mut self,
        events: Vec<Event>,
        ops_before: u64,
        facts: impl IntoIterator<Item = Fact>,
    ) {
        let told = events.into_iter().filter(|event| event.op().is_some_and(|op| op.0 < ops_before));
        let told = Fact::attempts_of(told.collect(), self.place.at);
        let (machine, in_inbox) = (&self.machine, &self.in_inbox);
        let events = told.into_iter().chain(facts).filter_map(|fact| fact.into_event(machine));
        let is_new = |event: &Event| attempt_of(event).is_none_or(|attempt| !in_inbox.contains(&attempt));
        self.untold.extend(events.filter(is_new));
    }
}

/// The payloads that a turn rejects.
pub(super) struct Rejections(Vec<Event>);

impl Rejections {
    pub(super) fn of(turn: &Turn) -> Self {
        Self(turn.events.iter().filter(|event| rejection(event).is_some()).cloned().collect())
    }

    /// Logs them, once the turn is committed: a turn that is refused is computed again.
    pub(super) fn log(&self, run: RunId) {
        for (hook, message_id, reason) in self.0.iter().filter_map(rejection) {
            tracing::warn!(%run, hook, %message_id, reason, "no open hook can read a payload; it is rejected");
        }
    }
}

/// The hook, the message and the reason of a payload that was rejected.
fn rejection(event: &Event) -> Option<(&str, MessageId, &str)> {
    match event {
        Event::HookReceived { name, message, judgement: Judgement::Rejected(reason), .. }
        | Event::HookRejected { name, message, reason } => Some((name, *message, reason)),
        _ => None,
    }
}
