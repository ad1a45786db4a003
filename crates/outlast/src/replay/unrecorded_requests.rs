//! Requests that a replay makes and that are not in the history.
//!
//! A turn with very many requests is committed in parts, and its worker may be lost between two of them. The history
//! then ends with a turn that is [continued](outlast_core::TurnId::is_continued), and contains only a part of the
//! requests after the last delivery. A replay makes the other requests again, and the next turn records them before
//! anything is delivered. With every other history, code that requests more than is recorded has diverged.

use outlast_core::{Event, OpNumber, Stuck, Timestamp, TurnRecord};

use super::machine::Machine;

/// The requests that the next turn records first.
#[derive(Default)]
pub(super) struct UnrecordedRequests {
    pub(super) events: Vec<Event>,
    /// The steps among them that can be attempted once the requests are recorded.
    startable: Vec<OpNumber>,
    /// Operations from this number on are not in the history.
    first: u64,
    /// The time of the replayed poll that has made them.
    at: Option<Timestamp>,
}

/// Takes the `run_terminated` event of a run that was terminated when only a part of its last turn was committed. The
/// replay must not expect the missing requests of that turn.
pub(super) fn take_termination_after_part(history: &mut Vec<TurnRecord>) -> Option<Event> {
    let [.., part, last] = &mut history[..] else { return None };
    if !part.id.is_continued() || !matches!(last.events[..], [Event::RunTerminated { .. }]) {
        return None;
    }
    let end = last.events.pop();
    history.pop();
    end
}

impl Machine {
    /// Whether the next turn must record requests that the replay has made.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.unrecorded.is_some()
    }

    /// Whether an operation is not in the history, so that no worker has attempted it.
    pub(super) fn is_unrecorded(&self, op: OpNumber) -> bool {
        self.unrecorded.as_ref().is_some_and(|unrecorded| op.0 >= unrecorded.first)
    }

    /// Appends the requests that are not in the history.
    pub(crate) fn record_unrecorded_requests(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        if self.unrecorded.is_none() {
            return Ok(());
        }
        self.take_unrecorded_requests(events);
        self.apply_follow_ups(events)
    }

    /// Appends the requests that are not in the history, without what follows from them.
    pub(super) fn take_unrecorded_requests(&mut self, events: &mut Vec<Event>) {
        let Some(unrecorded) = self.unrecorded.take() else { return };
        let UnrecordedRequests { events: rest, startable, at, .. } = *unrecorded;
        events.extend(rest);
        let mut table = self.state.table.lock();
        table.startable.extend(startable);
        at.into_iter().for_each(|at| table.keep_closed_tokens_longer(at));
    }

    /// The number of messages of the turn that are older than its last delivery. A replay up to that delivery does not
    /// send them again.
    pub(crate) fn settled_messages(&self) -> usize {
        self.state
            .table
            .lock()
            .pending_outbox
            .as_ref()
            .map_or(0, |pending_outbox| pending_outbox.settled_messages)
    }

    pub(super) fn unrecorded(&mut self) -> &mut UnrecordedRequests {
        self.unrecorded.get_or_insert_default()
    }

    /// Whether the code may request an operation that is not in the history.
    pub(super) fn accepts_new_requests(&self) -> bool {
        let table = self.state.table.lock();
        table.history.as_ref().is_some_and(|history| history.accepts_new_requests() && !history.has_diverged)
    }

    /// Ends a replay: discards the outbox of the recorded turns, and keeps that of unrecorded requests.
    pub(super) fn end_replay(&mut self, is_terminated: bool) {
        self.forget_recorded_cancels();
        let mut table = self.state.table.lock();
        let history = table.history.take();
        let history = history.filter(|history| history.accepts_new_requests() && !is_terminated);
        let first = history.map_or(u64::MAX, |history| history.ops);
        table.recorded_ops = 0;
        let mut pending_outbox = table.pending_outbox.take();
        table.replayed_tags = pending_outbox
            .as_mut()
            .map(|pending_outbox| std::mem::take(&mut pending_outbox.tags))
            .unwrap_or_default();
        let startable = std::mem::take(&mut table.startable);
        let startable = startable.into_iter().filter(|op| table.is_startable(*op));
        let (recorded, new): (Vec<_>, Vec<_>) = startable.partition(|op| op.0 < first);
        table.startable = recorded;
        if first == u64::MAX {
            table.invalid_requests.clear();
            table.hooks.forget_changes();
            drop(table);
            self.unrecorded = None;
            return;
        }
        table.invalid_requests.retain(|(op, _)| op.0 >= first);
        table.pending_outbox = pending_outbox.filter(|pending_outbox| {
            !pending_outbox.children.is_empty()
                || !pending_outbox.messages.is_empty()
                || !pending_outbox.tokens.is_empty()
                || !pending_outbox.replies.is_empty()
        });
        let at = table.now;
        drop(table);
        let unrecorded = self.unrecorded();
        (unrecorded.startable, unrecorded.first, unrecorded.at) = (new, first, Some(at));
    }
}
