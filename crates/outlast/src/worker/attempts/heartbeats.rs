//! Heartbeats: the details that running attempts report, until they are sent to the world.
//!
//! They are sent with the worker's beat, so that another worker gets them when this one is lost. An attempt without
//! details has no entry here.

use std::collections::BTreeMap;

use outlast_core::{Event, HeartbeatDetails, OpNumber, Payload, RunId};
use parking_lot::Mutex;

use crate::worker::run::fact::attempt_of;

/// The heartbeat details of the running attempts of a session.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<HeartbeatEntries>);

type HeartbeatEntries = BTreeMap<(RunId, OpNumber), HeartbeatEntry>;

#[derive(Debug)]
struct HeartbeatEntry {
    attempt: u32,
    /// The change that the world does not have yet.
    pending: Option<PendingChange>,
    /// Whether that change is newer than the beat that is in progress.
    is_newer: bool,
    /// Whether the world has details of this step.
    is_stored: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum PendingChange {
    /// Store these encoded details.
    Store(Payload),
    /// Delete the stored details, which are not needed any more.
    Delete,
}

impl Heartbeats {
    /// Sets the encoded details that an attempt of a held run reported last.
    pub(crate) fn put(&self, run: RunId, op: OpNumber, attempt: u32, details: Payload) {
        let mut entries = self.0.lock();
        let entry = entries.entry((run, op)).or_insert(HeartbeatEntry {
            attempt,
            pending: None,
            is_newer: true,
            is_stored: false,
        });
        entry.attempt = attempt;
        entry.is_newer = true;
        entry.pending = Some(PendingChange::Store(details));
    }

    /// Discards details that were not sent, of an attempt that has ended. Details that the world has stored are kept
    /// until the end of the attempt is committed.
    pub(crate) fn discard_unsent(&self, run: RunId, op: OpNumber) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(&(run, op)) else { return };
        if !entry.is_stored {
            entries.remove(&(run, op));
        } else if entry.pending != Some(PendingChange::Delete) {
            entry.pending = None;
        }
    }

    /// Adds the details that the world has of a claimed run. Those of steps that are not open are deleted.
    pub(in crate::worker) fn add_claimed(
        &self,
        details: &[HeartbeatDetails],
        is_open: impl Fn(OpNumber) -> bool,
    ) {
        let mut entries = self.0.lock();
        for HeartbeatDetails { run, op, attempt, .. } in details {
            let pending = (!is_open(*op)).then_some(PendingChange::Delete);
            entries.insert(
                (*run, *op),
                HeartbeatEntry { attempt: *attempt, pending, is_newer: true, is_stored: true },
            );
        }
    }

    /// Deletes the details of attempts whose ends a committed turn has recorded, and of the steps that it dropped.
    pub(in crate::worker) fn outcomes_committed(&self, run: RunId, events: &[Event], dropped: &[OpNumber]) {
        let mut entries = self.0.lock();
        if entries.is_empty() {
            return;
        }
        let ended = events.iter().filter_map(attempt_of).map(|(op, _)| op);
        for op in ended.chain(dropped.iter().copied()) {
            delete(&mut entries, (run, op));
        }
    }

    /// Deletes the details of a step.
    pub(crate) fn delete(&self, run: RunId, op: OpNumber) {
        delete(&mut self.0.lock(), (run, op));
    }

    /// Deletes the details of a run that has ended.
    pub(in crate::worker) fn run_ended(&self, run: RunId) {
        let mut entries = self.0.lock();
        for key in keys_of_run(&entries, run) {
            delete(&mut entries, key);
        }
    }

    /// Removes the entries of a run that the session does not hold any more. Pending deletions are still sent: the
    /// world executes them if the run has ended.
    pub(in crate::worker) fn run_released(&self, run: RunId) {
        let mut entries = self.0.lock();
        for key in keys_of_run(&entries, run) {
            if entries.get(&key).is_some_and(|entry| entry.pending != Some(PendingChange::Delete)) {
                entries.remove(&key);
            }
        }
    }

    /// Returns the changes for the next beat.
    pub(in crate::worker) fn pending_details(&self) -> Vec<HeartbeatDetails> {
        let mut entries = self.0.lock();
        let pending = entries.iter_mut().filter_map(|(&(run, op), entry)| {
            entry.is_newer = false;
            let details = match entry.pending.clone()? {
                PendingChange::Store(details) => Some(details),
                PendingChange::Delete => None,
            };
            Some(HeartbeatDetails { run, op, attempt: entry.attempt, details })
        });
        pending.collect()
    }

    /// Records that the world has stored these details. Details that attempts have reported since the beat began are
    /// sent with the next one.
    pub(in crate::worker) fn mark_stored(&self, details: &[HeartbeatDetails]) {
        let mut entries = self.0.lock();
        for HeartbeatDetails { run, op, details, .. } in details {
            let Some(entry) = entries.get_mut(&(*run, *op)) else { continue };
            entry.is_stored = details.is_some();
            if !entry.is_newer {
                entry.pending = None;
            }
            if !entry.is_stored && entry.pending.is_none() {
                entries.remove(&(*run, *op));
            }
        }
    }
}

/// The keys of a run's entries.
fn keys_of_run(entries: &HeartbeatEntries, run: RunId) -> Vec<(RunId, OpNumber)> {
    entries.range((run, OpNumber(0))..=(run, OpNumber(u64::MAX))).map(|(key, _)| *key).collect()
}

/// Deletes details: with the next beat if the world has stored them.
fn delete(entries: &mut HeartbeatEntries, key: (RunId, OpNumber)) {
    match entries.get_mut(&key) {
        Some(entry) if entry.is_stored => {
            entry.pending = Some(PendingChange::Delete);
            entry.is_newer = true;
        }
        Some(_) => drop(entries.remove(&key)),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId::from_bits(7);
    const OP: OpNumber = OpNumber(0);

    fn details(number: u32) -> Payload {
        Payload::json(&number).unwrap_or_else(|_| Payload::null())
    }

    fn pending(heartbeats: &Heartbeats) -> Vec<Option<Payload>> {
        heartbeats.pending_details().into_iter().map(|details| details.details).collect()
    }

    #[test]
    fn details_reported_during_a_beat_are_sent_with_the_next_one() {
        let heartbeats = Heartbeats::default();
        heartbeats.put(RUN, OP, 1, details(1));
        let beat = heartbeats.pending_details();
        heartbeats.put(RUN, OP, 1, details(2));
        heartbeats.mark_stored(&beat);
        assert_eq!(pending(&heartbeats), [Some(details(2))]);
    }

    #[test]
    fn the_details_of_a_lost_beat_are_sent_again() {
        let heartbeats = Heartbeats::default();
        heartbeats.put(RUN, OP, 1, details(1));
        assert_eq!(pending(&heartbeats), [Some(details(1))]);
        assert_eq!(pending(&heartbeats), [Some(details(1))]);
    }

    #[test]
    fn an_end_deletes_stored_details_and_discards_others() {
        let heartbeats = Heartbeats::default();
        let ended = [Event::StepCompleted { op: OP, output: Payload::null() }];
        heartbeats.put(RUN, OP, 1, details(1));
        heartbeats.outcomes_committed(RUN, &ended, &[]);
        assert_eq!(pending(&heartbeats), []);
        heartbeats.put(RUN, OP, 1, details(1));
        heartbeats.mark_stored(&heartbeats.pending_details());
        heartbeats.outcomes_committed(RUN, &ended, &[]);
        let beat = heartbeats.pending_details();
        assert_eq!(beat.iter().map(|deletion| deletion.details.clone()).collect::<Vec<_>>(), [None]);
        heartbeats.mark_stored(&beat);
        assert!(heartbeats.0.lock().is_empty());
    }

    #[test]
    fn the_details_of_dropped_steps_and_ended_runs_are_deleted() {
        let heartbeats = Heartbeats::default();
        for op in 0..3 {
            heartbeats.put(RUN, OpNumber(op), 1, details(1));
        }
        heartbeats.mark_stored(&heartbeats.pending_details());
        heartbeats.outcomes_committed(RUN, &[], &[OP]);
        assert_eq!(pending(&heartbeats), [None], "dropped");
        heartbeats.run_ended(RUN);
        heartbeats.run_released(RUN);
        let beat = heartbeats.pending_details();
        assert!(beat.len() == 3 && beat.iter().all(|deletion| deletion.details.is_none()), "{beat:?}");
        heartbeats.mark_stored(&beat);
        assert!(heartbeats.0.lock().is_empty());
    }
}
