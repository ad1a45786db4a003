//! Workflow code that does not return: the run is stuck, and the worker continues. So it does beside steps that block
//! their threads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::sqlite::rusqlite::Connection;
use outlast::{RunId, Status, StuckReason, SystemClock, WorkerBuilder, World};
use tokio::sync::watch;

use crate::child::{WorldLocation, url, wait_until_true, with_timeout};

const TURN_TIME: &str = "300ms";

/// Ends the endless loop of a workflow, so that the test can end.
#[derive(Clone, Debug, Default)]
struct LoopControl(Arc<AtomicBool>);

impl LoopControl {
    fn loop_until_released(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The controls of all loops: a workflow's code can reach only a static.
static LOOP_CONTROLS: parking_lot::Mutex<Vec<(u32, LoopControl)>> = parking_lot::Mutex::new(Vec::new());

fn loop_control(number: u32) -> LoopControl {
    let mut loop_controls = LOOP_CONTROLS.lock();
    if let Some((_, loop_control)) = loop_controls.iter().find(|(known, _)| *known == number) {
        return loop_control.clone();
    }
    loop_controls.push((number, LoopControl::default()));
    loop_controls[loop_controls.len() - 1].1.clone()
}

#[workflow(name = "circles")]
async fn endless_loop(ctx: Context, number: u32) -> Result<u32, Error> {
    if number.is_multiple_of(2) {
        ctx.step(note, number).await?;
    }
    loop_control(number).loop_until_released();
    Ok(number)
}

#[workflow(name = "circles")]
async fn endless_loop_fixed(ctx: Context, number: u32) -> Result<u32, Error> {
    if number.is_multiple_of(2) {
        ctx.step(note, number).await?;
    }
    Ok(number)
}

/// How often `note` was attempted, by number.
static NOTES: parking_lot::Mutex<Vec<u32>> = parking_lot::Mutex::new(Vec::new());

#[step]
async fn note(number: u32) -> Result<u32, StepError> {
    NOTES.lock().push(number);
    Ok(number)
}

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

async fn world(folder: &Path) -> Arc<dyn World> {
    outlast::open(&url(folder)).await.unwrap()
}

async fn worker(world: &Arc<dyn World>) -> Worker {
    let worker = Worker::builder(world.clone()).register((endless_loop, note, greet)).build("old");
    worker.turn_time(TURN_TIME).start().await.unwrap()
}

async fn until_stuck(world: &Arc<dyn World>, run: RunId) {
    wait_until_true("the run to be stuck", || async {
        world.run(run).await.is_ok_and(|view| view.status == Status::Stuck)
    })
    .await;
}

/// Checks a run that hung.
async fn check_hung(world: &Arc<dyn World>, worker: &Worker, number: u32, run: RunId) {
    until_stuck(world, run).await;
    let stuck = world.run(run).await.unwrap().stuck.unwrap();
    assert_eq!((stuck.reason, &*stuck.build), (StuckReason::Hung, "old"));
    for part in ["did not return within 300ms", "loops without awaiting", "move slow work into a step"] {
        assert!(stuck.message.contains(part), "{}", stuck.message);
    }
    assert_eq!(worker.metrics().turns_hung, 1);
    let client = Client::new(world.clone());
    let hello = client.start(greet, "Ada".to_owned()).await.unwrap();
    assert_eq!(with_timeout("another run", hello.output()).await.unwrap(), "hello Ada", "the worker lives");

    let before = world.history(run, 0, 100).await.unwrap();
    loop_control(number).release();
    let hello = client.start(greet, "Bob".to_owned()).await.unwrap();
    assert_eq!(with_timeout("another run", hello.output()).await.unwrap(), "hello Bob");
    assert_eq!(world.run(run).await.unwrap().status, Status::Stuck, "the late turn is refused");
    assert_eq!(world.history(run, 0, 100).await.unwrap(), before);
}

async fn check_fixed(world: &Arc<dyn World>, number: u32, run: RunId) {
    let build = Worker::builder(world.clone()).register((endless_loop_fixed, note)).build("new");
    let fixed = build.start().await.unwrap();
    wait_until_true("the mended build to finish it", || async {
        world.run(run).await.unwrap().status == Status::Completed
    })
    .await;
    let output = Client::new(world.clone()).handle::<u32>(run).output().await.unwrap();
    assert_eq!(output, number);
    fixed.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_hangs_in_its_first_turn_is_stuck_and_its_start_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let worker = worker(&world).await;
    let starting = Client::new(world.clone());
    let run = with_timeout("the answer to the start", async { starting.start(endless_loop, 1).await })
        .await
        .unwrap();
    check_hung(&world, &worker, 1, run.id()).await;
    worker.stop().await.unwrap();
    check_fixed(&world, 1, run.id()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_hangs_later_is_stuck_and_keeps_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let run = Client::new(world.clone()).start(endless_loop, 2).await.unwrap();
    let worker = worker(&world).await;
    check_hung(&world, &worker, 2, run.id()).await;
    worker.stop().await.unwrap();
    check_fixed(&world, 2, run.id()).await;
    let count = NOTES.lock().iter().filter(|number| **number == 2).count();
    assert_eq!(count, 1, "the outcome that the turn was told is kept");
}

/// Runs a worker on a runtime with one thread, which a workflow blocks.
async fn check_blocked_worker(location: WorldLocation, mut runtime: tokio::runtime::Builder, number: u32) {
    let folder = location.folder();
    let world = world(folder.path()).await;
    let (started, starts) = std::sync::mpsc::sync_channel(1_000);
    let other = self::world(folder.path()).await;
    let thread = std::thread::spawn(move || {
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let worker = worker(&other).await;
            let client = Client::new(other.clone());
            let waits = client.start(waiting, ()).await.unwrap().id();
            let hangs = client.start(endless_loop, number).await;
            started.send((waits, hangs.map(|run| run.id()).ok())).unwrap();
            worker.crash();
        });
    });
    wait_until_true("the worker to leave", || async {
        let counts = world.counts().await.unwrap();
        counts.get(&Status::Stuck) == Some(&1) && world.workers().await.unwrap().is_empty()
    })
    .await;
    loop_control(number).release();
    let (_, hangs) = starts.recv_timeout(Duration::from_secs(60)).unwrap();
    thread.join().unwrap();
    assert!(hangs.is_some(), "the client's start was answered in the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_threads_are_all_blocked_leaves_its_runs_to_others() {
    check_blocked_worker(WorldLocation::File, tokio::runtime::Builder::new_current_thread(), 3).await;
}

/// The blocked runtime drives the connections on which the worker commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_on_postgres_whose_threads_are_all_blocked_leaves_its_runs_to_others() {
    throwaway::needs_postgres!();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1);
    check_blocked_worker(WorldLocation::Server, runtime, 5).await;
}

/// The attempts of each step, and the steps that may end.
#[derive(Clone, Debug, Default)]
struct Gates(Arc<watch::Sender<(Vec<u32>, Vec<u32>)>>);

impl Gates {
    fn count(&self, number: u32) -> usize {
        self.0.borrow().0.iter().filter(|attempted| **attempted == number).count()
    }

    fn open(&self, number: u32) {
        self.0.send_modify(|(_, open)| open.push(number));
    }
}

#[step]
async fn gated(cx: StepContext<Gates>, number: u32) -> Result<u32, StepError> {
    cx.state().0.send_modify(|(attempted, _)| attempted.push(number));
    let mut changes = cx.state().0.subscribe();
    changes.wait_for(|(_, open)| open.contains(&number)).await.map_err(StepError::from_boxed)?;
    Ok(number)
}

/// Hangs after the outcome of a step, while two others are running.
#[workflow(name = "beside")]
async fn hangs_beside_steps(ctx: Context, number: u32) -> Result<u32, Error> {
    let (one, two) = (ctx.step(gated, number + 1), ctx.step(gated, number + 2));
    ctx.step(gated, number).await?;
    loop_control(number).loop_until_released();
    Ok(one.await? + two.await?)
}

#[workflow(name = "beside")]
async fn continues_beside_steps(ctx: Context, number: u32) -> Result<u32, Error> {
    let (one, two) = (ctx.step(gated, number + 1), ctx.step(gated, number + 2));
    ctx.step(gated, number).await?;
    Ok(one.await? + two.await?)
}

fn gated_worker(world: &Arc<dyn World>, gates: &Gates) -> WorkerBuilder<Gates> {
    Worker::builder(world.clone()).state(gates.clone()).register(gated).turn_time(TURN_TIME)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn running_attempts_of_a_run_that_hangs_are_awaited_and_their_outcomes_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (world, gates) = (world(folder.path()).await, Gates::default());
    let old = gated_worker(&world, &gates).register(hangs_beside_steps).build("old").start().await.unwrap();
    let run = Client::new(world.clone()).start(hangs_beside_steps, 10).await.unwrap();
    wait_until_true("all attempts", || async { (10..13).all(|number| gates.count(number) == 1) }).await;
    gates.open(10);
    wait_until_true("the turn to hang", || async { old.metrics().turns_hung == 1 }).await;
    gates.open(11);
    assert_ne!(world.run(run.id()).await.unwrap().status, Status::Stuck, "an attempt is running");
    gates.open(12);
    until_stuck(&world, run.id()).await;
    loop_control(10).release();
    old.stop().await.unwrap();
    let new =
        gated_worker(&world, &gates).register(continues_beside_steps).build("new").start().await.unwrap();
    assert_eq!(with_timeout("the end", run.output()).await.unwrap(), 23);
    assert_eq!([10, 11, 12].map(|number| gates.count(number)), [1; 3], "no attempt is made again");
    new.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn attempts_of_a_run_that_hangs_are_awaited_for_the_drain_time_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let (world, gates) = (world(folder.path()).await, Gates::default());
    let old = gated_worker(&world, &gates).register(hangs_beside_steps).drain("200ms").start().await.unwrap();
    let run = Client::new(world.clone()).start(hangs_beside_steps, 20).await.unwrap();
    wait_until_true("all attempts", || async { (20..23).all(|number| gates.count(number) == 1) }).await;
    gates.open(20);
    until_stuck(&world, run.id()).await;
    loop_control(20).release();
    old.stop().await.unwrap();
}

/// Whether the attempts at `blocks_its_thread` begin to block, and how many do.
static MUST_BLOCK: AtomicBool = AtomicBool::new(false);
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

#[step(attempts = 1)]
async fn blocks_its_thread(number: u32) -> Result<u32, StepError> {
    while !MUST_BLOCK.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
    BLOCKED.fetch_add(1, Ordering::AcqRel);
    loop_control(number).loop_until_released();
    Ok(number)
}

/// Makes a commit every millisecond while its step is attempted.
#[workflow]
async fn commits_beside_a_step(ctx: Context, number: u32) -> Result<u32, Error> {
    let mut blocked = ctx.step(blocks_its_thread, number);
    loop {
        select! {
            outcome = &mut blocked => return outcome,
            tick = ctx.sleep("1ms") => tick?,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn steps_that_block_their_threads_during_commits_delay_no_other_run() {
    let folder = tempfile::tempdir().unwrap();
    let url = url(folder.path());
    let world = outlast::open(&url).await.unwrap();
    let code = (commits_beside_a_step, blocks_its_thread, greet);
    let worker = Worker::builder(world.clone()).register(code).start().await.unwrap();
    let client = Client::new(world.clone());
    let mut blocked = Vec::new();
    for number in [30, 31] {
        blocked.push(client.start(commits_beside_a_step, number).await.unwrap());
    }
    // While the file is locked, both runs soon wait for a commit.
    let other = Connection::open(url.strip_prefix("sqlite:").unwrap()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(SystemClock.sleep_until(SystemClock.now().plus(Duration::from_millis(100))).await);
    MUST_BLOCK.store(true, Ordering::Release);
    wait_until_true("both steps to block", || async { BLOCKED.load(Ordering::Acquire) == 2 }).await;
    other.execute_batch("ROLLBACK").unwrap();
    let hello = with_timeout("a start", async { client.start(greet, "Ada".to_owned()).await }).await.unwrap();
    assert_eq!(with_timeout("another run", hello.output()).await.unwrap(), "hello Ada");
    for (number, run) in [30, 31].into_iter().zip(blocked) {
        loop_control(number).release();
        assert_eq!(with_timeout("the step", run.output()).await.unwrap(), number);
    }
    worker.stop().await.unwrap();
}

#[workflow]
async fn waiting(ctx: Context) -> Result<(), Error> {
    ctx.hook::<()>("never").await
}
