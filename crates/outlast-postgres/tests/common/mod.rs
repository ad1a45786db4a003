//! Shared by the tests: a schema of their own on a real server, a world in it, and helpers for turns.

#![allow(dead_code, reason = "not every test uses all helpers")]

pub(crate) mod large_schema;

use std::sync::Arc;
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

/// The time of a session that does not expire during a test.
pub(crate) const NO_EXPIRY: Duration = Duration::from_secs(3_600);

/// A schema on a server that only one test uses.
pub(crate) struct TestSchema {
    pub(crate) server: String,
    pub(crate) schema: String,
    pub(crate) clock: TestClock,
}

impl TestSchema {
    /// A new schema on the shared test server.
    pub(crate) fn new(clock: TestClock) -> Self {
        Self::on(throwaway::postgres::for_tests(), clock)
    }

    /// A new schema on this server.
    pub(crate) fn on(server: &str, clock: TestClock) -> Self {
        Self { server: server.into(), schema: throwaway::postgres::new_schema_name("test"), clock }
    }

    pub(crate) fn url(&self) -> String {
        throwaway::postgres::schema_url(&self.server, &self.schema) + "&pool=4"
    }

    /// A world with the test's virtual clock.
    pub(crate) async fn open(&self) -> PostgresWorld {
        let options = PostgresOptions::new().clock(Arc::new(self.clock.clone()));
        PostgresWorld::open(&self.url(), options).await.unwrap()
    }

    /// A world with the database's clock.
    pub(crate) async fn open_real_time(&self) -> PostgresWorld {
        PostgresWorld::open(&self.url(), PostgresOptions::new()).await.unwrap()
    }

    /// A connection to the server that does not belong to a world.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// A start of workflow `w` without options.
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
        requester: None,
        ending: None,
    }
}

pub(crate) fn code() -> Arc<[Code]> {
    Arc::new([Code { workflow: "w".into(), version: 1 }])
}

pub(crate) async fn join(world: &PostgresWorld, session: SessionId, time: Duration) {
    try_join(world, session, time).await.unwrap();
}

pub(crate) async fn try_join(
    world: &PostgresWorld,
    session: SessionId,
    time: Duration,
) -> Result<(), WorldError> {
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
    world.join(join).await
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

/// The last event of a completed run.
pub(crate) fn completed() -> Event {
    Event::RunCompleted { output: Payload::null() }
}

pub(crate) async fn claim(world: &PostgresWorld, session: SessionId) -> Vec<Claimed> {
    try_claim(world, session).await.unwrap()
}

/// A turn with one event.
pub(crate) fn one_event_turn(run: RunId, from: TurnId, seq: u64, id: u128, then: Then) -> Turn {
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

/// Commits turns. Repeats blocked ones until they are no longer blocked.
pub(crate) async fn commit_until_unblocked(
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

/// Commits one turn. Repeats it while it is blocked.
pub(crate) async fn commit(world: &PostgresWorld, session: SessionId, turn: Turn) -> Result<(), WorldError> {
    loop {
        let answer = world.commit(session, std::slice::from_ref(&turn)).await?.remove(0);
        if !matches!(answer, Err(WorldError::Blocked(_))) {
            return answer.map(|_| ());
        }
    }
}

/// Polls until the condition holds. Panics if it does not within a minute.
#[allow(clippy::disallowed_methods, reason = "polls in real time")]
pub(crate) async fn wait_until(what: &str, mut condition_holds: impl AsyncFnMut() -> bool) {
    let condition = tokio::time::timeout(Duration::from_secs(60), async {
        while !condition_holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(condition.await.is_ok(), "not within a minute: {what}");
}
