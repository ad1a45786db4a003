//! Runs that another transaction has locked during a claim are due again soon, without another change signal.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{NO_EXPIRY, TestSchema, join, new_start, request, start};
use outlast_core::{
    ClaimRequest, Headers, MessageBody, MessageId, NewMessage, RunId, SessionId, Start, SuspectRoom, World,
};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const ONE: RunId = RunId::from_bits(1);
const TWO: RunId = RunId::from_bits(2);

/// When a worker tries again to claim a locked run.
const RETRY_DELAY: Duration = Duration::from_millis(5);

/// Makes all runs suspects of the last crash class.
async fn make_suspects(test_schema: &TestSchema) {
    let sql = format!("UPDATE {}.runs SET crashes = 4", test_schema.schema);
    test_schema.connect().await.batch_execute(&sql).await.unwrap();
}

/// Locks a run, as a concurrent claim does.
async fn lock(test_schema: &TestSchema, run: RunId) -> tokio_postgres::Client {
    let other = test_schema.connect().await;
    let sql =
        format!("BEGIN; SELECT 1 FROM {}.runs WHERE id = '{run}' FOR NO KEY UPDATE", test_schema.schema);
    other.batch_execute(&sql).await.unwrap();
    other
}

#[tokio::test]
async fn a_locked_suspect_is_due_soon() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    join(&world, SESSION, NO_EXPIRY).await;
    start(&world, ONE).await;
    make_suspects(&test_schema).await;
    let other = lock(&test_schema, ONE).await;
    let work = world.claim(SESSION, request()).await.unwrap();
    assert!(work.claimed.is_empty());
    assert_eq!(work.next_due, Some(test_schema.clock.now().plus(RETRY_DELAY)));
    let without_room = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    assert_eq!(world.claim(SESSION, without_room).await.unwrap().next_due, None);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(world.claim(SESSION, request()).await.unwrap().claimed.len(), 1);
}

#[tokio::test]
async fn a_suspect_that_waits_for_another_is_not_due() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    join(&world, SESSION, NO_EXPIRY).await;
    start(&world, ONE).await;
    start(&world, TWO).await;
    let body = MessageBody::Terminate { reason: "enough".into() };
    let terminate = NewMessage { id: MessageId::from_bits(1), run: TWO, body, headers: Headers::new() };
    world.send(vec![terminate]).await.unwrap().remove(0).unwrap();
    make_suspects(&test_schema).await;
    let work = world.claim(SESSION, request()).await.unwrap();
    assert_eq!((work.claimed.len(), work.next_due), (1, None), "the second suspect waits for the first");
    let without_room = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    let work = world.claim(SESSION, without_room).await.unwrap();
    assert_eq!((work.claimed.len(), work.next_due), (0, None));
}

#[tokio::test]
async fn a_locked_overdue_run_is_due_soon() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    join(&world, SESSION, NO_EXPIRY).await;
    // No worker has the code of its workflow.
    let deadline = Some(test_schema.clock.now().plus(RETRY_DELAY));
    let late = Start { deadline, workflow: "gone".into(), ..new_start(ONE) };
    world.start(vec![late]).await.unwrap().remove(0).unwrap();
    test_schema.clock.advance("2m");
    let ends_overdue = || ClaimRequest { ends_overdue_from: TestClock::BEGIN, ..request() };
    let other = lock(&test_schema, ONE).await;
    let work = world.claim(SESSION, ends_overdue()).await.unwrap();
    assert!(work.claimed.is_empty());
    assert_eq!(work.next_due, Some(test_schema.clock.now().plus(RETRY_DELAY)));
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(world.claim(SESSION, ends_overdue()).await.unwrap().claimed.len(), 1);
}
