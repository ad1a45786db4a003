//! A user's trigger raises an error with any code: the turns that it rejects are tried again, and then rejected
//! permanently with the database's message. All other turns are written.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{
    NO_EXPIRY, TestSchema, commit_until_unblocked, completed, join, new_start, one_event_turn, request,
};
use outlast_core::{ClaimRequest, RunId, SessionId, Status, SuspectRoom, Then, Turn, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// Error codes that a trigger may raise: conflicts with other transactions, and errors that usually affect the whole
/// database.
const CODES: [&str; 11] =
    ["40001", "40P01", "57014", "53100", "P0001", "42P01", "42501", "08006", "58030", "57P01", "3F000"];

/// The runs of eight whose turns are rejected.
const REJECTED: [u128; 3] = [2, 4, 7];

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// Starts and claims the runs 1 to 8. Returns turns that end them.
async fn end_turns(world: &PostgresWorld) -> Vec<Turn> {
    join(world, SESSION, NO_EXPIRY).await;
    world.start((1..=8).map(|number| new_start(run(number))).collect()).await.unwrap();
    let all = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    let claimed = world.claim(SESSION, all).await.unwrap().claimed;
    assert_eq!(claimed.len(), 8);
    let end = |claimed: &outlast_core::Claimed| {
        let id = 10_000 + claimed.run.bits();
        let turn = one_event_turn(claimed.run, claimed.turn, claimed.seq, id, Then::End(Status::Completed));
        Turn { events: vec![completed()], ..turn }
    };
    claimed.iter().map(end).collect()
}

/// Adds a trigger that executes `what` for turns of some runs, the first `times` times.
async fn add_trigger(test_schema: &TestSchema, runs: &[u128], times: u32, what: &str) {
    let runs: Vec<String> = runs.iter().map(|number| format!("'{}'", run(*number))).collect();
    let trigger = format!(
        "CREATE SEQUENCE {0}.refusals;
         CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{0}.refusals') <= {times} THEN {what}; END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.turns FOR EACH ROW WHEN (NEW.run IN ({1})) EXECUTE FUNCTION {0}.refuse()",
        test_schema.schema,
        runs.join(", ")
    );
    test_schema.connect().await.batch_execute(&trigger).await.unwrap();
}

fn raise(code: &str) -> String {
    format!("RAISE EXCEPTION 'the ledger is closed' USING ERRCODE = '{code}'")
}

/// Whether a turn is rejected permanently with the trigger's message.
fn is_rejected(answer: &Result<outlast_core::Committed, WorldError>) -> bool {
    matches!(answer, Err(WorldError::Invalid(why)) if why.contains("the ledger is closed"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_a_trigger_always_rejects_are_rejected_permanently_and_the_others_written() {
    for code in CODES {
        let test_schema = TestSchema::new(TestClock::new());
        let world = test_schema.open_real_time().await;
        let turns = end_turns(&world).await;
        add_trigger(&test_schema, &REJECTED, u32::MAX, &raise(code)).await;
        let answers = commit_until_unblocked(&world, SESSION, &turns).await;
        let rejected: BTreeSet<u128> = turns
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| is_rejected(answer))
            .map(|(turn, _)| turn.run.bits())
            .collect();
        assert_eq!(rejected, REJECTED.into(), "{code}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5, "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_a_trigger_rejects_for_a_while_are_written() {
    for code in CODES {
        let test_schema = TestSchema::new(TestClock::new());
        let world = test_schema.open_real_time().await;
        let turns = end_turns(&world).await;
        add_trigger(&test_schema, &[2], 3, &raise(code)).await;
        let answers = commit_until_unblocked(&world, SESSION, &turns).await;
        assert!(answers.iter().all(Result::is_ok), "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_turn_that_a_trigger_always_rejects_is_rejected_permanently() {
    for code in CODES {
        let test_schema = TestSchema::new(TestClock::new());
        let world = test_schema.open_real_time().await;
        let turns = end_turns(&world).await;
        add_trigger(&test_schema, &[2], u32::MAX, &raise(code)).await;
        let answers = commit_until_unblocked(&world, SESSION, &turns[1..2]).await;
        assert!(is_rejected(&answers[0]), "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_trigger_does_not_get_a_lock_is_retried_until_it_does() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    let turns = end_turns(&world).await;
    add_trigger(&test_schema, &REJECTED, 60, &raise("55P03")).await;
    let first = world.commit(SESSION, &turns).await.unwrap();
    assert_eq!(first.iter().filter(|answer| answer.is_ok()).count(), 5, "{first:?}");
    let answers = commit_until_unblocked(&world, SESSION, &turns).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_trigger_takes_too_long_is_tried_separately_from_others() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = Arc::new(
        PostgresWorld::open(&format!("{}&timeout=1", test_schema.url()), PostgresOptions::new())
            .await
            .unwrap(),
    );
    let turns = end_turns(&world).await;
    // It takes too long once together with others, and twice alone.
    add_trigger(&test_schema, &[2], 3, "PERFORM pg_sleep(60)").await;
    let first = world.commit(SESSION, &turns).await.unwrap();
    assert!(first.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_)))), "{first:?}");
    let late = {
        let (world, turn) = (world.clone(), turns[1].clone());
        tokio::spawn(async move { commit_until_unblocked(&world, SESSION, &[turn]).await.remove(0) })
    };
    for turn in turns.iter().filter(|turn| turn.run != run(2)) {
        let answers = world.commit(SESSION, std::slice::from_ref(turn)).await.unwrap();
        assert!(answers[0].is_ok(), "{answers:?}");
    }
    late.await.unwrap().unwrap();
}
