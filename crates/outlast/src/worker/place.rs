//! Where a run is, as its holder knows it, and why it is let go of.

use std::sync::Arc;

use outlast_core::{Claimed, HolderColumns, Stuck, Timestamp, Turn, TurnId, WorldError};

use super::task::cannot_be_read;

/// Where a run is in its history and inbox.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The last committed turn.
    pub(super) turn: TurnId,
    /// Its time.
    pub(super) at: Timestamp,
    /// The number of the next event.
    pub(super) seq: u64,
    /// The position of the last consumed message.
    pub(super) consumed: u64,
    /// The columns of the run's row that only its holder changes.
    pub(super) columns: Arc<HolderColumns>,
}

impl Place {
    /// Where a claimed run is.
    pub(super) fn of(claimed: &Claimed) -> Self {
        Self {
            turn: claimed.turn,
            at: claimed.turn_at,
            seq: claimed.seq,
            consumed: claimed.consumed,
            columns: claimed.columns.clone(),
        }
    }

    /// Where the run is after a turn that it is held after.
    pub(super) fn after(turn: &Turn) -> Self {
        Self {
            turn: turn.id,
            at: turn.at,
            seq: turn.next_event(),
            consumed: turn.consumed,
            columns: turn.held_columns(),
        }
    }
}

/// Why a task lets go of a run without a turn.
#[derive(Debug)]
pub(super) enum Gone {
    /// It is someone else's, or the world does not say.
    Lost(WorldError),
    /// It cannot go on with this code.
    Stuck(Stuck),
}

impl Gone {
    /// What becomes of a run when the world does not give what is needed of it.
    pub(super) fn of(error: WorldError) -> Self {
        match error {
            WorldError::Corrupt(reason) => Self::Stuck(cannot_be_read(&reason)),
            error => Self::Lost(error),
        }
    }
}
