//! Bulk actions that a run makes: they continue after a crash, stop when they are asked to, and never concern more runs
//! than they may.

use outlast::prelude::*;
use outlast::{BulkState, ErrorKind, Status};

use super::test_engine::{TestEngine, on_every_world};

on_every_world! {
    all_runs_of_the_query_are_called_and_no_others,
    a_limited_rate_can_be_stopped,
    more_runs_than_allowed_are_refused_or_stop_it,
    another_worker_continues_after_a_crash,
    restarts_are_made_once,
    a_long_bulk_action_has_a_short_history,
}

#[workflow]
async fn nap(ctx: Context) -> Result<(), Error> {
    ctx.sleep("30d").await
}

#[workflow]
async fn done(_ctx: Context) -> Result<u32, Error> {
    Ok(7)
}

async fn built_ins(engine: &TestEngine) -> Worker {
    Worker::builder(engine.world.clone()).only_built_ins().start().await.unwrap()
}

async fn start_naps(engine: &TestEngine, count: usize) {
    for index in 0..count {
        engine.client.start(nap, ()).tag("n", index.to_string()).await.unwrap();
    }
}

async fn count(engine: &TestEngine, status: Status) -> usize {
    engine.client.list().workflow(nap).status(status).limit(1_000).await.unwrap().runs.len()
}

async fn all_runs_of_the_query_are_called_and_no_others(engine: TestEngine) {
    let _worker = engine.worker((nap, done)).await;
    let _built_ins = built_ins(&engine).await;
    start_naps(&engine, 250).await;
    let other = engine.client.start(done, ()).await.unwrap();
    let protected = engine.client.start(nap, ()).await.unwrap();
    engine.client.quarantine(protected.id()).await.unwrap();
    engine.settle().await;
    let ada = engine.client.acting_as("ada");
    let bulk = ada.bulk(ada.list().workflow(nap)).durably().cancel("moved away").await.unwrap();
    // Started later: not concerned.
    let later = engine.client.start(nap, ()).await.unwrap();
    let progress = bulk.completed().await.unwrap();
    assert_eq!((progress.matched, progress.requested, progress.refused), (250, 250, 0), "{progress:?}");
    assert_eq!((progress.state, progress.action.as_str()), (BulkState::Completed, "cancel"));
    assert_eq!(progress.actor.as_deref(), Some("ada"));
    assert_eq!(bulk.progress().await.unwrap(), progress);
    engine.settle().await;
    assert_eq!(count(&engine, Status::Cancelled).await, 250);
    for run in [later.id(), protected.id()] {
        assert_eq!(engine.status(run).await, Status::Waiting);
    }
    assert_eq!(engine.status(other.id()).await, Status::Completed);
    let error = engine.client.bulk_handle(later.id()).progress().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

async fn a_limited_rate_can_be_stopped(engine: TestEngine) {
    let _built_ins = built_ins(&engine).await;
    start_naps(&engine, 30).await;
    let client = engine.client.clone();
    let bulk = client.bulk(client.list().workflow(nap)).rate(10).durably().pause("audit").await.unwrap();
    engine.run_to("1500ms").await;
    let progress = bulk.progress().await.unwrap();
    assert_eq!((progress.state, progress.requested), (BulkState::Running, 20), "{progress:?}");
    client.acting_as("ada").bulk_handle(bulk.run()).stop("enough").await.unwrap();
    let stopped = bulk.completed().await.unwrap();
    assert_eq!((stopped.state, stopped.requested), (BulkState::Stopped, 20), "{stopped:?}");
    let stop = stopped.stop.unwrap();
    assert_eq!((stop.reason.as_str(), stop.actor.as_deref()), ("enough", Some("ada")));
    assert_eq!(bulk.stop("again").await.unwrap_err().kind(), ErrorKind::Conflict);
}

async fn more_runs_than_allowed_are_refused_or_stop_it(engine: TestEngine) {
    start_naps(&engine, 5).await;
    let client = engine.client.clone();
    let naps = || client.bulk(client.list().workflow(nap)).durably();
    let error = naps().at_most(4).terminate("gone").await.unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("5 runs match")), (ErrorKind::Conflict, true));
    // Runs that match later: their status changes after it was confirmed.
    let paused = client.bulk(client.list().workflow(nap).status(Status::Waiting)).durably().at_most(3);
    let bulk = paused.terminate("gone").await.unwrap();
    assert_eq!(bulk.progress().await.unwrap().matched, 0);
    let worker = engine.worker(nap).await;
    engine.settle().await;
    let _built_ins = built_ins(&engine).await;
    let progress = bulk.completed().await.unwrap();
    assert_eq!((progress.state, progress.requested), (BulkState::Stopped, 3), "{progress:?}");
    assert_eq!(progress.stop.unwrap().reason, "more than 3 runs match");
    worker.stop().await.unwrap();
}

async fn another_worker_continues_after_a_crash(engine: TestEngine) {
    start_naps(&engine, 30).await;
    let client = engine.client.clone();
    let first = built_ins(&engine).await;
    let bulk = client.bulk(client.list().workflow(nap)).rate(10).durably().terminate("gone").await.unwrap();
    engine.run_to("500ms").await;
    assert_eq!(bulk.progress().await.unwrap().called(), 10);
    engine.crash(first);
    let _second = built_ins(&engine).await;
    engine.run_to("5m").await;
    let progress = bulk.completed().await.unwrap();
    assert_eq!((progress.state, progress.called()), (BulkState::Completed, 30), "{progress:?}");
    assert_eq!(count(&engine, Status::Cancelled).await, 30);
}

async fn restarts_are_made_once(engine: TestEngine) {
    let _worker = engine.worker((nap, done)).await;
    for _ in 0..3 {
        engine.client.start(done, ()).await.unwrap().output().await.unwrap();
    }
    let client = engine.client.clone();
    let _built_ins = built_ins(&engine).await;
    let progress = client.bulk(client.list().workflow(done)).durably().restart().await.unwrap();
    let progress = progress.completed().await.unwrap();
    assert_eq!((progress.requested, progress.already), (3, 0), "the new runs are not restarted");
    engine.settle().await;
    assert_eq!(client.list().workflow(done).await.unwrap().runs.len(), 6);
}

async fn a_long_bulk_action_has_a_short_history(engine: TestEngine) {
    let _built_ins = built_ins(&engine).await;
    start_naps(&engine, 120).await;
    let client = engine.client.clone();
    let bulk = client.bulk(client.list().workflow(nap)).rate(1).durably().pause("audit").await.unwrap();
    engine.run_to("10m").await;
    assert_eq!(bulk.completed().await.unwrap().requested, 120);
    assert!(engine.view(bulk.run()).await.generation >= 3);
}
