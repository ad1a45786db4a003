//! A schema that is dropped while a world is open: calls fail for good, with the cause and the remedy.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NO_EXPIRY, TestSchema, claim, completed, join, new_start, one_event_turn, start, try_claim};
use outlast_core::{
    Headers, MessageBody, MessageId, NewMessage, Payload, Report, RunId, RunQuery, SessionId, Status, Then,
    Timestamp, World, WorldError,
};
use outlast_testkit::TestClock;

const RUN: RunId = RunId::from_bits(1);
const SESSION: SessionId = SessionId::from_bits(1);

#[track_caller]
fn assert_dropped<T: std::fmt::Debug>(what: &str, answer: Result<T, WorldError>) {
    let error = answer.unwrap_err();
    let WorldError::Gone(text) = &error else { panic!("{what}: {error:?}") };
    assert!(text.contains("were dropped while the world was open"), "{what}: {text}");
    assert!(text.contains("restore a backup"), "{what}: {text}");
    assert!(!error.is_transient(), "{what}: it is not retried");
}

async fn check_calls_after(drop_sql: fn(&str) -> String) {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    join(&world, SESSION, NO_EXPIRY).await;
    start(&world, RUN).await;
    let claimed = claim(&world, SESSION).await;
    world.run(RUN).await.unwrap();
    world.counts().await.unwrap();
    test_schema.connect().await.batch_execute(&drop_sql(&test_schema.schema)).await.unwrap();

    let one = |answers: Result<Vec<_>, _>| answers.and_then(|mut answers| answers.remove(0));
    assert_dropped("start", one(world.start(vec![new_start(RunId::from_bits(2))]).await));
    let starts = (10..40).map(|run| new_start(RunId::from_bits(run))).collect();
    assert_dropped("starts", one(world.start(starts).await));
    let mut end = one_event_turn(RUN, claimed[0].turn, 1, 10, Then::End(Status::Completed));
    end.events = vec![completed()];
    assert_dropped("commit", common::commit(&world, SESSION, end).await);
    let body = MessageBody::Hook { name: "x".into(), payload: Payload::null(), to: Default::default() };
    let message = NewMessage { id: MessageId::from_bits(1), run: RUN, body, headers: Headers::new() };
    let sent = world.send(vec![message]).await.and_then(|mut answers| answers.remove(0));
    assert_dropped("send", sent);
    assert_dropped("claim", try_claim(&world, SESSION).await);
    assert_dropped("beat", world.beat(SESSION, &Report::default(), &[]).await);
    assert_dropped("run", world.run(RUN).await);
    assert_dropped("runs", world.runs(RunQuery { limit: 10, ..RunQuery::default() }).await);
    assert_dropped("prune", world.prune(Timestamp::NEVER, None, 10).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_the_schema_was_dropped_fail_for_good() {
    check_calls_after(|schema| format!("DROP SCHEMA {schema} CASCADE")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_after_the_tables_were_dropped_fail_for_good() {
    check_calls_after(|schema| {
        format!("DROP TABLE {schema}.runs, {schema}.turns, {schema}.inbox, {schema}.sessions CASCADE")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_table_of_a_trigger_does_not_count_as_a_dropped_schema() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open().await;
    let schema = &test_schema.schema;
    let trigger = format!(
        "CREATE FUNCTION {schema}.audit() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO {schema}.no_such_table VALUES (1); RETURN NEW; END $$; \
         CREATE TRIGGER audit BEFORE INSERT ON {schema}.runs FOR EACH ROW EXECUTE FUNCTION {schema}.audit()"
    );
    test_schema.connect().await.batch_execute(&trigger).await.unwrap();
    let error =
        world.start(vec![new_start(RUN)]).await.and_then(|mut answers| answers.remove(0)).unwrap_err();
    assert!(!matches!(error, WorldError::Gone(_)), "{error:?}");
}
