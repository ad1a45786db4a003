//! Processes that write to one file take turns: none of them starves.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{TempDatabase, block_on, new_start};
use outlast_core::{RunId, World};

#[test]
fn a_second_process_can_write_while_the_first_one_writes_without_pause() {
    let database = TempDatabase::new();
    let (busy, other) = (database.open(), database.open());
    let (is_over, next) = (AtomicBool::new(false), AtomicU64::new(1_000_000));
    std::thread::scope(|scope| {
        // Several threads, so that the next transaction is already queued when one ends.
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
fn a_frozen_process_in_the_queue_does_not_block_others() {
    let database = TempDatabase::new();
    let world = database.open();
    let frozen =
        std::fs::File::options().write(true).open(database.path().with_file_name("world.db-line")).unwrap();
    frozen.lock().unwrap();
    for run in 1..=50 {
        block_on(world.start(vec![new_start(RunId::from_bits(run))])).unwrap().remove(0).unwrap();
    }
}
