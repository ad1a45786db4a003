//! What the tests share: a schema of their own on a real server, and a world in it.

#![allow(dead_code, reason = "not every test needs all of it")]

pub(crate) mod big;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outlast_core::event::{FORMAT, RULES};
use outlast_core::queue::{default_queue, default_queues};
use outlast_core::turn::LastTurn;
use outlast_core::{
    ClaimRequest, Claimed, Code, Committed, Event, Headers, Join, OpNumber, Payload, RunId, SessionId, Start,
    SuspectRoom, Tags, Then, Timestamp, Turn, TurnId, World, WorldError,
};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

/// A session that does not expire while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// A schema of its own on a server.
pub(crate) struct Place {
    pub(crate) server: String,
    pub(crate) schema: String,
    pub(crate) clock: TestClock,
}

impl Place {
    /// On the server for tests.
    pub(crate) fn new(clock: TestClock) -> Self {
        Self::on(throwaway::postgres::for_tests(), clock)
    }

    /// On this server.
    pub(crate) fn on(server: &str, clock: TestClock) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { server: server.into(), schema: format!("test_{}_{number}", std::process::id()), clock }
    }

    pub(crate) fn url(&self) -> String {
        let joint = if self.server.contains('?') { '&' } else { '?' };
        format!("{}{joint}schema={}&pool=4", self.server, self.schema)
    }

    /// A world whose clock the test moves.
    pub(crate) async fn open(&self) -> PostgresWorld {
        let options = PostgresOptions::new().clock(Arc::new(self.clock.clone()));
        PostgresWorld::open(&self.url(), options).await.unwrap()
    }

    /// A world on the database's clock.
    pub(crate) async fn open_real(&self) -> PostgresWorld {
        PostgresWorld::open(&self.url(), PostgresOptions::new()).await.unwrap()
    }

    /// A plain connection to the server.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// A start of workflow `w` with nothing special about it.
pub(crate) fn new_start(run: RunId) -> Start {
    Start {
        run,
        turn: TurnId::from_bits(run.bits()),
        workflow: "w".into(),
        version: 1,
        rules: RULES,
        queue: default_queue(),
        priority: 0,
        key: None,
        input: Payload::null(),
        headers: Headers::new(),
        tags: Tags::new(),
        parent: None,
        not_before: None,
        deadline: None,
        policy: None,
    }
}

pub(crate) fn code() -> Arc<[Code]> {
    Arc::new([Code { workflow: "w".into(), version: 1 }])
}

pub(crate) async fn join(world: &PostgresWorld, session: SessionId, time: Duration) {
    let (code, queues) = (code(), default_queues());
    let join = Join {
        session,
        host: "here".into(),
        pid: 1,
        build: "b".into(),
        code,
        queues,
        time,
        rules: RULES,
        format: FORMAT,
    };
    world.join(join).await.unwrap();
}

pub(crate) async fn start(world: &PostgresWorld, run: RunId) {
    world.start(vec![new_start(run)]).await.unwrap().remove(0).unwrap();
}

pub(crate) async fn try_claim(world: &PostgresWorld, session: SessionId) -> Result<Vec<Claimed>, WorldError> {
    Ok(world.claim(session, request()).await?.claimed)
}

pub(crate) fn request() -> ClaimRequest {
    ClaimRequest {
        limit: 10,
        code: code(),
        queues: default_queues(),
        build: "b".into(),
        format: FORMAT,
        suspects: SuspectRoom::AnyClass { room: 10 },
        ends_overdue_from: Timestamp::NEVER,
    }
}

/// The last event of a run that has done its work.
pub(crate) fn completed() -> Event {
    Event::RunCompleted { output: Payload::null() }
}

pub(crate) async fn claim(world: &PostgresWorld, session: SessionId) -> Vec<Claimed> {
    try_claim(world, session).await.unwrap()
}

/// A turn with one event.
pub(crate) fn step(run: RunId, from: TurnId, seq: u64, id: u128, then: Then) -> Turn {
    Turn {
        events: vec![Event::StepDropped { op: OpNumber(seq) }],
        then,
        ..Turn::following(
            &LastTurn::new(run, from, seq),
            TurnId::from_bits(id),
            Timestamp::from_micros(1),
            "b".into(),
        )
    }
}

/// Commits turns, those that somebody else blocks again and again.
pub(crate) async fn commit_patiently(
    world: &PostgresWorld,
    session: SessionId,
    turns: &[Turn],
) -> Vec<Result<Committed, WorldError>> {
    let mut answers = world.commit(session, turns).await.unwrap();
    for (turn, answer) in turns.iter().zip(&mut answers) {
        while matches!(answer, Err(WorldError::Blocked(_))) {
            *answer = world.commit(session, std::slice::from_ref(turn)).await.unwrap().remove(0);
        }
    }
    answers
}

/// Commits one turn, again and again while somebody else blocks it.
pub(crate) async fn commit(world: &PostgresWorld, session: SessionId, turn: Turn) -> Result<(), WorldError> {
    loop {
        let answer = world.commit(session, std::slice::from_ref(&turn)).await?.remove(0);
        if !matches!(answer, Err(WorldError::Blocked(_))) {
            return answer.map(|_| ());
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "a test of real time looks again and again")]
/// Tries until the condition holds; panics when it does not within a minute.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let patience = tokio::time::timeout(Duration::from_secs(60), async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(patience.await.is_ok(), "within a minute not: {what}");
}
