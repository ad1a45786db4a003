//! The simulation in the tests: some seeds, each twice, and those that found bugs.

use std::sync::atomic::{AtomicU64, Ordering};

use outlast_testkit::sim::{Tally, check_seed, simulate};

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

#[test]
fn the_engine_keeps_its_promises_whatever_goes_wrong() {
    let total = check_all(0..SEEDS);
    // The seeds are worth simulating.
    assert!(total.crashes > SEEDS && total.freezes > SEEDS / 4 && total.takeovers > SEEDS, "{total:?}");
    assert!(total.fenced > 0 && total.conflicts > 0 && total.repeats > 0, "{total:?}");
    assert!(total.attempts > 10 * SEEDS && total.attempts_again > SEEDS / 2, "{total:?}");
}

#[test]
fn another_seed_is_another_simulation() {
    assert_ne!(simulate(1, false).digest, simulate(2, false).digest);
}
