//! The check before a deploy: which open runs a build could continue. It changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outlast::core::{WorldMethod, WorldWrapper};
use outlast::prelude::*;
use outlast::{Controlled, RunId, RunView, Status, StuckReason, World, WorldError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_check_tells_which_runs_continue_and_which_diverge,
    a_check_changes_nothing_and_calls_only_methods_that_read,
    a_build_that_repairs_stuck_runs_is_reported_so,
    values_and_steps_that_a_build_does_not_have_are_found,
    a_retry_that_no_worker_has_recorded_is_replayed_up_to_its_cut_point,
    unusual_open_runs_continue_with_the_same_code,
    a_check_reads_all_pages_and_shows_progress,
}

#[workflow(name = "trip")]
async fn trip(ctx: Context, _days: u32) -> Result<(), Error> {
    ctx.note("reserve").await?;
    ctx.hook("back").await
}

#[workflow(name = "trip")]
async fn trip_with_insurance(ctx: Context, _days: u32) -> Result<(), Error> {
    ctx.note("reserve").await?;
    ctx.sleep("1h").await?;
    ctx.hook("back").await
}

#[workflow(name = "visit")]
async fn visit(ctx: Context) -> Result<(), Error> {
    ctx.hook("done").await
}

async fn a_check_tells_which_runs_continue_and_which_diverge(engine: TestEngine) {
    let worker = engine.worker((trip, visit)).await;
    let open = engine.client.start(trip, 7).await.unwrap();
    engine.client.start(visit, ()).await.unwrap();
    let ended = engine.client.start(trip, 7).await.unwrap();
    ended.send("back", &()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let fresh = engine.client.start(trip, 8).await.unwrap();

    let same = engine.builder().register((trip, visit)).check().await.unwrap();
    assert!(same.is_ok(), "{same}");
    assert_eq!((same.runs(), same.continued(), same.without_code()), (3, 3, 0));
    assert_eq!(same.to_string().lines().next(), Some("3 open runs: 3 continue, 0 would be stuck"));

    let changed = engine.builder().register(trip_with_insurance).check().await.unwrap();
    assert!(!changed.is_ok());
    assert_eq!(
        (changed.continued(), changed.stuck(), changed.without_code()),
        (1, 1, 1),
        "{fresh:?} continues"
    );
    let found = changed.workflows().flat_map(|workflow| &workflow.findings).next().unwrap();
    assert_eq!((found.run, found.reason), (open.id(), StuckReason::Diverged));
    let text = changed.to_string();
    for part in [
        "3 open runs: 1 continue, 1 would be stuck, 1 have no code in this build",
        "`trip` version 1: 1 continue, 1 diverged",
        "`visit` version 1: 0 continue, 1 without code",
        "diverged at operation 1: history has hook `back`, code asked for timer 1h",
        ">   1  hook `back` | timer 1h",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// Fails every call that could change something.
#[derive(Debug)]
struct ReadOnly {
    inner: Arc<dyn World>,
    reads: AtomicU64,
}

impl WorldWrapper for ReadOnly {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        method: WorldMethod,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        let is_read = matches!(method, WorldMethod::Runs | WorldMethod::Histories | WorldMethod::Inbox);
        assert!(is_read, "a check calls {method:?}");
        self.reads.fetch_add(1, Ordering::Relaxed);
        call.await
    }
}

async fn all_of(engine: &TestEngine) -> (Vec<RunView>, Vec<String>, usize) {
    let views = engine.client.list().queued_steps().await.unwrap().runs;
    let mut histories = Vec::new();
    for view in &views {
        histories.push(engine.client.export(view.id).await.unwrap());
    }
    (views, histories, engine.client.workers().await.unwrap().len())
}

async fn a_check_changes_nothing_and_calls_only_methods_that_read(engine: TestEngine) {
    let worker = engine.worker((trip, visit)).await;
    engine.client.start(trip, 7).await.unwrap();
    engine.client.start(visit, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.client.start(trip, 8).await.unwrap();
    let before = all_of(&engine).await;
    let world = Arc::new(ReadOnly { inner: engine.world.clone(), reads: AtomicU64::new(0) });
    for _ in 0..2 {
        let builder = Worker::builder(world.clone()).register(trip_with_insurance);
        assert_eq!(builder.check().await.unwrap().runs(), 3);
    }
    assert_eq!(world.reads.load(Ordering::Relaxed), 4, "a page and the histories of a batch, each time");
    assert_eq!(all_of(&engine).await, before);
    assert_eq!(engine.steps.count("reserve"), 1, "no step is attempted");
}

async fn a_build_that_repairs_stuck_runs_is_reported_so(engine: TestEngine) {
    let worker = engine.worker_of_build("a", trip).await;
    let run = engine.client.start(trip, 7).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    run.send("back", &()).await.unwrap();
    let worker = engine.worker_of_build("b", trip_with_insurance).await;
    engine.settle().await;
    engine.stuck(run.id()).await;
    worker.stop().await.unwrap();
    let report = engine.builder().register(trip).check().await.unwrap();
    let checked: Vec<_> = report.workflows().collect();
    assert_eq!((checked[0].continued, checked[0].resumed), (1, 1));
    assert!(
        report.to_string().ends_with("`trip` version 1: 1 continue (1 of them are stuck now)"),
        "{report}"
    );
    assert!(!engine.builder().register(trip_with_insurance).check().await.unwrap().is_ok());
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct UrgentOrder {
    id: u32,
    priority: u32,
}

#[step]
async fn pack(cx: StepContext<super::test_engine::StepState>, id: u32) -> u32 {
    cx.state().wait_for_gate("never").await;
    id
}

#[workflow(name = "order")]
async fn order(ctx: Context, order: Order) -> Result<u32, Error> {
    ctx.step(pack, order.id).await
}

#[workflow(name = "order")]
async fn urgent_order(ctx: Context, order: UrgentOrder) -> Result<u32, Error> {
    ctx.step(pack, order.id + order.priority).await
}

async fn values_and_steps_that_a_build_does_not_have_are_found(engine: TestEngine) {
    let worker = engine.worker((order, pack)).await;
    let begun = engine.client.start(order, Order { id: 1 }).await.unwrap();
    engine.wait_for_history(begun.id(), |history| history.contains("step_started")).await;
    engine.crash(worker);
    let fresh = engine.client.start(order, Order { id: 2 }).await.unwrap();

    let reasons = |report: &outlast::CheckReport| -> Vec<(RunId, StuckReason)> {
        let findings = report.workflows().flat_map(|workflow| &workflow.findings);
        findings.map(|finding| (finding.run, finding.reason)).collect()
    };
    let undecodable = engine.builder().register((urgent_order, pack)).check().await.unwrap();
    let expected = [(begun.id(), StuckReason::Undecodable), (fresh.id(), StuckReason::Undecodable)];
    assert_eq!(reasons(&undecodable), expected, "{undecodable}");
    assert!(
        undecodable.to_string().contains("`order` version 1: 0 continue, 2 undecodable"),
        "{undecodable}"
    );

    let stepless = engine.builder().register(order).check().await.unwrap();
    assert_eq!(reasons(&stepless), [(begun.id(), StuckReason::StepNotRegistered)], "{stepless}");
    assert!(engine.builder().register((order, pack)).check().await.unwrap().is_ok());

    let no_code = Worker::builder(engine.world.clone()).check().await.unwrap_err();
    assert!(no_code.message().contains("the worker has no code"), "{no_code}");
}

#[step(attempts = 1)]
async fn find_a_seat(cx: StepContext<super::test_engine::StepState>, _row: u32) -> Result<u32, StepError> {
    cx.state().log("looks for a seat");
    Err(StepError::msg("no seat is free"))
}

#[workflow(name = "journey")]
async fn journey(ctx: Context, row: u32) -> Result<u32, Error> {
    ctx.note("book").await?;
    ctx.step(find_a_seat, row).await
}

#[workflow(name = "journey")]
async fn journey_with_a_rest(ctx: Context, row: u32) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    ctx.step(find_a_seat, row).await
}

async fn a_retry_that_no_worker_has_recorded_is_replayed_up_to_its_cut_point(engine: TestEngine) {
    let worker = engine.worker((journey, find_a_seat)).await;
    let run = engine.client.start(journey, 7).await.unwrap();
    assert!(run.output().await.is_err());
    worker.stop().await.unwrap();
    assert_eq!(engine.builder().register((journey, find_a_seat)).check().await.unwrap().runs(), 0);
    assert_eq!(engine.client.retry(run.id()).await.unwrap(), Controlled::Requested);

    let before = all_of(&engine).await;
    let world = Arc::new(ReadOnly { inner: engine.world.clone(), reads: AtomicU64::new(0) });
    let builder =
        || Worker::builder(world.clone()).state(engine.steps.clone()).register(super::test_engine::note);
    let same = builder().register((journey, find_a_seat)).check().await.unwrap();
    assert_eq!((same.runs(), same.continued()), (1, 1), "{same}");
    let reason = |report: &outlast::CheckReport| {
        let mut findings = report.workflows().flat_map(|workflow| &workflow.findings);
        findings.next().map(|finding| finding.reason)
    };
    let diverged = builder().register((journey_with_a_rest, find_a_seat)).check().await.unwrap();
    assert_eq!(reason(&diverged), Some(StuckReason::Diverged), "{diverged}");
    let stepless = builder().register(journey).check().await.unwrap();
    assert_eq!(reason(&stepless), Some(StuckReason::StepNotRegistered), "{stepless}");
    assert_eq!(all_of(&engine).await, before);
    assert_eq!(engine.steps.count("looks for a seat"), 1);
}

const REVIEW: Hook<u32> = Hook::new("review");

/// Waits at the place that `kind` names.
#[workflow(name = "unusual")]
async fn unusual(ctx: Context, (kind, generation): (String, u32)) -> Result<u32, Error> {
    reach_a_wait(&ctx, &kind, generation, "go").await
}

/// Waits there for another hook.
#[workflow(name = "unusual")]
async fn unusual_changed(ctx: Context, (kind, generation): (String, u32)) -> Result<u32, Error> {
    reach_a_wait(&ctx, &kind, generation, "other").await
}

async fn reach_a_wait(ctx: &Context, kind: &str, generation: u32, hook: &str) -> Result<u32, Error> {
    match kind {
        "iteration" => {
            let iteration = async |ctx: Context, done: u32| {
                if done == 3 {
                    return Ok(Next::Done(ctx.hook::<u32>(hook).await?));
                }
                ctx.note(&format!("iteration {done}")).await?;
                Ok(Next::Again(done + 1))
            };
            return ctx.iterate("count", 0_u32, iteration).await;
        }
        "generation" if generation < 3 => return ctx.continue_as(&(kind, generation + 1)),
        "compensation" => {
            ctx.step(super::test_engine::note, "one").undo(wait_for_the_gate).await?;
            return Err(Error::msg("it did not work out"));
        }
        "token" => {
            let open = ctx.open_hook(REVIEW).token("order-42").await?;
            ctx.hook::<u32>(hook).await?;
            return open.next().await;
        }
        _ => {}
    }
    ctx.note(kind).await?;
    ctx.hook::<u32>(hook).await
}

#[step]
async fn wait_for_the_gate(
    cx: StepContext<super::test_engine::StepState>,
    _undo: Undo<String, String>,
) -> Result<(), StepError> {
    cx.state().log("undoes");
    cx.state().wait_for_gate("never").await;
    Ok(())
}

async fn unusual_open_runs_continue_with_the_same_code(engine: TestEngine) {
    let worker = engine.worker((unusual, wait_for_the_gate)).await;
    let mut runs = Vec::new();
    for kind in ["iteration", "generation", "compensation", "token", "forked"] {
        runs.push(engine.client.start(unusual, (kind.to_owned(), 1)).await.unwrap().id());
    }
    engine.client.schedule("hourly").every("1h").start(visit, ()).await.unwrap();
    engine.steps.wait_for_log("undoes", 1).await;
    for run in [runs[0], runs[1], runs[3], runs[4]] {
        engine.wait_for_status(run, Status::Waiting).await;
    }
    engine.crash(worker);
    // A fork that no worker has recorded.
    let at = engine.client.events(runs[4]).await.unwrap().len() as u64;
    let fork = engine.client.fork::<u32>(runs[4]).at(at).await.unwrap().id();
    engine.client.terminate(runs[4], "not needed").await.unwrap();
    assert_eq!(engine.view(runs[1]).await.generation, 3);

    let worker_code = || engine.builder().register(wait_for_the_gate);
    let same = worker_code().register(unusual).check().await.unwrap();
    assert_eq!((same.runs(), same.continued()), (6, 6), "{same}");

    let changed = worker_code().register(unusual_changed).check().await.unwrap();
    let diverged: Vec<_> = changed.workflows().flat_map(|workflow| workflow.stuck.iter()).collect();
    assert_eq!(diverged, [(&"diverged", &4)], "{changed}");
    assert_eq!(changed.continued(), 2, "no code of the workflow compensates or is that of a schedule");
    let without_undo = engine.builder().register(unusual).check().await.unwrap();
    let findings: Vec<_> = without_undo.workflows().flat_map(|workflow| &workflow.findings).collect();
    let found: Vec<_> = findings.iter().map(|finding| (finding.run, finding.reason)).collect();
    assert_eq!(found, [(runs[2], StuckReason::StepNotRegistered)], "{without_undo}");
    assert!(engine.client.run(fork).await.unwrap().ended_at.is_none(), "a check changes nothing");
}

async fn a_check_reads_all_pages_and_shows_progress(engine: TestEngine) {
    const RUNS: u32 = 1_100;
    assert!(engine.client.start_many(trip, 0..RUNS).await.iter().all(Result::is_ok));
    let progress: Arc<Mutex<Vec<u64>>> = Arc::default();
    let listener = progress.clone();
    let check = engine.builder().register(trip).check();
    let report = check.on_progress(move |report| listener.lock().push(report.runs())).await.unwrap();
    assert_eq!((report.runs(), report.continued()), (u64::from(RUNS), u64::from(RUNS)));
    let seen = progress.lock().clone();
    assert!(seen.len() > 15 && seen.is_sorted() && seen.last() == Some(&u64::from(RUNS)), "{seen:?}");
    // A report has few findings, however many runs there are.
    let diverged = engine.builder().register(trip_of_text).check().await.unwrap();
    assert_eq!(diverged.stuck(), u64::from(RUNS));
    assert_eq!(diverged.workflows().map(|workflow| workflow.findings.len()).sum::<usize>(), 3);
}

#[workflow(name = "trip")]
async fn trip_of_text(_ctx: Context, _where_to: String) -> Result<(), Error> {
    Ok(())
}
