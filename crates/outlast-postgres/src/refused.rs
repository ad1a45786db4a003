//! Turns that the database refuses for a reason that may pass, as what a trigger raises: they are tried again a few times,
//! apart from others, and then refused for good.

use std::collections::HashMap;

use outlast_core::turn::From;
use outlast_core::{Turn, TurnId, WorldError};
use parking_lot::Mutex;

use crate::store::Failed;

/// How often a turn is tried before it is refused for good. With the pauses that a worker makes between tries of a
/// turn that is not free, that is about two seconds.
const TRIES_MAX: u32 = 10;

/// How often a turn is tried that starts its run: its client waits.
const START_TRIES_MAX: u32 = 5;

/// So many turns are tried again at the same time. What is refused beyond that is refused for good.
const TURNS_MAX: usize = 10_000;

/// The turns that were refused and are tried again, with how often they were tried.
#[derive(Debug, Default)]
pub(crate) struct Refused(Mutex<HashMap<TurnId, u32>>);

impl Refused {
    /// What a turn is answered that was refused, for good by `refusal`.
    pub(crate) fn judge(&self, turn: &Turn, failed: &Failed, refusal: WorldError) -> WorldError {
        let tries = if failed.is_permanent() { u32::MAX } else { self.count(turn) };
        let tries_max = if matches!(turn.from, From::Start(_)) { START_TRIES_MAX } else { TRIES_MAX };
        if tries >= tries_max {
            self.0.lock().remove(&turn.id);
            return refusal;
        }
        if tries == 1 {
            tracing::warn!(run = %turn.run, error = %refusal, "a turn is refused, and tried again");
        }
        WorldError::Blocked(format!("{refusal}; it is tried again"))
    }

    /// Counts a try; answers how many there were.
    fn count(&self, turn: &Turn) -> u32 {
        let mut turns = self.0.lock();
        if turns.len() >= TURNS_MAX && !turns.contains_key(&turn.id) {
            return u32::MAX;
        }
        let tries = turns.entry(turn.id).or_default();
        *tries += 1;
        *tries
    }

    /// These turns were written.
    pub(crate) fn written<'a>(&self, written: impl Iterator<Item = &'a Turn>) {
        let mut turns = self.0.lock();
        if !turns.is_empty() {
            for turn in written {
                turns.remove(&turn.id);
            }
        }
    }
}
