//! Slow values: a `Drop` or a codec of the user that blocks its thread delays neither other runs nor the session.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex as StdMutex};

use outlast::core::{Codec, Payload, PayloadError, PlainJson};
use outlast::prelude::*;
use outlast::{RunId, Status, World};
use parking_lot::Mutex;

use super::test_engine::with_timeout;

/// Where values block their threads when they are dropped.
#[derive(Debug, Default)]
struct DropGate {
    state: StdMutex<DropCounts>,
    changed: Condvar,
    /// The number of drops that must be in progress at the same time before one of them ends.
    together: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct DropCounts {
    is_open: bool,
    began: usize,
    ended: usize,
}

impl DropGate {
    /// Blocks this thread until the gate is open, or enough other threads are here.
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.began += 1;
        let group_end = state.began.next_multiple_of(self.together.max(1));
        self.changed.notify_all();
        let is_held = |state: &mut DropCounts| {
            let is_met = self.together > 0 && state.began >= group_end;
            !state.is_open && !is_met
        };
        let mut state = self.changed.wait_while(state, is_held).unwrap();
        state.ended += 1;
        self.changed.notify_all();
    }

    fn counts(&self) -> DropCounts {
        *self.state.lock().unwrap()
    }

    async fn wait_until(&self, is_expected: impl Fn(DropCounts) -> bool) {
        while !is_expected(self.counts()) {
            tokio::task::yield_now().await;
        }
    }
}

/// Opens the gate when the test ends, also if it fails: the runtime waits for blocked threads.
struct OpenAtEnd(Arc<DropGate>);

impl OpenAtEnd {
    fn open(&self) {
        self.0.state.lock().unwrap().is_open = true;
        self.0.changed.notify_all();
    }
}

impl Drop for OpenAtEnd {
    fn drop(&mut self) {
        self.open();
    }
}

/// The gates of the tests, by the name that workflows get as their input.
static GATES: Mutex<BTreeMap<String, Arc<DropGate>>> = Mutex::new(BTreeMap::new());

/// A gate at which drops block until it is opened, or until `together` of them are in progress.
fn new_gate(name: &str, together: usize) -> OpenAtEnd {
    let gate = Arc::new(DropGate { together, ..DropGate::default() });
    GATES.lock().insert(name.to_owned(), gate.clone());
    OpenAtEnd(gate)
}

/// A value of the user whose `Drop` blocks.
struct SlowValue(Arc<DropGate>);

impl SlowValue {
    fn at(gate: &str) -> Self {
        Self(GATES.lock()[gate].clone())
    }
}

impl Drop for SlowValue {
    fn drop(&mut self) {
        self.0.pass();
    }
}

#[workflow]
async fn waits(ctx: Context, gate: String) -> Result<(), Error> {
    let _slow = SlowValue::at(&gate);
    ctx.hook::<()>("never").await
}

#[workflow]
async fn attempts(ctx: Context, gate: String) -> Result<(), Error> {
    ctx.step(hangs, gate).await
}

#[step]
async fn hangs(gate: String) {
    let _slow = SlowValue::at(&gate);
    std::future::pending::<()>().await;
}

#[workflow]
async fn quick(ctx: Context) -> Result<String, Error> {
    ctx.step(work, ()).await
}

#[step]
async fn work() -> String {
    "done".into()
}

async fn start_worker(world: &Arc<dyn World>, cached: usize, drain: &str) -> Worker {
    let code = (waits, attempts, hangs, quick, work);
    let builder = Worker::builder(world.clone()).cached_futures(cached).drain(drain).register(code);
    builder.start().await.unwrap()
}

async fn wait_for_status(client: &Client, runs: &[RunId], status: Status) {
    for run in runs {
        while client.run(*run).await.unwrap().status != status {
            tokio::task::yield_now().await;
        }
    }
}

/// Starts runs whose futures are in the worker's cache.
async fn start_waiting(client: &Client, gate: &str, count: usize) -> Vec<RunId> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(client.start(waits, gate.to_owned()).await.unwrap().id());
    }
    wait_for_status(client, &runs, Status::Waiting).await;
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_drops_of_a_lost_session_stall_no_other_run() {
    with_timeout(async {
        let gate = new_gate("lost session", 0);
        let world = outlast::open("memory:").await.unwrap();
        let (worker, client) = (start_worker(&world, 1_000, "30s").await, Client::new(world.clone()));
        start_waiting(&client, "lost session", 100).await;
        let lost = worker.session();
        world.leave(lost).await.unwrap();
        for _ in 0..10 {
            assert_eq!(client.start(quick, ()).await.unwrap().output().await.unwrap(), "done");
        }
        assert_ne!(worker.session(), lost, "the worker joined again");
        gate.0.wait_until(|counts| counts.began > 0).await;
        assert_eq!(gate.0.counts().ended, 0, "every drop is still blocked");
        gate.open();
        gate.0.wait_until(|counts| counts.ended == 100).await;
        worker.stop().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_drops_of_attempts_of_a_lost_session_stall_no_other_run() {
    with_timeout(async {
        let gate = new_gate("lost attempts", 0);
        let world = outlast::open("memory:").await.unwrap();
        let (worker, client) = (start_worker(&world, 1_000, "30s").await, Client::new(world.clone()));
        for _ in 0..8 {
            client.start(attempts, "lost attempts".to_owned()).await.unwrap();
        }
        while worker.metrics().attempts_started < 8 {
            tokio::task::yield_now().await;
        }
        let lost = worker.session();
        world.leave(lost).await.unwrap();
        assert_eq!(client.start(quick, ()).await.unwrap().output().await.unwrap(), "done");
        gate.0.wait_until(|counts| counts.began >= 8).await;
        assert_eq!(client.start(quick, ()).await.unwrap().output().await.unwrap(), "done");
        assert_eq!(gate.0.counts().ended, 0, "every drop is still blocked");
        gate.open();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_drops_of_evicted_futures_stall_no_other_run() {
    with_timeout(async {
        let gate = new_gate("evicted", 0);
        let world = outlast::open("memory:").await.unwrap();
        let (worker, client) = (start_worker(&world, 1, "30s").await, Client::new(world.clone()));
        start_waiting(&client, "evicted", 10).await;
        gate.0.wait_until(|counts| counts.began == 9).await;
        assert_eq!(client.start(quick, ()).await.unwrap().output().await.unwrap(), "done");
        assert_eq!(gate.0.counts().ended, 0, "every drop is still blocked");
        gate.open();
        worker.stop().await.unwrap();
    })
    .await;
}

/// If they were dropped one after the other, the first would wait for the others forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_drops_futures_concurrently() {
    with_timeout(async {
        let gate = new_gate("stop", 4);
        let world = outlast::open("memory:").await.unwrap();
        let worker = start_worker(&world, 1_000, "1h").await;
        start_waiting(&Client::new(world), "stop", 100).await;
        worker.stop().await.unwrap();
        assert_eq!(gate.0.counts().ended, 100);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_slow_drops_for_at_most_the_drain_time() {
    with_timeout(async {
        let gate = new_gate("drain", 0);
        let world = outlast::open("memory:").await.unwrap();
        let worker = start_worker(&world, 1_000, "50ms").await;
        start_waiting(&Client::new(world), "drain", 20).await;
        worker.stop().await.unwrap();
        assert_eq!(gate.0.counts().ended, 0, "every drop is still blocked");
        gate.open();
    })
    .await;
}

/// A codec that blocks its thread for values with the text `slow`.
#[derive(Debug)]
struct SlowCodec(Arc<DropGate>);

impl Codec for SlowCodec {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        if format!("{plain:?}").contains("slow") {
            self.0.pass();
        }
        PlainJson.encode(plain)
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        PlainJson.decode(stored)
    }
}

#[step(blocking)]
fn reports(cx: StepContext) {
    cx.heartbeat("slow details");
}

#[workflow]
async fn reporting(ctx: Context) -> Result<(), Error> {
    ctx.step(reports, ()).await
}

/// In real time, since workers send no beats in virtual time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_codec_that_blocks_does_not_delay_the_beats() {
    with_timeout(async {
        let gate = new_gate("codec", 0);
        let world = outlast::open("memory:").await.unwrap();
        let builder = Worker::builder(world.clone()).codec(SlowCodec(gate.0.clone())).session_time("500ms");
        let worker = builder.register((reporting, reports)).start().await.unwrap();
        let run = Client::new(world).start(reporting, ()).await.unwrap();
        gate.0.wait_until(|counts| counts.began == 1).await;
        let beats = worker.metrics().beats;
        while worker.metrics().beats < beats + 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!((gate.0.counts().ended, worker.metrics().sessions_lost), (0, 0));
        gate.open();
        run.output().await.unwrap();
        worker.stop().await.unwrap();
    })
    .await;
}
