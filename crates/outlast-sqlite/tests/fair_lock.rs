//! Processes that write to one file take turns: nobody starves.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Place, block_on, new_start};
use outlast_core::{RunId, World};

#[test]
fn a_second_process_writes_while_the_first_never_rests() {
    let place = Place::new();
    let (busy, other) = (place.open(), place.open());
    let (is_over, next) = (AtomicBool::new(false), AtomicU64::new(1_000_000));
    std::thread::scope(|scope| {
        // Several at once, so that the next transaction is there when one ends.
        for _ in 0..4 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let run = || RunId::from_bits(next.fetch_add(1, Ordering::Relaxed).into());
                    block_on(busy.start((0..50).map(|_| new_start(run())).collect())).unwrap();
                }
            });
        }
        for run in 1..=200 {
            block_on(other.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn one_who_stands_in_line_and_does_not_move_stops_nobody() {
    let place = Place::new();
    let world = place.open();
    let frozen =
        std::fs::File::options().write(true).open(place.path().with_file_name("world.db-line")).unwrap();
    frozen.lock().unwrap();
    for run in 1..=50 {
        block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
    }
}
