//! Retention: a worker forgets what ended long ago, and nothing else.

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status};

use super::rig::{Ask, Rig, on_every_world};

on_every_world! {
    a_worker_forgets_what_ended_so_long_ago,
    what_has_not_ended_is_kept_however_old,
    of_several_workers_one_forgets_and_the_next_takes_over,
    a_worker_without_retention_forgets_nothing,
}

#[workflow]
async fn quick(ctx: Context) -> Result<String, Error> {
    ctx.note("done").await
}

#[workflow]
async fn slow(ctx: Context) -> Result<String, Error> {
    ctx.sleep("100d").await?;
    ctx.note("late").await
}

async fn is_there(rig: &Rig, run: RunId) -> bool {
    match rig.client.run(run).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            false
        }
    }
}

async fn completed(rig: &Rig) -> RunId {
    let run = rig.client.start(quick, ()).await.unwrap();
    run.output().await.unwrap();
    run.id()
}

async fn a_worker_forgets_what_ended_so_long_ago(rig: Rig) {
    let _worker = rig.caching().register(quick).retention("30d").start().await.unwrap();
    let first = completed(&rig).await;
    rig.pass("10d").await;
    let second = completed(&rig).await;
    rig.pass("19d").await;
    assert!(is_there(&rig, first).await && is_there(&rig, second).await);
    rig.pass("2d").await;
    assert!(!is_there(&rig, first).await && is_there(&rig, second).await);
    rig.pass("10d").await;
    assert!(!is_there(&rig, second).await);
    assert!(rig.client.counts().await.unwrap().values().all(|runs| *runs == 0));
}

async fn what_has_not_ended_is_kept_however_old(rig: Rig) {
    let _worker = rig.caching().register((quick, slow)).retention("1d").start().await.unwrap();
    let run = rig.client.start(slow, ()).await.unwrap();
    let pending = rig.client.start_json("unknown", 1, "null").await.unwrap();
    rig.pass("99d").await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    assert_eq!(rig.status(pending.id()).await, Status::Pending);
    rig.pass("36h").await;
    assert_eq!(run.output().await.unwrap(), "late");
    rig.pass("1d").await;
    assert!(!is_there(&rig, run.id()).await);
}

async fn of_several_workers_one_forgets_and_the_next_takes_over(rig: Rig) {
    let first = rig.caching().register(quick).retention("10d").start().await.unwrap();
    let _second = rig.caching().register(quick).retention("1d").start().await.unwrap();
    let run = completed(&rig).await;
    rig.pass("5d").await;
    assert!(is_there(&rig, run).await, "the older session's time counts");
    first.stop().await.unwrap();
    rig.pass("1d").await;
    assert!(!is_there(&rig, run).await);
}

async fn a_worker_without_retention_forgets_nothing(rig: Rig) {
    let _worker = rig.caching().register(quick).start().await.unwrap();
    let run = completed(&rig).await;
    rig.pass("3650d").await;
    assert!(is_there(&rig, run).await);
}

#[tokio::test]
async fn a_retention_that_makes_no_sense_is_refused() {
    let rig = Rig::memory().await;
    for (time, said) in [("0s", "`retention` is 0"), ("soon", "`soon`")] {
        let error = rig.caching().register(quick).retention(time).start().await.unwrap_err();
        assert!(error.message().contains(said), "{error}");
    }
}
