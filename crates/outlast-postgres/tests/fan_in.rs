//! Many runs that send to one run in a batch, as children that end together: the batch writes the receiver once.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::{NO_EXPIRY, TestSchema, completed, join, new_start, one_event_turn, request};
use outlast_core::{
    ClaimRequest, Claimed, Headers, MessageBody, MessageId, NewMessage, Outbox, RunId, SessionId, Status,
    SuspectRoom, Then, Turn, World,
};
use outlast_testkit::TestClock;

const SESSION: SessionId = SessionId::from_bits(1);

/// Those that receive.
const RECEIVERS: [RunId; 2] = [RunId::from_bits(1), RunId::from_bits(2)];

/// Those that end and send.
const SENDERS: u128 = 40;

/// Counts the updates of each receiver's row, and the statements that insert messages.
async fn count_writes(test_schema: &TestSchema) {
    let [first, second] = RECEIVERS;
    let triggers = format!(
        "CREATE SEQUENCE {0}.updates MINVALUE 0 START 0; SELECT nextval('{0}.updates');
         CREATE SEQUENCE {0}.inserts MINVALUE 0 START 0; SELECT nextval('{0}.inserts');
         CREATE FUNCTION {0}.count_write() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval(TG_ARGV[0]::regclass);
            RETURN NULL; END $$;
         CREATE TRIGGER count_updates AFTER UPDATE ON {0}.runs FOR EACH ROW WHEN (NEW.id IN ('{first}', '{second}'))
            EXECUTE FUNCTION {0}.count_write('{0}.updates');
         CREATE TRIGGER count_inserts AFTER INSERT ON {0}.inbox FOR EACH STATEMENT
            EXECUTE FUNCTION {0}.count_write('{0}.inserts')",
        test_schema.schema
    );
    test_schema.connect().await.batch_execute(&triggers).await.unwrap();
}

/// A turn that completes a run and sends a message to a receiver.
fn end_with_message(claimed: &Claimed) -> Turn {
    let number = claimed.run.bits();
    let to = RECEIVERS[number as usize % RECEIVERS.len()];
    let body = MessageBody::Wake { op: None };
    let message = NewMessage { id: MessageId::from_bits(number), run: to, body, headers: Headers::new() };
    let then = Then::End(Status::Completed);
    Turn {
        events: vec![completed()],
        outbox: Some(Box::new(Outbox { messages: vec![message], ..Outbox::default() })),
        ..one_event_turn(claimed.run, claimed.turn, claimed.seq, 10_000 + number, then)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_messages_of_a_batch_are_one_insert_and_one_update_per_receiver() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = test_schema.open_real_time().await;
    join(&world, SESSION, NO_EXPIRY).await;
    let runs = 1..=SENDERS + RECEIVERS.len() as u128;
    world.start(runs.map(|number| new_start(RunId::from_bits(number))).collect()).await.unwrap();
    let all = ClaimRequest { limit: 1_000, suspects: SuspectRoom::Nothing, ..request() };
    let claimed = world.claim(SESSION, all).await.unwrap().claimed;
    count_writes(&test_schema).await;

    let senders = claimed.iter().filter(|claimed| !RECEIVERS.contains(&claimed.run));
    let turns: Vec<Turn> = senders.map(end_with_message).collect();
    let answers = world.commit(SESSION, &turns).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    for receiver in RECEIVERS {
        assert_eq!(u128::from(world.run(receiver).await.unwrap().sent), SENDERS / 2);
    }
    let sql =
        format!("SELECT u.last_value, i.last_value FROM {0}.updates u, {0}.inserts i", test_schema.schema);
    let row = test_schema.connect().await.query_one(&sql, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (2, 1));
}
