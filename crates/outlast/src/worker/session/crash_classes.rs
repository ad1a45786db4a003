//! Crash classes: how many suspects this worker holds, and which runs its next claim may return.
//!
//! A worker holds runs of only one of the classes 2, 3 and 4 at a time. The first claim of a session returns a run of
//! class 4 alone, if there is one: while this run is on trial, the worker claims nothing else.

use outlast_core::limits::CRASH_TRIAL;
use outlast_core::takeover::{CRASH_CLASS_MAX, class_room, crash_class, is_suspect};
use outlast_core::{Claimed, RunId, SuspectRoom, Timestamp};

const CLASSES: usize = CRASH_CLASS_MAX as usize + 1;

/// The number of live runs by crash class, and the state of the session's first claim.
#[derive(Debug, Default)]
pub(in crate::worker) struct CrashClasses {
    counts: [usize; CLASSES],
    first_claim: FirstClaim,
}

/// The state of the first claim of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FirstClaim {
    /// It has not returned yet.
    #[default]
    NotReturned,
    /// It returned a run of class 4, which the worker holds alone until the run commits or this time has come.
    Trial { run: RunId, until: Timestamp },
    /// It returned no run for a trial, or the trial has ended.
    Over,
}

impl CrashClasses {
    pub(in crate::worker) fn add(&mut self, crashes: u32) {
        self.counts[class_index(crashes)] += 1;
    }

    pub(in crate::worker) fn remove(&mut self, run: RunId, crashes: u32) {
        self.counts[class_index(crashes)] -= 1;
        self.end_trial(run);
    }

    /// Changes the number of crashes of a run that has committed.
    pub(in crate::worker) fn change(&mut self, run: RunId, before: u32, crashes: u32) {
        self.counts[class_index(before)] -= 1;
        self.counts[class_index(crashes)] += 1;
        self.end_trial(run);
    }

    fn end_trial(&mut self, run: RunId) {
        if matches!(self.first_claim, FirstClaim::Trial { run: on_trial, .. } if on_trial == run) {
            self.first_claim = FirstClaim::Over;
        }
    }

    /// The class of the suspects that the worker holds.
    fn suspect_class(&self) -> Option<u32> {
        (0..=CRASH_CLASS_MAX).rev().find(|class| is_suspect(*class) && self.counts[class_index(*class)] > 0)
    }

    /// Which suspects the next claim may return, for a worker that holds at most `room` runs.
    pub(in crate::worker) fn room(&self, room: usize) -> SuspectRoom {
        if self.first_claim == FirstClaim::NotReturned {
            return SuspectRoom::TrialFirst { room };
        }
        let Some(class) = self.suspect_class() else { return SuspectRoom::AnyClass { room } };
        match class_room(class, room).saturating_sub(self.counts[class_index(class)]) {
            0 => SuspectRoom::Nothing,
            room => SuspectRoom::Class { class, room },
        }
    }

    /// Records that a claim has returned. The first one may have returned a run for a trial.
    pub(in crate::worker) fn claim_returned(&mut self, claimed: &[Claimed], now: Timestamp) {
        if self.first_claim != FirstClaim::NotReturned {
            return;
        }
        self.first_claim = match claimed {
            [only] if crash_class(only.columns.crashes) == CRASH_CLASS_MAX => {
                FirstClaim::Trial { run: only.run, until: now.plus(CRASH_TRIAL) }
            }
            _ => FirstClaim::Over,
        };
    }

    /// The time until which the worker claims nothing, because a run is on trial.
    pub(in crate::worker) fn trial_until(&mut self, now: Timestamp) -> Option<Timestamp> {
        match self.first_claim {
            FirstClaim::Trial { until, .. } if until > now => Some(until),
            FirstClaim::Trial { .. } => {
                self.first_claim = FirstClaim::Over;
                None
            }
            _ => None,
        }
    }

    /// Whether a run may be taken at its start: not before the first claim has returned, and not during a trial. The
    /// time is read only if a trial is in progress.
    pub(in crate::worker) fn takes_starts(&mut self, now: impl FnOnce() -> Timestamp) -> bool {
        match self.first_claim {
            FirstClaim::NotReturned => false,
            FirstClaim::Trial { .. } => self.trial_until(now()).is_none(),
            FirstClaim::Over => true,
        }
    }
}

fn class_index(crashes: u32) -> usize {
    crash_class(crashes) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(runs: &[u32]) -> CrashClasses {
        let mut classes = CrashClasses::default();
        classes.claim_returned(&[], Timestamp::from_micros(0));
        runs.iter().for_each(|crashes| classes.add(*crashes));
        classes
    }

    #[test]
    fn a_worker_holds_suspects_of_one_class_at_a_time() {
        assert_eq!(holding(&[0, 1]).room(100), SuspectRoom::AnyClass { room: 100 });
        assert_eq!(holding(&[0, 2]).room(100), SuspectRoom::Class { class: 2, room: 63 });
        assert_eq!(holding(&[3]).room(100), SuspectRoom::Class { class: 3, room: 15 });
        assert_eq!(holding(&[4, 0]).room(100), SuspectRoom::Nothing);
    }

    #[test]
    fn the_first_claim_asks_for_a_run_for_a_trial() {
        let mut classes = CrashClasses::default();
        assert_eq!(classes.room(10), SuspectRoom::TrialFirst { room: 10 });
        assert!(!classes.takes_starts(|| Timestamp::from_micros(0)));
        classes.claim_returned(&[], Timestamp::from_micros(0));
        assert_eq!(classes.room(10), SuspectRoom::AnyClass { room: 10 });
        assert!(classes.takes_starts(|| Timestamp::from_micros(0)));
    }
}
