//! A worker with nothing to do asks for next to nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast::prelude::*;
use outlast::{SystemClock, World};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

use crate::process::{timed, until_so};

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_worker_makes_at_most_two_queries_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let statements = Arc::new(AtomicU64::new(0));
    let options = SqliteOptions::new(Arc::new(SystemClock)).count_statements(statements.clone());
    let path = folder.path().join("world.db");
    let world: Arc<dyn World> = Arc::new(SqliteWorld::open(path.to_str().unwrap(), options).unwrap());
    let worker = Worker::builder(world.clone()).register(greet).start().await.unwrap();
    let run = Client::new(world).start(greet, "Ada".to_owned()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "hello Ada");
    let beaten = |times: u64| {
        let worker = &worker;
        async move { worker.metrics().beats >= times }
    };
    until_so("a beat", || beaten(1)).await;
    let before = statements.load(Ordering::Relaxed);
    let (_, time) = timed(until_so("four beats", || beaten(5))).await;
    let made = statements.load(Ordering::Relaxed) - before;
    println!("{made} statements in {time:?}");
    let per_second = made as f64 / time.as_secs_f64();
    assert!(made > 0 && per_second <= 2.0, "{per_second:.2} statements per second");
    worker.stop().await.unwrap();
}
