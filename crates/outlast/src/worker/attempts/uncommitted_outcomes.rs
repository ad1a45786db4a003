//! Outcomes of attempts that no turn has committed, where the watchdog can read them.
//!
//! When a run gets stuck, its task stores the outcomes of its attempts, so that the attempts are not repeated. If the
//! run's turn does not return, its task cannot do that, and the watchdog does it: with the outcomes that were delivered
//! to the turn, and those of attempts with tasks of their own. A single attempt is polled by the task of its run, so it
//! does not make progress while the turn does not return: it is repeated, like an attempt of a lost worker.

use std::sync::Arc;

use outlast_core::{Event, OpNumber, Timestamp};
use parking_lot::Mutex;

use super::attempt_end::AttemptEnd;

/// The outcomes of a run's attempts that no turn has committed. Most runs never have several attempts at a time, and
/// need no allocation.
#[derive(Debug, Default)]
pub(in crate::worker) struct UncommittedOutcomes(Mutex<Option<Box<OutcomeSources>>>);

#[derive(Debug, Default)]
struct OutcomeSources {
    /// The outcomes that were delivered to the turn that is being computed or committed.
    delivered: Vec<Event>,
    /// The attempts with tasks of their own; some of their ends may have been taken.
    attempts: Vec<Arc<AttemptSlot>>,
    /// The number of attempts at which those with a taken end are removed. It is twice the number that was left the last
    /// time, so that an attempt costs the same however many others there are.
    attempts_max: usize,
}

/// The number of attempts before those with a taken end are removed for the first time.
const ATTEMPTS_BEFORE_REMOVAL: usize = 16;

/// Where an attempt with a task of its own stores its end.
#[derive(Debug, Default)]
pub(in crate::worker) struct AttemptSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    #[default]
    Running,
    Ended(Box<AttemptEnd>),
    /// The run's task has taken the end, or the attempt was prevented.
    Taken,
}

impl AttemptSlot {
    /// Stores the end of the attempt; `None` if it was prevented.
    pub(in crate::worker) fn put(&self, end: Option<AttemptEnd>) {
        *self.0.lock() = end.map_or(SlotState::Taken, |end| SlotState::Ended(Box::new(end)));
    }

    pub(in crate::worker) fn take(&self) -> Option<AttemptEnd> {
        match std::mem::replace(&mut *self.0.lock(), SlotState::Taken) {
            SlotState::Ended(end) => Some(*end),
            SlotState::Running | SlotState::Taken => None,
        }
    }
}

impl UncommittedOutcomes {
    /// Sets the outcomes that a turn is about to be computed from; empty after the turn was committed.
    pub(in crate::worker) fn set_delivered(&self, delivered: Vec<Event>) {
        let mut sources = self.0.lock();
        if !delivered.is_empty() || sources.is_some() {
            sources.get_or_insert_default().delivered = delivered;
        }
    }

    /// Adds an attempt with a task of its own.
    pub(in crate::worker) fn add_attempt(&self) -> Arc<AttemptSlot> {
        let slot = Arc::<AttemptSlot>::default();
        let mut sources = self.0.lock();
        let OutcomeSources { attempts, attempts_max, .. } = &mut **sources.get_or_insert_default();
        if attempts.len() >= (*attempts_max).max(ATTEMPTS_BEFORE_REMOVAL) {
            attempts.retain(|slot| !matches!(&*slot.0.lock(), SlotState::Taken));
            *attempts_max = attempts.len() * 2;
        }
        attempts.push(slot.clone());
        slot
    }

    /// Whether an attempt with a task of its own has not ended.
    pub(in crate::worker) fn has_running_attempts(&self) -> bool {
        let sources = self.0.lock();
        let mut attempts = sources.iter().flat_map(|sources| &sources.attempts);
        attempts.any(|slot| matches!(&*slot.0.lock(), SlotState::Running))
    }

    /// Returns all outcomes, as events. `may_retry` says whether a step may be attempted again at a given time.
    pub(in crate::worker) fn events(&self, may_retry: impl Fn(OpNumber, Timestamp) -> bool) -> Vec<Event> {
        let sources = self.0.lock();
        let Some(sources) = &*sources else { return Vec::new() };
        let mut events = sources.delivered.clone();
        for slot in &sources.attempts {
            if let SlotState::Ended(end) = &*slot.0.lock() {
                events.extend(end.event(|at| may_retry(end.op, at)));
            }
        }
        events
    }
}
