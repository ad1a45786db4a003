//! Outcomes of attempts that no turn has committed, where others than the run's task can read them.
//!
//! A run that gets stuck stores the outcomes of its attempts, so that they are not made again. When the run's turn does
//! not come back, its task cannot do that, and the watchdog does it: with the outcomes that the turn was told, and
//! those of attempts that have tasks of their own. A single attempt runs in the task of its run. It stands still with
//! the turn, so nobody can await it: it is made again, like one of a lost worker.

use std::sync::Arc;

use outlast_core::{Event, OpNumber, Timestamp};
use parking_lot::Mutex;

use super::attempts::AttemptEnd;

/// The outcomes of a run's attempts that no turn has committed. Most runs never have several at a time.
#[derive(Debug, Default)]
pub(super) struct Outcomes(Mutex<Option<Box<Uncommitted>>>);

#[derive(Debug, Default)]
struct Uncommitted {
    /// What the turn was told that is being computed or committed.
    told: Vec<Event>,
    /// Attempts with tasks of their own.
    attempts: Vec<Arc<AttemptSlot>>,
}

/// Where an attempt with a task of its own leaves how it ended.
#[derive(Debug, Default)]
pub(super) struct AttemptSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Running,
    Ended(Box<AttemptEnd>),
    /// The run's task knows it.
    Taken,
}

impl AttemptSlot {
    /// Keeps how the attempt ended; nothing if it never began.
    pub(super) fn put(&self, end: Option<AttemptEnd>) {
        *self.0.lock() = end.map_or(SlotState::Taken, |end| SlotState::Ended(Box::new(end)));
    }

    pub(super) fn take(&self) -> Option<AttemptEnd> {
        match std::mem::replace(&mut *self.0.lock(), SlotState::Taken) {
            SlotState::Ended(end) => Some(*end),
            SlotState::Running | SlotState::Taken => None,
        }
    }
}

impl Outcomes {
    /// A turn is about to be computed from these outcomes; none when one was committed.
    pub(super) fn set_told(&self, told: Vec<Event>) {
        let mut uncommitted = self.0.lock();
        if !told.is_empty() || uncommitted.is_some() {
            uncommitted.get_or_insert_default().told = told;
        }
    }

    /// An attempt with a task of its own begins.
    pub(super) fn begin(&self) -> Arc<AttemptSlot> {
        let slot = Arc::<AttemptSlot>::default();
        let mut uncommitted = self.0.lock();
        let attempts = &mut uncommitted.get_or_insert_default().attempts;
        attempts.retain(|slot| !matches!(&*slot.0.lock(), SlotState::Taken));
        attempts.push(slot.clone());
        slot
    }

    /// Whether an attempt with a task of its own has not ended.
    pub(super) fn are_awaited(&self) -> bool {
        let uncommitted = self.0.lock();
        let mut attempts = uncommitted.iter().flat_map(|uncommitted| &uncommitted.attempts);
        attempts.any(|slot| matches!(&*slot.0.lock(), SlotState::Running))
    }

    /// All outcomes, as the history gets them.
    pub(super) fn events(&self, may_retry: impl Fn(OpNumber, Timestamp) -> bool) -> Vec<Event> {
        let uncommitted = self.0.lock();
        let Some(uncommitted) = &*uncommitted else { return Vec::new() };
        let mut events = uncommitted.told.clone();
        for slot in &uncommitted.attempts {
            if let SlotState::Ended(end) = &*slot.0.lock() {
                events.extend(end.event(|at| may_retry(end.op, at)));
            }
        }
        events
    }
}
