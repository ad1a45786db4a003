//! The connections on which a worker commits: its own runtime drives them, and without them nothing is lost.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real time")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{NO_EXPIRY, TestSchema, claim, commit, join, one_event_turn, start, wait_until};
use outlast_core::{RunId, SessionId, Then, Turn, TurnId, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const SESSION: SessionId = SessionId::from_bits(1);
const RUN: RunId = RunId::from_bits(3);

/// Less than the time after which a statement without an answer is given up.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A world whose connections can be counted on the server, with a run that a session holds.
struct Scene {
    world: Arc<PostgresWorld>,
    admin: tokio_postgres::Client,
    name: String,
    /// The last turn of the run, and the number of its next event.
    last: (TurnId, u64),
}

impl Scene {
    async fn new() -> Self {
        let test_schema = TestSchema::new(TestClock::new());
        let name = test_schema.schema.clone();
        let url = format!("{}&application_name={name}", test_schema.url());
        let world = Arc::new(PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap());
        join(&world, SESSION, NO_EXPIRY).await;
        start(&world, RUN).await;
        let last = (claim(&world, SESSION).await.remove(0).turn, 1);
        Self { world, admin: test_schema.connect().await, name, last }
    }

    /// The next turn of the run.
    fn next_turn(&mut self) -> Turn {
        let (from, seq) = self.last;
        let turn = one_event_turn(RUN, from, seq, 100 + u128::from(seq), Then::Hold);
        self.last = (turn.id, seq + 1);
        turn
    }

    /// The server processes of the world's connections.
    async fn connections(&self) -> BTreeSet<i32> {
        self.pids("").await
    }

    /// The server processes of the world's connections whose last statement was a commit.
    async fn commit_connections(&self) -> BTreeSet<i32> {
        self.pids("AND query LIKE '%.commit%'").await
    }

    async fn pids(&self, condition: &str) -> BTreeSet<i32> {
        let sql = format!("SELECT pid FROM pg_stat_activity WHERE application_name = $1 {condition}");
        self.admin.query(&sql, &[&self.name]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Commits the next turn on a thread of this runtime.
    async fn commit_on(&mut self, runtime: &Runtime) {
        let (world, turn) = (self.world.clone(), self.next_turn());
        runtime.spawn(async move { commit(&world, SESSION, turn).await }).await.unwrap().unwrap();
    }

    /// Checks that every turn is stored once.
    async fn check_history(&self) {
        let history = self.world.history(RUN, 0, 1_000).await.unwrap();
        let events: usize = history.iter().map(|turn| turn.events.len()).sum();
        assert_eq!(events as u64, self.last.1);
        assert_eq!(history.last().unwrap().id, self.last.0);
    }
}

fn runtime_with_threads(threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runtime_of_a_worker_drives_the_connections_of_its_commits() {
    let mut scene = Scene::new().await;
    let shared = scene.connections().await;
    let runtime = runtime_with_threads(1);
    for _ in 0..10 {
        scene.commit_on(&runtime).await;
    }
    let own = scene.commit_connections().await;
    assert_eq!(own.len(), 1, "one after the other, on the same connection");
    assert!(own.is_disjoint(&shared), "it does not belong to the shared pool");
    runtime.shutdown_background();
    wait_until("the connection ends with its runtime", async || own.is_disjoint(&scene.connections().await))
        .await;
    scene.check_history().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_end_of_the_runtime_its_session_commits_on_the_shared_pool() {
    let mut scene = Scene::new().await;
    let runtime = runtime_with_threads(1);
    scene.commit_on(&runtime).await;
    runtime.shutdown_background();
    let turn = scene.next_turn();
    commit(&scene.world, SESSION, turn).await.unwrap();
    scene.check_history().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_from_elsewhere_does_not_wait_for_a_runtime_whose_threads_are_blocked() {
    let mut scene = Scene::new().await;
    let runtime = runtime_with_threads(1);
    scene.commit_on(&runtime).await;
    let is_released = Arc::new(AtomicBool::new(false));
    let (is_blocked, blocked) = oneshot::channel();
    let block = is_released.clone();
    runtime.spawn(async move {
        is_blocked.send(()).unwrap();
        while !block.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    });
    blocked.await.unwrap();
    let turn = scene.next_turn();
    let committed = tokio::time::timeout(TIME_LIMIT, commit(&scene.world, SESSION, turn)).await;
    is_released.store(true, Ordering::Release);
    runtime.shutdown_background();
    committed.expect("in time").unwrap();
    scene.check_history().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_is_replaced_and_the_turn_is_committed_once() {
    let mut scene = Scene::new().await;
    for _ in 0..5 {
        let turn = scene.next_turn();
        commit(&scene.world, SESSION, turn).await.unwrap();
        for pid in scene.commit_connections().await {
            scene.admin.query("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
        }
        let turn = scene.next_turn();
        // A worker repeats it in the same way.
        while let Err(error) = commit(&scene.world, SESSION, turn.clone()).await {
            assert!(matches!(error, WorldError::Unavailable(_)), "{error:?}");
        }
    }
    scene.check_history().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connections_of_a_session_are_closed_when_it_leaves() {
    let mut scene = Scene::new().await;
    let turn = scene.next_turn();
    commit(&scene.world, SESSION, turn).await.unwrap();
    let own = scene.commit_connections().await;
    assert_eq!(own.len(), 1);
    scene.world.leave(SESSION).await.unwrap();
    wait_until("the connection is closed", async || own.is_disjoint(&scene.connections().await)).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_runtime_with_one_thread_drives_no_connections() {
    let mut scene = Scene::new().await;
    let shared = scene.connections().await;
    let turn = scene.next_turn();
    commit(&scene.world, SESSION, turn).await.unwrap();
    assert!(scene.commit_connections().await.is_subset(&shared));
    scene.check_history().await;
}
