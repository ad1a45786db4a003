//! The deletion of turns that no replay needs any more: skipped iterations of loops, and old generations.
//!
//! Whether to delete is decided from the turn alone, so that a run that is held by another worker after every iteration
//! deletes as often as one that stays: when the number of the event with the cut passes a multiple of
//! [`SKIPPED_EVENTS_DELETED`]. A deletion that fails is made up for by the next one, which begins at the same turn.

use std::ops::Range;

use outlast_core::cut::kept_places;
use outlast_core::limits::SKIPPED_EVENTS_DELETED;
use outlast_core::{Event, IterationCut, RunId, Turn, World};

/// Turns to delete, by the numbers of their first events.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SkippedTurns {
    range: Range<u64>,
    kept: Vec<u64>,
}

/// The turns to delete after this turn is committed.
pub(super) fn of(turn: &Turn) -> Option<SkippedTurns> {
    let (before, after) = (turn.columns.before.replay_from, turn.columns.after.replay_from);
    if before / SKIPPED_EVENTS_DELETED == after / SKIPPED_EVENTS_DELETED {
        return None;
    }
    let cut = turn.events.iter().rfind(|event| event.is_cut())?;
    let range = match cut {
        Event::IterationEnded(ended) => {
            let skip = ended.cut.as_ref().and_then(IterationCut::last_skip)?;
            // A first turn that is committed in parts begins with the start alone, as a turn of its own.
            skip.after_turn.max(1) + 1..skip.until_turn
        }
        // The start stays: it says what the run is.
        Event::RunContinued(continued) => 1..continued.previous.first().copied().unwrap_or(turn.seq),
        _ => return None,
    };
    let mut kept: Vec<_> = kept_places(cut).iter().map(|place| place.turn).collect();
    kept.sort_unstable();
    kept.dedup();
    (!range.is_empty()).then_some(SkippedTurns { range, kept })
}

impl SkippedTurns {
    /// Deletes the turns. A failure is not an error: a later deletion includes these turns.
    pub(super) async fn delete(self, world: &dyn World, run: RunId) {
        if let Err(error) = world.delete_turns(run, self.range, &self.kept).await {
            tracing::debug!(%run, %error, "cannot delete skipped turns of a run; they are deleted later");
        }
    }
}
