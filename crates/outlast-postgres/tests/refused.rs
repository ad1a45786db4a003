//! What a trigger raises, whatever its code: the turns that it refuses are tried again, and then refused for good with the
//! database's message. All others are written.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;

use common::{LONG, Place, commit_patiently, completed, join, new_start, request, step};
use outlast_core::{ClaimRequest, RunId, SessionId, Status, SuspectRoom, Then, Turn, World, WorldError};
use outlast_postgres::{PostgresOptions, PostgresWorld};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// What a trigger may raise: conflicts with others, and what usually concerns the whole database.
const CODES: [&str; 11] =
    ["40001", "40P01", "57014", "53100", "P0001", "42P01", "42501", "08006", "58030", "57P01", "3F000"];

/// The runs that are refused, of eight.
const REFUSED: [u128; 3] = [2, 4, 7];

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

/// Turns that end the runs 1 to 8, which the session holds.
async fn ends(world: &PostgresWorld) -> Vec<Turn> {
    join(world, SESSION, LONG).await;
    world.start((1..=8).map(|number| new_start(run(number))).collect()).await.unwrap();
    let all = ClaimRequest { suspects: SuspectRoom::Nothing, ..request() };
    let claimed = world.claim(SESSION, all).await.unwrap().claimed;
    assert_eq!(claimed.len(), 8);
    let end = |claimed: &outlast_core::Claimed| {
        let id = 10_000 + claimed.run.bits();
        let turn = step(claimed.run, claimed.turn, claimed.seq, id, Then::End(Status::Completed));
        Turn { events: vec![completed()], ..turn }
    };
    claimed.iter().map(end).collect()
}

/// Lets a trigger do something with the turns of some runs, the first so many times.
async fn disturb(place: &Place, runs: &[u128], times: u32, what: &str) {
    let runs: Vec<String> = runs.iter().map(|number| format!("'{}'", run(*number))).collect();
    let trigger = format!(
        "CREATE SEQUENCE {0}.refusals;
         CREATE FUNCTION {0}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('{0}.refusals') <= {times} THEN {what}; END IF;
            RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON {0}.turns FOR EACH ROW WHEN (NEW.run IN ({1})) EXECUTE FUNCTION {0}.refuse()",
        place.schema,
        runs.join(", ")
    );
    place.connect().await.batch_execute(&trigger).await.unwrap();
}

fn raise(code: &str) -> String {
    format!("RAISE EXCEPTION 'the ledger is closed' USING ERRCODE = '{code}'")
}

/// Whether a turn is refused for good with what the trigger said.
fn is_refused(answer: &Result<outlast_core::Committed, WorldError>) -> bool {
    matches!(answer, Err(WorldError::Invalid(why)) if why.contains("the ledger is closed"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_a_trigger_always_refuses_are_refused_for_good_and_the_others_written() {
    for code in CODES {
        let place = Place::new(TestClock::new());
        let world = place.open_real().await;
        let turns = ends(&world).await;
        disturb(&place, &REFUSED, u32::MAX, &raise(code)).await;
        let answers = commit_patiently(&world, SESSION, &turns).await;
        let refused: BTreeSet<u128> = turns
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| is_refused(answer))
            .map(|(turn, _)| turn.run.bits())
            .collect();
        assert_eq!(refused, REFUSED.into(), "{code}: {answers:?}");
        assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5, "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_a_trigger_refuses_for_a_while_are_written() {
    for code in CODES {
        let place = Place::new(TestClock::new());
        let world = place.open_real().await;
        let turns = ends(&world).await;
        disturb(&place, &[2], 3, &raise(code)).await;
        let answers = commit_patiently(&world, SESSION, &turns).await;
        assert!(answers.iter().all(Result::is_ok), "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_turn_alone_that_is_always_refused_is_refused_for_good_too() {
    for code in CODES {
        let place = Place::new(TestClock::new());
        let world = place.open_real().await;
        let turns = ends(&world).await;
        disturb(&place, &[2], u32::MAX, &raise(code)).await;
        let answers = commit_patiently(&world, SESSION, &turns[1..2]).await;
        assert!(is_refused(&answers[0]), "{code}: {answers:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_a_trigger_does_not_get_is_waited_for() {
    let place = Place::new(TestClock::new());
    let world = place.open_real().await;
    let turns = ends(&world).await;
    disturb(&place, &REFUSED, 60, &raise("55P03")).await;
    let first = world.commit(SESSION, &turns).await.unwrap();
    assert_eq!(first.iter().filter(|answer| answer.is_ok()).count(), 5, "{first:?}");
    let answers = commit_patiently(&world, SESSION, &turns).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_trigger_takes_too_long_is_tried_apart_from_the_others() {
    let place = Place::new(TestClock::new());
    let world = Arc::new(
        PostgresWorld::open(&format!("{}&timeout=1", place.url()), PostgresOptions::new()).await.unwrap(),
    );
    let turns = ends(&world).await;
    // Once with the others, and twice alone.
    disturb(&place, &[2], 3, "PERFORM pg_sleep(60)").await;
    let first = world.commit(SESSION, &turns).await.unwrap();
    assert!(first.iter().all(|answer| matches!(answer, Err(WorldError::Blocked(_)))), "{first:?}");
    let late = {
        let (world, turn) = (world.clone(), turns[1].clone());
        tokio::spawn(async move { commit_patiently(&world, SESSION, &[turn]).await.remove(0) })
    };
    for turn in turns.iter().filter(|turn| turn.run != run(2)) {
        let answers = world.commit(SESSION, std::slice::from_ref(turn)).await.unwrap();
        assert!(answers[0].is_ok(), "{answers:?}");
    }
    late.await.unwrap().unwrap();
}
