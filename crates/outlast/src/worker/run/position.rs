//! The position of a run in its history and inbox, as its holder knows it.

use std::sync::Arc;

use outlast_core::{Claimed, HolderColumns, Timestamp, Turn, TurnId};

/// The position of a run in its history and inbox.
#[derive(Clone, Debug)]
pub(in crate::worker) struct RunPosition {
    /// The last committed turn.
    pub(in crate::worker) turn: TurnId,
    /// The time of that turn.
    pub(in crate::worker) at: Timestamp,
    /// The number of the next event.
    pub(in crate::worker) seq: u64,
    /// The position of the last consumed message.
    pub(in crate::worker) consumed: u64,
    /// The columns of the run's row that only its holder changes.
    pub(in crate::worker) columns: Arc<HolderColumns>,
}

impl RunPosition {
    /// The position of a claimed run.
    pub(in crate::worker) fn of_claimed(claimed: &Claimed) -> Self {
        Self {
            turn: claimed.turn,
            at: claimed.turn_at,
            seq: claimed.seq,
            consumed: claimed.consumed,
            columns: claimed.columns.clone(),
        }
    }

    /// The position after a turn, if the session still holds the run.
    pub(in crate::worker) fn after(turn: &Turn) -> Self {
        Self {
            turn: turn.id,
            at: turn.at,
            seq: turn.next_event(),
            consumed: turn.consumed,
            columns: turn.held_columns(),
        }
    }
}
