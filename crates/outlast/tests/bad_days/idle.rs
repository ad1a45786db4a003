//! An idle worker makes almost no calls, and neither does a waiting client.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast::prelude::*;
use outlast::{SystemClock, World};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

use crate::child::{timed, wait_until_true};

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_makes_at_most_two_queries_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let (world, statements) = counting(&folder.path().join("world.db"));
    let worker = Worker::builder(world.clone()).register(greet).start().await.unwrap();
    let run = Client::new(world).start(greet, "Ada".to_owned()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "hello Ada");
    let beaten = |times: u64| {
        let worker = &worker;
        async move { worker.metrics().beats >= times }
    };
    wait_until_true("a beat", || beaten(1)).await;
    let before = statements.load(Ordering::Relaxed);
    let (_, time) = timed(wait_until_true("four beats", || beaten(5))).await;
    let made = statements.load(Ordering::Relaxed) - before;
    println!("{made} statements in {time:?}");
    let per_second = made as f64 / time.as_secs_f64();
    assert!(made > 0 && per_second <= 2.0, "{per_second:.2} statements per second");
    worker.stop().await.unwrap();
}

#[workflow]
async fn waits(ctx: Context) -> Result<(), Error> {
    ctx.hook::<()>("never").await
}

/// A world on a file, and the number of its statements.
fn counting(path: &Path) -> (Arc<dyn World>, Arc<AtomicU64>) {
    let statements = Arc::new(AtomicU64::new(0));
    let options = SqliteOptions::new(Arc::new(SystemClock)).count_statements(statements.clone());
    (Arc::new(SqliteWorld::open(path.to_str().unwrap(), options).unwrap()), statements)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_an_end_does_not_read_when_others_start_runs() {
    const STARTS: u64 = 300;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.db");
    let (world, statements) = counting(&path);
    let (url_in_file, _) = counting(&path);
    let client = Client::new(world.clone());
    let run = client.start(waits, ()).await.unwrap();
    let waiting = tokio::spawn(async move { run.output().await });
    let before = statements.load(Ordering::Relaxed);
    wait_until_true("the first look", || async { statements.load(Ordering::Relaxed) > before }).await;

    let before = statements.load(Ordering::Relaxed);
    let other = Client::new(url_in_file);
    let (_, time) = timed(async {
        for _ in 0..STARTS {
            other.start(waits, ()).await.unwrap();
        }
    })
    .await;
    let made = statements.load(Ordering::Relaxed) - before;
    println!("{made} statements in {time:?}, while another process started {STARTS} runs");
    // It checks after a second, and then every ten, whether the run is stuck; and every two seconds for lost
    // notifications.
    let looks = 3 + 2 * time.as_secs();
    assert!(made <= 4 * looks, "{made} statements in {time:?}");
    waiting.abort();
}
