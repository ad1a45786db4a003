//! The events of a history that count: a retry forgets those between its cut point and itself.

use std::collections::BTreeSet;

use outlast_core::{Event, ForkOrigin, OpNumber, TurnRecord};

/// An event that counts, with its number and turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting<'a> {
    pub(super) number: u64,
    pub(super) turn: &'a TurnRecord,
    pub(super) event: &'a Event,
}

/// The events that no retry has made forgotten, in order.
pub(super) fn effective(turns: &[TurnRecord]) -> Vec<Counting<'_>> {
    let mut counting: Vec<Counting<'_>> = Vec::new();
    for turn in turns {
        for (number, event) in (turn.seq..).zip(&turn.events) {
            if let Event::RunRetried(retried) = event {
                counting.retain(|earlier| earlier.number < retried.from);
            }
            counting.push(Counting { number, turn, event });
        }
    }
    counting
}

/// Where the first events of a history come from, if it is that of a fork.
pub(super) fn fork_origin(turns: &[TurnRecord]) -> Option<&ForkOrigin> {
    match turns.first()?.events.first()? {
        Event::RunStarted(started) => started.forked.as_deref(),
        _ => None,
    }
}

/// How often retries have opened an operation again. Its attempts are counted from the beginning each time.
pub(super) fn times_reopened(turns: &[TurnRecord], op: OpNumber) -> u32 {
    let events = turns.iter().flat_map(|turn| &turn.events);
    let reopens = |event: &&Event| matches!(event, Event::RunRetried(retried) if retried.reopens == op);
    u32::try_from(events.filter(reopens).count()).unwrap_or(u32::MAX)
}

/// The operations that are open, of one kind, while events are applied.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenSteps {
    pub(super) open: BTreeSet<OpNumber>,
    /// Those of them that are attempted at most once.
    pub(super) once: BTreeSet<OpNumber>,
}

impl OpenSteps {
    pub(super) fn apply(&mut self, event: &Event) {
        match event {
            Event::StepStarted { op, is_once, .. } => {
                self.open.insert(*op);
                if *is_once {
                    self.once.insert(*op);
                }
            }
            Event::CompensationStarted { op, .. } => drop(self.open.insert(*op)),
            Event::StepCompleted { op, .. } | Event::StepFailed { op, .. } | Event::StepDropped { op } => {
                self.end(*op);
            }
            Event::CancelRequested { pauses, ends, .. } => {
                pauses.iter().chain(ends).for_each(|op| self.end(*op));
            }
            _ => {}
        }
    }

    pub(super) fn end(&mut self, op: OpNumber) {
        self.open.remove(&op);
        self.once.remove(&op);
    }
}
