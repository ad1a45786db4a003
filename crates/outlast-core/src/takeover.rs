//! Takeover: what happens to the runs of a crashed worker.
//!
//! A run that crashes its worker must be found without slowing down the runs that the worker held at the same time. So
//! each run counts the crashes that it may have caused, and its *crash class* determines how it is executed from then
//! on:
//!
//! | class | crashes | how it is executed |
//! |---|---|---|
//! | 0, 1 | 0, 1 | like any run |
//! | 2 | 2 | together with others of its class: a tenth of the worker's capacity, but at least 64 |
//! | 3 | 3 | at most 16 of its class at a time |
//! | 4 | 4 and more | one of its class at a time |
//!
//! A worker executes runs of one of the classes 2, 3 and 4 at a time, besides runs of the classes 0 and 1. A crash
//! counts against the runs of the highest class that the session held if that is 2 or 3: runs of other classes are not
//! suspected. If the highest class is 0, 1 or 4, it counts against every run, because a single run of class 4 may not
//! be the cause.
//! The fifth crash makes a run stuck. It counts only if the session held no other run.

use crate::limits::{CRASH_CLASS_2_RUNS_MIN, CRASH_CLASS_3_RUNS_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use crate::run::{Stuck, StuckReason};
use crate::work::SuspectRoom;

/// The highest crash class.
pub const CRASH_CLASS_MAX: u32 = 4;

/// The crash class of a run with this number of crashes.
pub fn crash_class(crashes: u32) -> u32 {
    crashes.min(CRASH_CLASS_MAX)
}

/// Whether a run with this number of crashes is executed separately from others.
pub fn is_suspect(crashes: u32) -> bool {
    crashes >= SUSPECT_CRASHES
}

/// The number of runs of a crash class that a worker with a capacity of `room` runs executes at the same time.
pub fn class_room(class: u32, room: usize) -> usize {
    match class {
        0 | 1 => room,
        2 => (room / 10).max(CRASH_CLASS_2_RUNS_MIN).min(room),
        3 => CRASH_CLASS_3_RUNS_MAX.min(room),
        _ => room.min(1),
    }
}

/// Decides which runs of the higher crash classes one claim assigns, in the order in which it examines them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    room: SuspectRoom,
    /// The class of the runs that were assigned, and how many more may be assigned.
    chosen: Option<(u32, usize)>,
}

impl Admission {
    /// For a claim that has not assigned a run yet. The trial of a new session is not decided here: it first looks for
    /// a run of the last class, and otherwise assigns any class.
    pub fn new(room: SuspectRoom) -> Self {
        let chosen = match room {
            SuspectRoom::Class { class, room } => Some((class, room)),
            _ => None,
        };
        Self { room, chosen }
    }

    /// Whether the claim may assign a run with this number of crashes at all, now or later.
    pub fn allows(&self, crashes: u32) -> bool {
        if !is_suspect(crashes) {
            return true;
        }
        match (self.chosen, self.room) {
            (Some((class, left)), _) => class == crash_class(crashes) && left > 0,
            (None, SuspectRoom::AnyClass { room } | SuspectRoom::TrialFirst { room }) => room > 0,
            (None, _) => false,
        }
    }

    /// Whether the claim assigns the next run, which has this number of crashes.
    pub fn admit(&mut self, crashes: u32) -> bool {
        if !self.allows(crashes) {
            return false;
        }
        if is_suspect(crashes) {
            let class = crash_class(crashes);
            let left = self.chosen.map_or_else(|| self.class_room(class), |(_, left)| left);
            self.chosen = Some((class, left.saturating_sub(1)));
        }
        true
    }

    /// The maximum number of runs of a class that the claim assigns.
    pub fn class_room(&self, class: u32) -> usize {
        match self.room {
            SuspectRoom::AnyClass { room } | SuspectRoom::TrialFirst { room } => class_room(class, room),
            SuspectRoom::Class { room, .. } => room,
            SuspectRoom::Nothing => 0,
        }
    }
}

/// The runs that a crashed session held, in summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRuns {
    /// The number of runs.
    pub runs: u64,
    /// The highest crash class among them.
    pub highest_class: u32,
}

impl HeldRuns {
    /// The summary of runs with these crash counts.
    pub fn of(crashes: impl IntoIterator<Item = u32>) -> Self {
        crashes.into_iter().fold(Self { runs: 0, highest_class: 0 }, |held_runs, crashes| Self {
            runs: held_runs.runs + 1,
            highest_class: held_runs.highest_class.max(crash_class(crashes)),
        })
    }
}

/// The effect of a worker's crash on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The number of crashes of the run from now on.
    pub crashes: u32,
    /// Whether the run becomes stuck, because the number exceeds the limit.
    pub is_poison: bool,
}

/// The effect of a session's crash on one of its runs.
pub fn count_crash(crashes: u32, held_runs: HeldRuns) -> Crash {
    let class = crash_class(crashes);
    let is_counted = match held_runs.highest_class {
        SUSPECT_CRASHES..CRASH_CLASS_MAX => class == held_runs.highest_class,
        _ => class < CRASH_CLASS_MAX || held_runs.runs == 1,
    };
    if !is_counted {
        return Crash { crashes, is_poison: false };
    }
    let crashes = crashes.saturating_add(1).min(POISON_CRASHES);
    Crash { crashes, is_poison: crashes >= POISON_CRASHES }
}

/// Why a run is stuck that crashed its worker too often.
pub fn poison(build: &str) -> Stuck {
    Stuck { reason: StuckReason::Poison, message: poison_message(), build: build.into() }
}

/// The message of a run that crashed its worker too often.
pub fn poison_message() -> String {
    format!(
        "its worker crashed {POISON_CRASHES} times while it held this run, the last time with no other run; fix what \
         ends the process, then deploy the fix or resume the run"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(session: &[u32]) -> Vec<u32> {
        let held_runs = HeldRuns::of(session.iter().copied());
        session.iter().map(|crashes| count_crash(*crashes, held_runs).crashes).collect()
    }

    #[test]
    fn a_crash_counts_against_the_highest_class_aboard() {
        assert_eq!(after(&[0, 0, 1]), [1, 1, 2]);
        assert_eq!(after(&[0, 1, 2, 2]), [0, 1, 3, 3]);
        assert_eq!(after(&[0, 3]), [0, 4]);
    }

    #[test]
    fn a_crash_beside_a_run_of_the_last_class_counts_against_the_others() {
        assert_eq!(after(&[0, 4]), [1, 4]);
        assert_eq!(after(&[4]), [5]);
        assert_eq!(after(&[5]), [5]);
    }

    #[test]
    fn a_run_is_stuck_after_the_limit_and_only_when_it_was_alone() {
        let alone = HeldRuns { runs: 1, highest_class: 4 };
        let beside = HeldRuns { runs: 2, highest_class: 4 };
        assert!(count_crash(POISON_CRASHES - 1, alone).is_poison);
        assert!(!count_crash(POISON_CRASHES - 1, beside).is_poison);
        assert!(!count_crash(POISON_CRASHES - 2, HeldRuns { runs: 1, highest_class: 3 }).is_poison);
        let again = count_crash(POISON_CRASHES, alone);
        assert_eq!(again, Crash { crashes: POISON_CRASHES, is_poison: true });
        assert!(!count_crash(POISON_CRASHES, beside).is_poison);
        assert!(poison("b").message.contains(&format!("crashed {POISON_CRASHES} times")));
    }

    #[test]
    fn classes_have_room_for_fewer_and_fewer_runs() {
        assert_eq!([0, 2, 3, 4, 5].map(|class| class_room(class, 10_000)), [10_000, 1_000, 16, 1, 1]);
        assert_eq!([2, 3, 4].map(|class| class_room(class, 100)), [64, 16, 1]);
        assert_eq!([2, 3, 4].map(|class| class_room(class, 4)), [4, 4, 1]);
    }
}
