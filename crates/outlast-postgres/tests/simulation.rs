//! The programs, clients, workers and faults of the simulation on a real server. `cargo xtask sim` runs them on the
//! world in memory.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::ops::Range;
use std::sync::Arc;

use outlast_conformance::simulation::{
    CONTROLLED_SEEDS, ORCHESTRATED_SEEDS, QUEUED_SEEDS, Statistics, check_in_real_time, check_seed_on,
};
use outlast_core::World;
use outlast_postgres::{PostgresOptions, PostgresWorld};

/// The number of seeds of one test in virtual time.
const SEEDS: u64 = 6;

/// The number of seeds of one test with sagas, generations, tokens, streams and control: their programs are longer.
const LONG_SEEDS: u64 = 3;

/// The number of seeds of the test in real time.
const REAL_SEEDS: u64 = 2;

/// The URL of a new schema on the shared test server.
fn new_schema_url() -> String {
    throwaway::postgres::new_schema_url("sim") + "&pool=2"
}

fn open(url: &str, options: PostgresOptions) -> Arc<dyn World> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    Arc::new(runtime.block_on(PostgresWorld::open(url, options)).unwrap())
}

/// Checks random seeds, or those from `OUTLAST_SEED` on: one, or `OUTLAST_SEEDS` of them.
fn check(test: &str, count: u64, seeds: Range<u64>, check: impl Fn(u64, &str) -> Result<Statistics, String>) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let chosen: Vec<u64> = match number("OUTLAST_SEED") {
        Some(seed) => (seed..seed + number("OUTLAST_SEEDS").unwrap_or(1)).collect(),
        None => (0..count).map(|_| fastrand::u64(seeds.clone())).collect(),
    };
    let mut total = Statistics::default();
    for seed in chosen {
        println!("seed: OUTLAST_SEED={seed}");
        let command = format!("OUTLAST_SEED={seed} cargo xtask test -p outlast-postgres {test}");
        match check(seed, &command) {
            Ok(statistics) => total.add(&statistics),
            Err(report) => panic!("{report}"),
        }
    }
    println!("{total:?}");
    assert!(total.runs > 0 && total.events > 0, "{total:?}");
}

fn in_virtual_time(seed: u64, command: &str) -> Result<Statistics, String> {
    check_seed_on(seed, |clock| open(&new_schema_url(), PostgresOptions::new().clock(clock)), command)
}

fn in_real_time(seed: u64, command: &str) -> Result<Statistics, String> {
    let url = new_schema_url();
    check_in_real_time(seed, || open(&url, PostgresOptions::new()))
        .map_err(|report| format!("{report}\nto repeat it: {command}"))
}

#[test]
fn random_programs_keep_their_promises_with_random_faults() {
    const NAME: &str = "random_programs_keep_their_promises_with_random_faults";
    check(NAME, SEEDS, 0..QUEUED_SEEDS, in_virtual_time);
}

#[test]
fn random_programs_keep_their_promises_when_steps_are_queued() {
    const NAME: &str = "random_programs_keep_their_promises_when_steps_are_queued";
    check(NAME, SEEDS, QUEUED_SEEDS..2 * QUEUED_SEEDS, in_virtual_time);
}

#[test]
fn orchestrated_programs_keep_their_promises_with_random_faults() {
    const NAME: &str = "orchestrated_programs_keep_their_promises_with_random_faults";
    check(NAME, LONG_SEEDS, ORCHESTRATED_SEEDS..CONTROLLED_SEEDS, in_virtual_time);
}

#[test]
fn controlled_programs_keep_their_promises_with_random_faults() {
    const NAME: &str = "controlled_programs_keep_their_promises_with_random_faults";
    check(NAME, LONG_SEEDS, CONTROLLED_SEEDS..CONTROLLED_SEEDS + QUEUED_SEEDS, in_virtual_time);
}

#[test]
fn random_programs_keep_their_promises_in_real_time() {
    const NAME: &str = "random_programs_keep_their_promises_in_real_time";
    check(NAME, REAL_SEEDS, 0..2 * QUEUED_SEEDS, in_real_time);
}
