//! Retention: a worker prunes only runs that ended long ago.

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_worker_prunes_runs_that_ended_long_ago,
    runs_that_have_not_ended_are_kept_however_old,
    one_of_several_workers_prunes_and_another_takes_over,
    a_worker_without_retention_prunes_nothing,
    a_workflow_has_a_retention_of_its_own,
    only_the_named_workflow_is_deleted_without_a_general_retention,
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

async fn is_there(engine: &TestEngine, run: RunId) -> bool {
    match engine.client.run(run).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound);
            false
        }
    }
}

async fn completed(engine: &TestEngine) -> RunId {
    let run = engine.client.start(quick, ()).await.unwrap();
    run.output().await.unwrap();
    run.id()
}

async fn a_worker_prunes_runs_that_ended_long_ago(engine: TestEngine) {
    let _worker = engine.caching_builder().register(quick).retention("30d").start().await.unwrap();
    let first = completed(&engine).await;
    engine.advance("10d").await;
    let second = completed(&engine).await;
    engine.advance("19d").await;
    assert!(is_there(&engine, first).await && is_there(&engine, second).await);
    engine.advance("2d").await;
    assert!(!is_there(&engine, first).await && is_there(&engine, second).await);
    engine.advance("10d").await;
    assert!(!is_there(&engine, second).await);
    assert!(engine.client.counts().await.unwrap().values().all(|runs| *runs == 0));
}

async fn runs_that_have_not_ended_are_kept_however_old(engine: TestEngine) {
    let _worker = engine.caching_builder().register((quick, slow)).retention("1d").start().await.unwrap();
    let run = engine.client.start(slow, ()).await.unwrap();
    let pending = engine.client.start_json("unknown", 1, "null").await.unwrap();
    engine.advance("99d").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    assert_eq!(engine.status(pending.id()).await, Status::Pending);
    engine.advance("36h").await;
    assert_eq!(run.output().await.unwrap(), "late");
    engine.advance("1d").await;
    assert!(!is_there(&engine, run.id()).await);
}

async fn one_of_several_workers_prunes_and_another_takes_over(engine: TestEngine) {
    let first = engine.caching_builder().register(quick).retention("10d").start().await.unwrap();
    let _second = engine.caching_builder().register(quick).retention("1d").start().await.unwrap();
    let run = completed(&engine).await;
    engine.advance("5d").await;
    assert!(is_there(&engine, run).await, "the older session's time counts");
    first.stop().await.unwrap();
    engine.advance("1d").await;
    assert!(!is_there(&engine, run).await);
}

async fn a_worker_without_retention_prunes_nothing(engine: TestEngine) {
    let _worker = engine.caching_builder().register(quick).start().await.unwrap();
    let run = completed(&engine).await;
    engine.advance("3650d").await;
    assert!(is_there(&engine, run).await);
}

async fn slow_in(engine: &TestEngine, time: &str) -> RunId {
    let run = engine.client.start(naps, time).await.unwrap();
    engine.advance(time).await;
    run.output().await.unwrap();
    run.id()
}

#[workflow]
async fn naps(ctx: Context, time: String) -> Result<(), Error> {
    ctx.sleep(&*time).await
}

#[workflow]
async fn audited(ctx: Context) -> Result<String, Error> {
    ctx.note("audited").await
}

async fn a_workflow_has_a_retention_of_its_own(engine: TestEngine) {
    let builder = engine.caching_builder().register((quick, naps, audited));
    let builder = builder.retention("10d").retention_of("naps", "1d").retention_of("audited", "15d");
    let _worker = builder.start().await.unwrap();
    let audit = engine.client.start(audited, ()).await.unwrap();
    audit.output().await.unwrap();
    let other = completed(&engine).await;
    let nap = slow_in(&engine, "1h").await;
    let kept = slow_in(&engine, "1h").await;
    engine.client.quarantine(kept).await.unwrap();
    engine.advance("12h").await;
    assert!(is_there(&engine, nap).await, "the time begins at the end of the run");
    engine.advance("1d").await;
    assert!(!is_there(&engine, nap).await && is_there(&engine, other).await);
    assert!(is_there(&engine, kept).await, "a run in quarantine is never deleted");
    engine.advance("10d").await;
    assert!(!is_there(&engine, other).await && is_there(&engine, audit.id()).await);
    engine.advance("5d").await;
    assert!(!is_there(&engine, audit.id()).await && is_there(&engine, kept).await);
}

async fn only_the_named_workflow_is_deleted_without_a_general_retention(engine: TestEngine) {
    let builder = engine.caching_builder().register((quick, naps)).retention_of("naps", "1d");
    let _worker = builder.start().await.unwrap();
    let other = completed(&engine).await;
    let nap = slow_in(&engine, "1h").await;
    engine.advance("10d").await;
    assert!(!is_there(&engine, nap).await && is_there(&engine, other).await);
}

#[tokio::test]
async fn a_retention_that_makes_no_sense_is_refused() {
    let engine = TestEngine::memory().await;
    for (time, said) in [("0s", "`retention` is 0"), ("soon", "`soon`")] {
        let error = engine.caching_builder().register(quick).retention(time).start().await.unwrap_err();
        assert!(error.message().contains(said), "{error}");
    }
    for (workflow, time, said) in [("quick", "0s", "the retention of `quick` is 0"), ("", "1d", "empty name")]
    {
        let builder = engine.caching_builder().register(quick).retention_of(workflow, time);
        let error = builder.start().await.unwrap_err();
        assert!(error.message().contains(said), "{error}");
    }
}
