//! Workflow code that does not come back: the run is stuck, the worker lives.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outlast::prelude::*;
use outlast::{RunId, Status, StuckReason, WorkerBuilder, World};
use tokio::sync::watch;

use crate::process::{in_time, until_so, url};

const TURN_TIME: &str = "300ms";

/// Lets the loops of this process end, so that the test can.
#[derive(Clone, Debug, Default)]
struct Leash(Arc<AtomicBool>);

impl Leash {
    fn run_in_circles(&self) {
        while !self.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn let_go(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A workflow's code cannot take a leash along, so it finds it here.
static LEASHES: parking_lot::Mutex<Vec<(u32, Leash)>> = parking_lot::Mutex::new(Vec::new());

fn leash(number: u32) -> Leash {
    let mut leashes = LEASHES.lock();
    if let Some((_, leash)) = leashes.iter().find(|(known, _)| *known == number) {
        return leash.clone();
    }
    leashes.push((number, Leash::default()));
    leashes[leashes.len() - 1].1.clone()
}

#[workflow(name = "circles")]
async fn circles(ctx: Context, number: u32) -> Result<u32, Error> {
    if number.is_multiple_of(2) {
        ctx.step(note, number).await?;
    }
    leash(number).run_in_circles();
    Ok(number)
}

#[workflow(name = "circles")]
async fn circles_mended(ctx: Context, number: u32) -> Result<u32, Error> {
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
    let worker = Worker::builder(world.clone()).register((circles, note, greet)).build("old");
    worker.turn_time(TURN_TIME).start().await.unwrap()
}

async fn until_stuck(world: &Arc<dyn World>, run: RunId) {
    until_so("the run to be stuck", || async {
        world.run(run).await.is_ok_and(|view| view.status == Status::Stuck)
    })
    .await;
}

/// What is true of a run that hung, whenever it did.
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
    assert_eq!(in_time("another run", hello.output()).await.unwrap(), "hello Ada", "the worker lives");

    let before = world.history(run, 0, 100).await.unwrap();
    leash(number).let_go();
    let hello = client.start(greet, "Bob".to_owned()).await.unwrap();
    assert_eq!(in_time("another run", hello.output()).await.unwrap(), "hello Bob");
    assert_eq!(world.run(run).await.unwrap().status, Status::Stuck, "the late turn is refused");
    assert_eq!(world.history(run, 0, 100).await.unwrap(), before);
}

async fn check_mended(world: &Arc<dyn World>, number: u32, run: RunId) {
    let build = Worker::builder(world.clone()).register((circles_mended, note)).build("new");
    let mended = build.start().await.unwrap();
    until_so("the mended build to finish it", || async {
        world.run(run).await.unwrap().status == Status::Completed
    })
    .await;
    let output = Client::new(world.clone()).handle::<u32>(run).output().await.unwrap();
    assert_eq!(output, number);
    mended.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_hangs_in_its_first_turn_is_stuck_and_its_start_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let worker = worker(&world).await;
    let starting = Client::new(world.clone());
    let run = in_time("the answer to the start", async { starting.start(circles, 1).await }).await.unwrap();
    check_hung(&world, &worker, 1, run.id()).await;
    worker.stop().await.unwrap();
    check_mended(&world, 1, run.id()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_run_that_hangs_later_is_stuck_and_keeps_its_history() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let run = Client::new(world.clone()).start(circles, 2).await.unwrap();
    let worker = worker(&world).await;
    check_hung(&world, &worker, 2, run.id()).await;
    worker.stop().await.unwrap();
    check_mended(&world, 2, run.id()).await;
    let count = NOTES.lock().iter().filter(|number| **number == 2).count();
    assert_eq!(count, 1, "the outcome that the turn was told is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_threads_are_all_blocked_leaves_its_runs_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    // A runtime of its own, with one thread, which the workflow takes away from it.
    let (started, starts) = std::sync::mpsc::channel();
    let other = self::world(folder.path()).await;
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let worker = worker(&other).await;
            let client = Client::new(other.clone());
            let waits = client.start(waiting, ()).await.unwrap().id();
            let hangs = client.start(circles, 3).await;
            started.send((waits, hangs.map(|run| run.id()).ok())).unwrap();
            worker.crash();
        });
    });
    until_so("the worker to leave", || async {
        let counts = world.counts().await.unwrap();
        counts.get(&Status::Stuck) == Some(&1) && world.workers().await.unwrap().is_empty()
    })
    .await;
    leash(3).let_go();
    let (_, hangs) = starts.recv_timeout(Duration::from_secs(60)).unwrap();
    thread.join().unwrap();
    assert!(hangs.is_some(), "the client's start was answered in the end");
}

/// How often each step was attempted, and which may end.
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

/// Hangs when it is told to, beside two steps, with the outcome of a third.
#[workflow(name = "beside")]
async fn hangs_beside_steps(ctx: Context, number: u32) -> Result<u32, Error> {
    let (one, two) = (ctx.step(gated, number + 1), ctx.step(gated, number + 2));
    ctx.step(gated, number).await?;
    leash(number).run_in_circles();
    Ok(one.await? + two.await?)
}

#[workflow(name = "beside")]
async fn goes_on_beside_steps(ctx: Context, number: u32) -> Result<u32, Error> {
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
    until_so("all attempts", || async { (10..13).all(|number| gates.count(number) == 1) }).await;
    gates.open(10);
    until_so("the turn to hang", || async { old.metrics().turns_hung == 1 }).await;
    gates.open(11);
    assert_ne!(world.run(run.id()).await.unwrap().status, Status::Stuck, "an attempt is running");
    gates.open(12);
    until_stuck(&world, run.id()).await;
    leash(10).let_go();
    old.stop().await.unwrap();
    let new = gated_worker(&world, &gates).register(goes_on_beside_steps).build("new").start().await.unwrap();
    assert_eq!(in_time("the end", run.output()).await.unwrap(), 23);
    assert_eq!([10, 11, 12].map(|number| gates.count(number)), [1; 3], "no attempt is made again");
    new.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn attempts_of_a_run_that_hangs_are_awaited_for_the_drain_time_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let (world, gates) = (world(folder.path()).await, Gates::default());
    let old = gated_worker(&world, &gates).register(hangs_beside_steps).drain("200ms").start().await.unwrap();
    let run = Client::new(world.clone()).start(hangs_beside_steps, 20).await.unwrap();
    until_so("all attempts", || async { (20..23).all(|number| gates.count(number) == 1) }).await;
    gates.open(20);
    until_stuck(&world, run.id()).await;
    leash(20).let_go();
    old.stop().await.unwrap();
}

#[workflow]
async fn waiting(ctx: Context) -> Result<(), Error> {
    ctx.hook::<()>("never").await
}
