//! Crash classes: which runs that may have crashed a worker this worker holds, and which it may take.
//!
//! A worker carries runs of one of the classes 2, 3 and 4 at a time. The first claim of a session takes a run of
//! class 4 alone, if there is one: as long as it is on trial, the worker takes nothing else.

use outlast_core::limits::CRASH_TRIAL;
use outlast_core::takeover::{CRASH_CLASS_MAX, class_room, crash_class, is_suspect};
use outlast_core::{Claimed, RunId, SuspectRoom, Timestamp};

const CLASSES: usize = CRASH_CLASS_MAX as usize + 1;

/// The runs that the worker holds, by crash class.
#[derive(Debug, Default)]
pub(super) struct CrashClasses {
    counts: [usize; CLASSES],
    first_claim: FirstClaim,
}

/// What became of the first claim of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstClaim {
    /// It was not answered yet.
    #[default]
    Unanswered,
    /// It brought a run of the last class, which is alone until it commits or this moment comes.
    Trial { run: RunId, until: Timestamp },
    /// It does not matter any more.
    Over,
}

impl CrashClasses {
    pub(super) fn add(&mut self, crashes: u32) {
        self.counts[place(crashes)] += 1;
    }

    pub(super) fn remove(&mut self, run: RunId, crashes: u32) {
        self.counts[place(crashes)] -= 1;
        self.end_trial(run);
    }

    /// A run has committed, and has so many crashes from now on.
    pub(super) fn change(&mut self, run: RunId, before: u32, crashes: u32) {
        self.counts[place(before)] -= 1;
        self.counts[place(crashes)] += 1;
        self.end_trial(run);
    }

    fn end_trial(&mut self, run: RunId) {
        if matches!(self.first_claim, FirstClaim::Trial { run: tried, .. } if tried == run) {
            self.first_claim = FirstClaim::Over;
        }
    }

    /// Whether the worker holds a run that is carried apart from others.
    pub(super) fn has_suspect(&self) -> bool {
        self.carried().is_some()
    }

    fn carried(&self) -> Option<u32> {
        (0..=CRASH_CLASS_MAX).rev().find(|class| is_suspect(*class) && self.counts[place(*class)] > 0)
    }

    /// What a claim may bring, for a worker with room for `room` runs in all.
    pub(super) fn room(&self, room: usize) -> SuspectRoom {
        if self.first_claim == FirstClaim::Unanswered {
            return SuspectRoom::TrialFirst { room };
        }
        let Some(class) = self.carried() else { return SuspectRoom::AnyClass { room } };
        match class_room(class, room).saturating_sub(self.counts[place(class)]) {
            0 => SuspectRoom::Nothing,
            room => SuspectRoom::Class { class, room },
        }
    }

    /// A claim was answered. The first one may have brought a run to be tried alone.
    pub(super) fn claim_answered(&mut self, claimed: &[Claimed], now: Timestamp) {
        if self.first_claim != FirstClaim::Unanswered {
            return;
        }
        self.first_claim = match claimed {
            [only] if crash_class(only.columns.crashes) == CRASH_CLASS_MAX => {
                FirstClaim::Trial { run: only.run, until: now.plus(CRASH_TRIAL) }
            }
            _ => FirstClaim::Over,
        };
    }

    /// Until when the worker takes nothing, because it tries a run alone.
    pub(super) fn trial_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        match self.first_claim {
            FirstClaim::Trial { until, .. } if until > now => Some(until),
            FirstClaim::Trial { .. } => {
                self.first_claim = FirstClaim::Over;
                None
            }
            _ => None,
        }
    }

    /// Whether a run may be taken at its start: not before it is known whether one is to be tried alone.
    /// The time is read only when it matters.
    pub(super) fn takes_starts(&mut self, now: impl FnOnce() -> Timestamp) -> bool {
        match self.first_claim {
            FirstClaim::Unanswered => false,
            FirstClaim::Trial { .. } => self.trial_until(now()).is_none(),
            FirstClaim::Over => true,
        }
    }
}

fn place(crashes: u32) -> usize {
    crash_class(crashes) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrying(runs: &[u32]) -> CrashClasses {
        let mut classes = CrashClasses::default();
        classes.claim_answered(&[], Timestamp::from_micros(0));
        runs.iter().for_each(|crashes| classes.add(*crashes));
        classes
    }

    #[test]
    fn a_worker_carries_one_class_of_suspects_at_a_time() {
        assert_eq!(carrying(&[0, 1]).room(100), SuspectRoom::AnyClass { room: 100 });
        assert_eq!(carrying(&[0, 2]).room(100), SuspectRoom::Class { class: 2, room: 63 });
        assert_eq!(carrying(&[3]).room(100), SuspectRoom::Class { class: 3, room: 15 });
        assert_eq!(carrying(&[4, 0]).room(100), SuspectRoom::Nothing);
    }

    #[test]
    fn the_first_claim_asks_for_a_run_to_be_tried_alone() {
        let mut classes = CrashClasses::default();
        assert_eq!(classes.room(10), SuspectRoom::TrialFirst { room: 10 });
        assert!(!classes.takes_starts(|| Timestamp::from_micros(0)));
        classes.claim_answered(&[], Timestamp::from_micros(0));
        assert_eq!(classes.room(10), SuspectRoom::AnyClass { room: 10 });
        assert!(classes.takes_starts(|| Timestamp::from_micros(0)));
    }
}
