//! The counters of a worker.

use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;

use crate::child::{url, wait_until_true};

static FAILURES: AtomicU32 = AtomicU32::new(0);

#[step(retry = "constant")]
async fn shaky() -> Result<u32, StepError> {
    if FAILURES.fetch_add(1, Ordering::Relaxed) == 0 {
        return Err(StepError::retry_after("not yet", "10ms"));
    }
    Ok(7)
}

#[workflow]
async fn careful(ctx: Context) -> Result<u32, Error> {
    let seven = ctx.step(shaky, ()).await?;
    let more: u32 = ctx.hook("more").await?;
    Ok(seven + more)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_counts_its_turns_commits_claims_replays_and_attempts() {
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&url(folder.path())).await.unwrap();
    let client = Client::new(world.clone());
    let first = Worker::builder(world.clone()).register((careful, shaky)).start().await.unwrap();
    let run = client.start(careful, ()).await.unwrap();
    wait_until_true("the run to wait", || async {
        run.view().await.unwrap().waits.iter().any(|wait| wait.op().0 == 1)
    })
    .await;
    // The world stores the wait slightly before the worker counts it.
    wait_until_true("the worker to have let it go", || async { first.metrics().live_runs == 0 }).await;
    let metrics = first.metrics();
    assert_eq!((metrics.attempts_started, metrics.attempts_failed), (2, 1), "{metrics:?}");
    assert_eq!((metrics.replays, metrics.cache_misses, metrics.live_runs), (0, 0, 0), "{metrics:?}");
    assert!(metrics.turns >= 3 && metrics.commits >= 3 && metrics.batch_max >= 1, "{metrics:?}");
    assert!(metrics.batch_mean >= 1.0, "{metrics:?}");
    let times = metrics.commit_time;
    assert!(times.count == metrics.commits && times.p50 <= times.p99 && times.p99 <= times.max, "{times:?}");
    first.stop().await.unwrap();

    let second = Worker::builder(world).register((careful, shaky)).start().await.unwrap();
    run.send("more", &1).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 8);
    let metrics = second.metrics();
    assert_eq!((metrics.replays, metrics.cache_misses, metrics.cache_hits), (1, 1, 0), "{metrics:?}");
    assert!(metrics.claims >= 1 && metrics.claimed_runs == 1 && metrics.attempts_started == 0, "{metrics:?}");
    wait_until_true("a beat", || async { second.metrics().beats > 0 }).await;
    assert_eq!(second.metrics().held_runs, 0);
    second.stop().await.unwrap();
}
