//! Heartbeats: the details that running attempts gave, on their way to the world.
//!
//! They travel with the worker's beat, so that another worker gets them when this one is lost. An attempt without
//! details has no entry here and costs nothing.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use outlast_core::{Codec, Event, HeartbeatDetails, OpNumber, Payload, RunId};
use parking_lot::Mutex;

use super::fact::attempt_of;

/// The details of the running attempts of a session.
#[derive(Debug, Default)]
pub(crate) struct Heartbeats(Mutex<Entries>);

type Entries = BTreeMap<(RunId, OpNumber), Entry>;

#[derive(Debug)]
struct Entry {
    attempt: u32,
    /// What the world does not have yet.
    pending: Option<Pending>,
    /// Whether that is newer than the beat that is under way.
    is_newer: bool,
    /// Whether the world has details of this step.
    is_stored: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Pending {
    /// Plain details, to be stored.
    Details(Payload),
    /// What is stored is not needed any more.
    Forget,
}

impl Heartbeats {
    /// An attempt of a run that the session holds gave these details.
    pub(crate) fn put(&self, run: RunId, op: OpNumber, attempt: u32, details: Payload) {
        let mut entries = self.0.lock();
        let entry = entries.entry((run, op)).or_insert(Entry {
            attempt,
            pending: None,
            is_newer: true,
            is_stored: false,
        });
        entry.attempt = attempt;
        entry.is_newer = true;
        entry.pending = Some(Pending::Details(details));
    }

    /// What an attempt gave that is over. What the world has of it is kept until its end is committed.
    pub(crate) fn drop_unsent(&self, run: RunId, op: OpNumber) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(&(run, op)) else { return };
        if !entry.is_stored {
            entries.remove(&(run, op));
        } else if entry.pending != Some(Pending::Forget) {
            entry.pending = None;
        }
    }

    /// A run was claimed, and the world has these details of it. Those of steps that are over are not needed.
    pub(super) fn claimed(&self, details: &[HeartbeatDetails], is_open: impl Fn(OpNumber) -> bool) {
        let mut entries = self.0.lock();
        for HeartbeatDetails { run, op, attempt, .. } in details {
            let pending = (!is_open(*op)).then_some(Pending::Forget);
            entries
                .insert((*run, *op), Entry { attempt: *attempt, pending, is_newer: true, is_stored: true });
        }
    }

    /// A turn with these events was committed: what it says of attempts is in the history.
    pub(super) fn committed(&self, run: RunId, events: &[Event], dropped: &[OpNumber]) {
        let mut entries = self.0.lock();
        if entries.is_empty() {
            return;
        }
        let ended = events.iter().filter_map(attempt_of).map(|(op, _)| op);
        for op in ended.chain(dropped.iter().copied()) {
            forget(&mut entries, (run, op));
        }
    }

    /// Nobody needs what an attempt at this step said.
    pub(crate) fn forget(&self, run: RunId, op: OpNumber) {
        forget(&mut self.0.lock(), (run, op));
    }

    /// The run has ended: nobody needs what its attempts said.
    pub(super) fn ended(&self, run: RunId) {
        let mut entries = self.0.lock();
        for key in of_run(&entries, run) {
            forget(&mut entries, key);
        }
    }

    /// The session does not hold the run any more. The world still forgets what it has of steps that are over, if
    /// the run has ended.
    pub(super) fn released(&self, run: RunId) {
        let mut entries = self.0.lock();
        for key in of_run(&entries, run) {
            if entries.get(&key).is_some_and(|entry| entry.pending != Some(Pending::Forget)) {
                entries.remove(&key);
            }
        }
    }

    /// What the next beat brings to the world, encoded.
    pub(super) fn pending(&self, codec: &dyn Codec) -> Vec<HeartbeatDetails> {
        let pending: Vec<_> = {
            let mut entries = self.0.lock();
            let pending = entries.iter_mut().filter_map(|(key, entry)| {
                entry.is_newer = false;
                Some((*key, entry.attempt, entry.pending.clone()?))
            });
            pending.collect()
        };
        let encoded = pending.into_iter().filter_map(|((run, op), attempt, pending)| {
            let details = match pending {
                Pending::Details(plain) => Some(encoded(codec, plain)?),
                Pending::Forget => None,
            };
            Some(HeartbeatDetails { run, op, attempt, details })
        });
        encoded.collect()
    }

    /// The world has these. What attempts gave since the beat is sent again with the next one.
    pub(super) fn stored(&self, details: &[HeartbeatDetails]) {
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

/// The entries of a run.
fn of_run(entries: &Entries, run: RunId) -> Vec<(RunId, OpNumber)> {
    entries.range((run, OpNumber(0))..=(run, OpNumber(u64::MAX))).map(|(key, _)| *key).collect()
}

/// What the world has is forgotten with the next beat, what it does not have is dropped.
fn forget(entries: &mut Entries, key: (RunId, OpNumber)) {
    match entries.get_mut(&key) {
        Some(entry) if entry.is_stored => {
            entry.pending = Some(Pending::Forget);
            entry.is_newer = true;
        }
        Some(_) => drop(entries.remove(&key)),
        None => {}
    }
}

/// The details as stored. They are only help: a codec that fails or panics must not stop the beat.
fn encoded(codec: &dyn Codec, plain: Payload) -> Option<Payload> {
    catch_unwind(AssertUnwindSafe(|| codec.encode(plain))).ok()?.ok()
}

#[cfg(test)]
mod tests {
    use outlast_core::PlainJson;

    use super::*;

    const RUN: RunId = RunId::from_bits(7);
    const OP: OpNumber = OpNumber(0);

    fn details(number: u32) -> Payload {
        Payload::json(&number).unwrap_or_else(|_| Payload::null())
    }

    fn pending(heartbeats: &Heartbeats) -> Vec<Option<Payload>> {
        heartbeats.pending(&PlainJson).into_iter().map(|details| details.details).collect()
    }

    #[test]
    fn what_is_given_during_a_beat_is_sent_with_the_next_one() {
        let heartbeats = Heartbeats::default();
        heartbeats.put(RUN, OP, 1, details(1));
        let beat = heartbeats.pending(&PlainJson);
        heartbeats.put(RUN, OP, 1, details(2));
        heartbeats.stored(&beat);
        assert_eq!(pending(&heartbeats), [Some(details(2))]);
    }

    #[test]
    fn what_a_lost_beat_brought_is_sent_again() {
        let heartbeats = Heartbeats::default();
        heartbeats.put(RUN, OP, 1, details(1));
        assert_eq!(pending(&heartbeats), [Some(details(1))]);
        assert_eq!(pending(&heartbeats), [Some(details(1))]);
    }

    #[test]
    fn an_end_forgets_what_is_stored_and_drops_what_is_not() {
        let heartbeats = Heartbeats::default();
        let ended = [Event::StepCompleted { op: OP, output: Payload::null() }];
        heartbeats.put(RUN, OP, 1, details(1));
        heartbeats.committed(RUN, &ended, &[]);
        assert_eq!(pending(&heartbeats), []);
        heartbeats.put(RUN, OP, 1, details(1));
        heartbeats.stored(&heartbeats.pending(&PlainJson));
        heartbeats.committed(RUN, &ended, &[]);
        let beat = heartbeats.pending(&PlainJson);
        assert_eq!(beat.iter().map(|forget| forget.details.clone()).collect::<Vec<_>>(), [None]);
        heartbeats.stored(&beat);
        assert!(heartbeats.0.lock().is_empty());
    }

    #[test]
    fn what_steps_said_that_were_dropped_or_whose_run_has_ended_is_forgotten() {
        let heartbeats = Heartbeats::default();
        for op in 0..3 {
            heartbeats.put(RUN, OpNumber(op), 1, details(1));
        }
        heartbeats.stored(&heartbeats.pending(&PlainJson));
        heartbeats.committed(RUN, &[], &[OP]);
        assert_eq!(pending(&heartbeats), [None], "dropped");
        heartbeats.ended(RUN);
        heartbeats.released(RUN);
        let beat = heartbeats.pending(&PlainJson);
        assert!(beat.len() == 3 && beat.iter().all(|forget| forget.details.is_none()), "{beat:?}");
        heartbeats.stored(&beat);
        assert!(heartbeats.0.lock().is_empty());
    }
}
