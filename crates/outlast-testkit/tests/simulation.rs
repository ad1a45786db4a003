//! The simulation in the tests: some seeds, each twice, and those that found bugs.

use std::sync::atomic::{AtomicU64, Ordering};

use outlast_testkit::sim::{DEFERRED_SEEDS, QUEUED_SEEDS, Situation, Tally, check_seed, simulate};

/// Seeds of one run of the tests.
const SEEDS: u64 = 500;

/// Simulates seeds on two threads; each seed has one of them to itself.
fn check_all(seeds: std::ops::Range<u64>) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut total = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return total;
            }
            match check_seed(seed) {
                Ok(tally) => total.add(&tally),
                Err(report) => panic!("{report}"),
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let mut total = work();
        total.add(&other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        total
    })
}

/// Coverage must not disappear silently: the seeds come to each situation that they can come to.
#[track_caller]
fn assert_covered(total: &Tally, is_reachable: impl Fn(Situation) -> bool) {
    let wanted = Situation::ALL.into_iter().filter(|situation| is_reachable(*situation));
    let missing: Vec<_> = wanted.filter(|situation| total.coverage.count(*situation) == 0).collect();
    assert!(missing.is_empty(), "no seed came to {missing:?}:\n{}", total.coverage);
}

#[test]
fn the_engine_keeps_its_promises_whatever_goes_wrong() {
    let total = check_all(0..SEEDS);
    // The seeds are worth simulating.
    assert!(total.crashes > SEEDS && total.freezes > SEEDS / 4 && total.takeovers > SEEDS, "{total}");
    assert!(total.fenced > 0 && total.conflicts > 0 && total.repeats > 0, "{total}");
    assert!(total.attempts > 5 * SEEDS && total.attempts_again > SEEDS / 5, "{total}");
    assert_covered(&total, |situation| !situation.needs_queued_seeds() && !situation.needs_deferred_seeds());
}

#[test]
fn the_engine_keeps_its_promises_when_steps_are_queued() {
    let total = check_all(QUEUED_SEEDS..QUEUED_SEEDS + SEEDS / 2);
    assert!(total.crashes > SEEDS / 2 && total.takeovers > SEEDS / 2, "{total}");
    assert!(total.attempts > 2 * SEEDS && total.attempts_again > SEEDS / 10, "{total}");
    assert!(total.coverage.count(Situation::QueuedStep) > SEEDS / 2, "{}", total.coverage);
}

#[test]
fn the_engine_keeps_its_promises_when_effects_on_other_runs_come_later() {
    let total = check_all(DEFERRED_SEEDS..DEFERRED_SEEDS + SEEDS / 2);
    assert!(total.crashes > SEEDS / 2 && total.takeovers > SEEDS / 2, "{total}");
    assert_covered(&total, |situation| {
        // These are rare, and the other seeds come to them.
        let is_rare = matches!(situation, Situation::GivenBack | Situation::ShieldedDuringCancel);
        !situation.needs_earlier_seeds() && !is_rare
    });
}

#[test]
fn another_seed_is_another_simulation() {
    assert_ne!(simulate(1, false).digest, simulate(2, false).digest);
}

/// Seeds that found a bug, kept for ever.
#[track_caller]
fn check_seeds(seeds: &[u64]) {
    for seed in seeds {
        if let Err(report) = check_seed(*seed) {
            panic!("{report}");
        }
    }
}

/// A step that waited for its limit was attempted though the workflow had dropped it meanwhile.
#[test]
fn a_dropped_step_that_waits_for_its_limit_is_not_attempted() {
    check_seeds(&[62, 70, 95, 173, 181, 360, 714, 835, 986]);
}

/// A worker that handed back a run it did not know, after the clock was set back, took the run back in time.
#[test]
fn a_run_that_is_handed_back_does_not_go_back_in_time() {
    check_seeds(&[2249, 2505]);
}

/// A worker that compared a run with its replay took the turns of the one that had taken it over for a
/// divergence.
#[test]
fn turns_of_others_are_no_divergence() {
    check_seeds(&[11]);
}

/// A build that left a run stuck never gets it again, so another must come: these had none.
#[test]
fn a_mended_build_gets_what_another_left_stuck() {
    check_seeds(&[6971, 16675, 24150, 24572, 26565, 28653]);
}
