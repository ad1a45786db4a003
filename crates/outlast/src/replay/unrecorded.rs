//! What a replay asks for beyond its history.
//!
//! A turn that asks for very much is committed in parts, and its worker may be lost between two of them. Then the
//! history ends with a turn that is [continued](outlast_core::TurnId::is_continued): what the code asked for after the
//! last delivery is in it only in part. A replay asks for the rest again, and the next turn records that before anything
//! is delivered. In every other history, code that asks for more than is recorded has diverged.

use outlast_core::{Event, OpNumber, Stuck, TurnRecord};

use super::machine::Machine;

/// What the next turn records first.
#[derive(Default)]
pub(super) struct Unrecorded {
    pub(super) events: Vec<Event>,
    /// The steps among them that may be attempted once they are announced.
    startable: Vec<OpNumber>,
    /// Operations from this number on are not in the history.
    first: u64,
}

/// Takes the end of a run that was ended without its code when only a part of its last turn was committed: nobody has
/// asked for the rest.
pub(super) fn take_early_end(history: &mut Vec<TurnRecord>) -> Option<Event> {
    let [.., part, last] = &mut history[..] else { return None };
    if !part.id.is_continued() || !matches!(last.events[..], [Event::RunTerminated { .. }]) {
        return None;
    }
    let end = last.events.pop();
    history.pop();
    end
}

impl Machine {
    /// Whether the next turn records something that the run has asked for already.
    pub(crate) fn has_unrecorded(&self) -> bool {
        self.unrecorded.is_some()
    }

    /// Whether an operation is not in the history, so that nobody else knows of it.
    pub(super) fn is_unrecorded(&self, op: OpNumber) -> bool {
        self.unrecorded.as_ref().is_some_and(|unrecorded| op.0 >= unrecorded.first)
    }

    /// Adds what the run has asked for and the history does not have.
    pub(crate) fn record_rest(&mut self, events: &mut Vec<Event>) -> Result<(), Stuck> {
        let Some(unrecorded) = self.unrecorded.take() else { return Ok(()) };
        let Unrecorded { events: rest, startable, .. } = *unrecorded;
        events.extend(rest);
        self.state.cell.lock().startable.extend(startable);
        self.follow_up(events)
    }

    /// How many of the messages that the turn sends are older than the last thing that it was told. Only these are not
    /// sent again by whoever replays it up to there.
    pub(crate) fn settled_messages(&self) -> usize {
        self.state.cell.lock().wishes.as_ref().map_or(0, |wishes| wishes.settled_messages)
    }

    pub(super) fn unrecorded(&mut self) -> &mut Unrecorded {
        self.unrecorded.get_or_insert_default()
    }

    /// Whether the operation that the code requests now is new (not in the history), and new operations are allowed here.
    pub(super) fn is_at_open_end(&self) -> bool {
        let cell = self.state.cell.lock();
        cell.known.as_ref().is_some_and(|known| known.is_at_open_end() && !known.is_astray)
    }

    /// The whole history is replayed. What it asked of others is done, except for what it does not have.
    pub(super) fn end_replay(&mut self, is_ended_early: bool) {
        let mut cell = self.state.cell.lock();
        let known = cell.known.take();
        let known = known.filter(|known| known.is_at_open_end() && !is_ended_early);
        let first = known.map_or(u64::MAX, |known| known.ops);
        cell.known_ops = 0;
        let mut wishes = cell.wishes.take();
        cell.replayed_tags =
            wishes.as_mut().map(|wishes| std::mem::take(&mut wishes.tags)).unwrap_or_default();
        let startable = std::mem::take(&mut cell.startable);
        let startable = startable.into_iter().filter(|op| cell.is_startable(*op));
        let (known, new): (Vec<_>, Vec<_>) = startable.partition(|op| op.0 < first);
        cell.startable = known;
        if first == u64::MAX {
            cell.refused.clear();
            cell.hooks.forget_changes();
            drop(cell);
            self.unrecorded = None;
            return;
        }
        cell.refused.retain(|(op, _)| op.0 >= first);
        cell.wishes = wishes.filter(|wishes| !wishes.children.is_empty() || !wishes.messages.is_empty());
        drop(cell);
        let unrecorded = self.unrecorded();
        (unrecorded.startable, unrecorded.first) = (new, first);
    }
}
