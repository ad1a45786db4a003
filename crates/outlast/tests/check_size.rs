//! The check before a deploy needs little memory, however many runs are open.
//!
//! By default 1,000 runs with large inputs. `OUTLAST_OPEN_RUNS=100000` checks that many runs with small inputs.

#![cfg(target_os = "linux")]
#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast::prelude::*;

/// How many runs are started at once.
const BATCH: usize = 500;

/// How much the memory of the process may grow during the check. All large inputs together have 100 MiB.
const GROWTH_MB_MAX: u64 = 40;

#[workflow]
async fn waits(ctx: Context, _text: String) -> Result<(), Error> {
    ctx.hook("go").await
}

/// The resident memory of this process without mapped files, such as that of the world, in MiB.
fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn many_open_runs_are_checked_in_bounded_memory_with_progress() {
    let many = std::env::var("OUTLAST_OPEN_RUNS").ok().map(|runs| runs.parse::<usize>().unwrap());
    let (runs, bytes) = many.map_or((1_000, 100 * 1024), |runs| (runs, 100));
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&format!("sqlite:{}/runs.db", folder.path().display())).await.unwrap();
    let client = Client::new(world.clone());
    let input = "x".repeat(bytes);
    for first in (0..runs).step_by(BATCH) {
        let inputs = std::iter::repeat_n(input.clone(), BATCH.min(runs - first));
        assert!(client.start_many(waits, inputs).await.iter().all(Result::is_ok));
    }
    // A new connection: what starting the runs needed does not count.
    drop((client, world));
    let world = outlast::open(&format!("sqlite:{}/runs.db", folder.path().display())).await.unwrap();
    let before = resident_mb();
    let (peak, calls) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicU64::new(0)));
    let (seen, called) = (peak.clone(), calls.clone());
    let check = Worker::builder(world).register(waits).check().on_progress(move |_| {
        seen.fetch_max(resident_mb(), Ordering::Relaxed);
        called.fetch_add(1, Ordering::Relaxed);
    });
    let report = check.await.unwrap();
    assert_eq!((report.runs(), report.continued()), (runs as u64, runs as u64), "{report}");
    assert!(calls.load(Ordering::Relaxed) >= runs as u64 / 64, "the listener is called after every 64 runs");
    let growth = peak.load(Ordering::Relaxed) - before;
    println!("{runs} open runs: {growth} MiB");
    assert!(growth <= GROWTH_MB_MAX, "the check of {runs} runs needed {growth} MiB");
}
