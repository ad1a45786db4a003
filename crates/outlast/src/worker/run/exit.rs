//! How a session stops holding a run.

use outlast_core::{Event, Stuck, StuckReason, TurnId, WorldError};

use super::position::RunPosition;
use crate::replay::Machine;

/// Why a live run is not held any more.
#[derive(Debug)]
pub(in crate::worker) enum Exit {
    /// A turn released the run, which waits.
    Released,
    /// The run has ended, or its start was refused.
    Ended,
    /// Another worker holds the run, or a call to the world failed for good.
    Lost(WorldError),
    /// This build cannot continue the run. That is yet to be committed.
    Stuck(Stuck),
    /// The run is paused, and no attempt is running. It is yet to be released.
    Paused,
}

impl Exit {
    /// The exit of a run whose stored data could not be read.
    pub(in crate::worker) fn read_failed(error: WorldError) -> Self {
        match error {
            WorldError::Corrupt(reason) => Self::Stuck(unreadable(&reason)),
            error => Self::Lost(error),
        }
    }
}

/// The machine of a released run, as it is after a turn.
#[derive(Debug)]
pub(in crate::worker) struct ReleasedMachine {
    pub(in crate::worker) turn: TurnId,
    pub(in crate::worker) machine: Box<Machine>,
}

/// A run that is to be marked as stuck, or released because it is paused.
pub(in crate::worker) struct HaltedRun {
    pub(in crate::worker) position: RunPosition,
    /// Why it is stuck; `None` if it is paused.
    pub(in crate::worker) stuck: Option<Stuck>,
    /// Outcomes of attempts that are not in the history.
    pub(in crate::worker) unrecorded_outcomes: Vec<Event>,
}

/// Why a run is stuck whose history or inbox this build cannot read.
pub(in crate::worker) fn unreadable(reason: &str) -> Stuck {
    let message = format!("the stored data of the run cannot be read: {reason}");
    Stuck::new(StuckReason::Unreadable, message)
}
