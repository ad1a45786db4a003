//! Runs that another claim has locked at the moment of a claim: they are due again soon, not when the next change signal fires.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::time::Duration;

use common::{LONG, Place, join, new_start, request, start};
use outlast_core::{
    ClaimRequest, Headers, MessageBody, MessageId, NewMessage, RunId, SessionId, Start, SuspectRoom, World,
};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);
const ONE: RunId = RunId::from_bits(1);
const TWO: RunId = RunId::from_bits(2);

/// When one looks again for a run that somebody has locked.
const SOON: Duration = Duration::from_millis(5);

/// Makes suspects of all runs, of the class that is carried alone.
async fn suspect(place: &Place) {
    let sql = format!("UPDATE {}.runs SET crashes = 4", place.schema);
    place.connect().await.batch_execute(&sql).await.unwrap();
}

/// Has a run locked, as another claim has.
async fn lock(place: &Place, run: RunId) -> tokio_postgres::Client {
    let other = place.connect().await;
    let sql = format!("BEGIN; SELECT 1 FROM {}.runs WHERE id = '{run}' FOR NO KEY UPDATE", place.schema);
    other.batch_execute(&sql).await.unwrap();
    other
}

#[tokio::test]
async fn a_suspect_that_another_claim_has_locked_is_due_soon() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    join(&world, SESSION, LONG).await;
    start(&world, ONE).await;
    suspect(&place).await;
    let other = lock(&place, ONE).await;
    let work = world.claim(SESSION, request()).await.unwrap();
    assert!(work.claimed.is_empty());
    assert_eq!(work.next_due, Some(place.clock.now().plus(SOON)));
    let without_room = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    assert_eq!(world.claim(SESSION, without_room).await.unwrap().next_due, None);
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(world.claim(SESSION, request()).await.unwrap().claimed.len(), 1);
}

#[tokio::test]
async fn a_suspect_behind_another_is_not_looked_for_again_and_again() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    join(&world, SESSION, LONG).await;
    start(&world, ONE).await;
    start(&world, TWO).await;
    let body = MessageBody::Terminate { reason: "enough".into() };
    let terminate = NewMessage { id: MessageId::from_bits(1), run: TWO, body, headers: Headers::new() };
    world.send(vec![terminate]).await.unwrap().remove(0).unwrap();
    suspect(&place).await;
    let work = world.claim(SESSION, request()).await.unwrap();
    assert_eq!((work.claimed.len(), work.next_due), (1, None), "the other one waits for the first");
    let without_room = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    let work = world.claim(SESSION, without_room).await.unwrap();
    assert_eq!((work.claimed.len(), work.next_due), (0, None));
}

#[tokio::test]
async fn an_overdue_run_that_another_claim_has_locked_is_due_soon() {
    let place = Place::new(TestClock::new());
    let world = place.open().await;
    join(&world, SESSION, LONG).await;
    // Of a workflow whose code nobody has.
    let deadline = Some(place.clock.now().plus(SOON));
    let late = Start { deadline, workflow: "gone".into(), ..new_start(ONE) };
    world.start(vec![late]).await.unwrap().remove(0).unwrap();
    place.clock.advance("2m");
    let ends_overdue = || ClaimRequest { ends_overdue_from: TestClock::BEGIN, ..request() };
    let other = lock(&place, ONE).await;
    let work = world.claim(SESSION, ends_overdue()).await.unwrap();
    assert!(work.claimed.is_empty());
    assert_eq!(work.next_due, Some(place.clock.now().plus(SOON)));
    other.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(world.claim(SESSION, ends_overdue()).await.unwrap().claimed.len(), 1);
}
