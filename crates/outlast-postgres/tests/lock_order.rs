//! The lock order: pairs of transactions, of which one waits for the other in the middle of its work.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{
    NO_EXPIRY, TestSchema, claim, commit_until_unblocked, join, new_start, one_event_turn, request, start,
    wait_until,
};
use outlast_core::{
    Committed, Headers, MessageBody, MessageId, NewChild, NewMessage, NewToken, OpNumber, Outbox, Parent,
    Payload, RunId, SessionId, Start, StartKey, Then, TokenHash, Turn, World, WorldError,
};
use outlast_postgres::{PostgresOptions, PostgresWorld, send_within, start_within};
use outlast_testkit::TestClock;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

fn message(to: RunId, body: MessageBody) -> NewMessage {
    NewMessage { id: MessageId::from_bits(1), run: to, body, headers: Headers::new() }
}

/// Waits until `count` statements of the schema wait for a lock.
async fn wait_until_blocked(test_schema: &TestSchema, count: i64) {
    wait_until_blocked_or(test_schema, count, || false).await;
}

/// The same, but also ends when `is_over` returns true.
async fn wait_until_blocked_or(test_schema: &TestSchema, count: i64, is_over: impl Fn() -> bool) {
    let connection = test_schema.connect().await;
    let sql =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0";
    wait_until("statements wait", async || {
        is_over()
            || connection.query_one(sql, &[&test_schema.schema]).await.unwrap().get::<_, i64>(0) >= count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_does_not_lose_a_message_of_an_open_transaction() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = Arc::new(test_schema.open_real_time().await);
    join(&world, FIRST, Duration::from_millis(30)).await;
    join(&world, SECOND, NO_EXPIRY).await;
    start(&world, run(1)).await;
    assert_eq!(claim(&world, FIRST).await.len(), 1);

    let mut sender = test_schema.connect().await;
    let sending = sender.transaction().await.unwrap();
    let terminate = MessageBody::Terminate { reason: "enough".into() };
    send_within(&sending, &*world, message(run(1), terminate)).await.unwrap();
    let has_ended_session = async || {
        let sql = format!("SELECT 1 FROM {}.sessions WHERE ended_at IS NOT NULL", test_schema.schema);
        !test_schema.connect().await.query(&sql, &[]).await.unwrap().is_empty()
    };
    wait_until("the session has ended", async || {
        assert_eq!(world.takeover(SECOND).await.unwrap(), 0, "its run is locked");
        has_ended_session().await
    })
    .await;
    sending.commit().await.unwrap();
    assert_eq!(world.takeover(SECOND).await.unwrap(), 1);
    assert!(!has_ended_session().await, "the session is deleted");

    // The run can be terminated without the workflow's code.
    let without_code = outlast_core::ClaimRequest { code: Arc::new([]), ..request() };
    let claimed_runs = world.claim(SECOND, without_code).await.unwrap().claimed;
    assert_eq!(claimed_runs.len(), 1, "the run can be terminated by every worker");
    assert_eq!(claimed_runs[0].inbox.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timer_does_not_overtake_a_message_of_an_open_transaction() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = Arc::new(test_schema.open_real_time().await);
    join(&world, FIRST, NO_EXPIRY).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);

    let mut sender = test_schema.connect().await;
    let sending = sender.transaction().await.unwrap();
    let hook = MessageBody::Hook { name: "answer".into(), payload: Payload::null(), to: Default::default() };
    send_within(&sending, &*world, message(run(1), hook)).await.unwrap();
    // The timer is due after the message was sent, and the turn only adds to the history.
    let row = sending.query_one(&format!("SELECT {}.clock_v3()", test_schema.schema), &[]).await.unwrap();
    let fired_until = Some(outlast_core::Timestamp::from_micros(row.get(0)));
    let turn = Turn { fired_until, ..one_event_turn(run(1), claimed.turn, claimed.seq, 100, Then::Hold) };
    let committing = {
        let (world, turn) = (world.clone(), turn.clone());
        tokio::spawn(async move { commit_until_unblocked(&world, FIRST, &[turn]).await.remove(0) })
    };
    wait_until_blocked(&test_schema, 1).await;
    sending.commit().await.unwrap();
    let error = committing.await.unwrap();
    assert!(matches!(error, Err(WorldError::Conflict(_))), "{error:?}");

    // A message that is sent after the turn has a later time.
    let read = Turn { consumed: 1, ..turn };
    world.commit(FIRST, &[read]).await.unwrap().remove(0).unwrap();
    let late = NewMessage { id: MessageId::from_bits(2), ..message(run(1), MessageBody::Wake { op: None }) };
    world.send(vec![late]).await.unwrap().remove(0).unwrap();
    assert!(Some(world.inbox(run(1), 1).await.unwrap()[0].at) > fired_until);
}

fn keyed_start(number: u128, key: &str) -> Start {
    let key = Some(StartKey { text: key.into(), digest: 1, window: None, policy: Default::default() });
    Start { key, ..new_start(run(number)) }
}

/// A turn that starts a child with each of the keys.
fn turn_with_keyed_children(number: u128, from: &outlast_core::Claimed, keys: &[&str]) -> Turn {
    let children = keys.iter().enumerate().map(|(nth, key)| {
        let op = OpNumber(nth as u64 + 1);
        let parent = Some(Parent { run: from.run, op, root: from.run, awaits: true });
        let start = Start { parent, ..keyed_start(number * 100 + nth as u128, key) };
        NewChild { start, notify_parent: true }
    });
    let outbox = Outbox { children: children.collect(), ..Outbox::default() };
    let turn = one_event_turn(from.run, from.turn, from.seq, 1_000 + number, Then::Hold);
    Turn { outbox: Some(Box::new(outbox)), ..turn }
}

/// A world whose connections do not detect deadlocks: a deadlock would end with a timeout.
async fn open_without_deadlock_detection(test_schema: &TestSchema) -> Arc<PostgresWorld> {
    let url = format!("{}&options=-c%20deadlock_timeout%3D1h", test_schema.url());
    Arc::new(PostgresWorld::open(&url, PostgresOptions::new()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_with_the_same_keys_in_opposite_order_do_not_deadlock() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = open_without_deadlock_detection(&test_schema).await;
    join(&world, FIRST, NO_EXPIRY).await;
    world.start(vec![new_start(run(1)), new_start(run(2))]).await.unwrap();
    let claimed = claim(&world, FIRST).await;
    let (one, other) = (&claimed[0], &claimed[1]);

    // The first turn waits for `z`, which another transaction has not committed yet; the second then needs keys of the
    // first.
    let mut blocker = test_schema.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, keyed_start(90, "z")).await.unwrap();
    let commit = |turn: Turn| {
        let world = world.clone();
        tokio::spawn(async move { commit_until_unblocked(&world, FIRST, &[turn]).await.remove(0) })
    };
    let first = commit(turn_with_keyed_children(1, one, &["a", "z", "b"]));
    wait_until_blocked(&test_schema, 1).await;
    let second = commit(turn_with_keyed_children(2, other, &["b", "a"]));
    // The first turn waits for a while and releases its keys before it tries again; the second may be committed then.
    wait_until_blocked_or(&test_schema, 2, || second.is_finished()).await;
    blocking.rollback().await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();

    let started_children = |run| {
        let world = world.clone();
        async move {
            let inbox = world.inbox(run, 0).await.unwrap();
            let runs = inbox.into_iter().map(|message| match message.body {
                MessageBody::ChildStarted { run, .. } => run,
                other => panic!("{other:?}"),
            });
            runs.collect::<Vec<_>>()
        }
    };
    let (one, other) = (started_children(one.run).await, started_children(other.run).await);
    assert_eq!((one.len(), other.len()), (3, 2));
    assert_eq!([one[2], one[0]], [other[0], other[1]], "each key names one run");
    let counts = world.counts().await.unwrap();
    assert_eq!(counts[&outlast_core::Status::Pending], 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_and_an_exclusive_turn_do_not_deadlock() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = open_without_deadlock_detection(&test_schema).await;
    join(&world, FIRST, NO_EXPIRY).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);
    start(&world, run(2)).await;

    // A turn without events locks the session exclusively and sends to a run that is ready; then that run is claimed.
    let blocker = test_schema.connect().await;
    let lock = format!("BEGIN; SELECT 1 FROM {}.sessions FOR UPDATE", test_schema.schema);
    blocker.batch_execute(&lock).await.unwrap();
    let messages = vec![message(run(2), MessageBody::Wake { op: None })];
    let outbox = Some(Box::new(Outbox { messages, ..Outbox::default() }));
    let then = Then::Wait { wake_at: None, waits: Vec::new() };
    let turn =
        Turn { events: Vec::new(), outbox, ..one_event_turn(run(1), claimed.turn, claimed.seq, 100, then) };
    let committing = {
        let world = world.clone();
        tokio::spawn(async move { commit_until_unblocked(&world, FIRST, &[turn]).await.remove(0) })
    };
    wait_until_blocked(&test_schema, 1).await;
    let claiming = {
        let world = world.clone();
        tokio::spawn(async move { claim(&world, FIRST).await })
    };
    wait_until_blocked(&test_schema, 2).await;
    blocker.batch_execute("ROLLBACK").await.unwrap();
    committing.await.unwrap().unwrap();
    let claimed_runs = claiming.await.unwrap();
    assert_eq!(claimed_runs.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [run(2)]);
}

/// A turn that starts a child without a key.
fn turn_with_child(from: &outlast_core::Claimed, child: u128, then: Then) -> Turn {
    let parent = Some(Parent { run: from.run, op: OpNumber(1), root: from.run, awaits: true });
    let start = Start { parent, ..new_start(run(child)) };
    let children = vec![NewChild { start, notify_parent: false }];
    let outbox = Some(Box::new(Outbox { children, ..Outbox::default() }));
    Turn { outbox, ..one_event_turn(from.run, from.turn, from.seq, 1_000 + from.run.bits(), then) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_different_kinds_do_not_wait_for_each_others_counts() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = open_without_deadlock_detection(&test_schema).await;
    // All connections use the same slot of the counts, as two of many may.
    let server = test_schema.connect().await;
    let name = format!("{}.count_v3(text[], bigint[])", test_schema.schema);
    let count =
        server.query_one("SELECT pg_get_functiondef($1::text::regprocedure)", &[&name]).await.unwrap();
    let count = count.get::<_, String>(0).replace("pg_backend_pid() % 64", "0");
    server.batch_execute(&count).await.unwrap();
    join(&world, FIRST, NO_EXPIRY).await;
    world.start((1..=4).map(|number| new_start(run(number))).collect()).await.unwrap();
    let claimed = claim(&world, FIRST).await;
    let commit = |turns: Vec<Turn>| {
        let world = world.clone();
        tokio::spawn(async move { commit_until_unblocked(&world, FIRST, &turns).await })
    };

    // The second turn of the first commit waits for a child that another transaction has not committed yet.
    let mut blocker = test_schema.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, new_start(run(92))).await.unwrap();
    let waits = || Then::Wait { wake_at: None, waits: Vec::new() };
    let first =
        commit(vec![turn_with_child(&claimed[0], 91, Then::Hold), turn_with_child(&claimed[1], 92, waits())]);
    wait_until_blocked(&test_schema, 1).await;
    let second =
        commit(vec![turn_with_child(&claimed[2], 93, waits()), turn_with_child(&claimed[3], 94, Then::Hold)]);
    let second = tokio::time::timeout(Duration::from_secs(10), second).await;
    assert!(
        second.expect("the second commit does not wait").unwrap().into_iter().all(|answer| answer.is_ok())
    );
    blocking.rollback().await.unwrap();
    assert!(first.await.unwrap().into_iter().all(|answer| answer.is_ok()));
    let counts = world.counts().await.unwrap();
    let [pending, running, waiting] =
        [outlast_core::Status::Pending, outlast_core::Status::Running, outlast_core::Status::Waiting]
            .map(|status| counts[&status]);
    assert_eq!((pending, running, waiting), (4, 2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_over_a_key_whose_window_has_ended_is_resolved_and_nothing_is_done_twice() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = Arc::new(test_schema.open_real_time().await);
    join(&world, FIRST, NO_EXPIRY).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);
    let old = keyed_start(2, "c");
    world.start(vec![old]).await.unwrap().remove(0).unwrap();

    // The start has inserted `a` and waits for `b`; the turn has locked the run that `c` names, and waits for `a`. Then
    // the start needs that run's row, to take the key `c` from it.
    let mut blocker = test_schema.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    start_within(&blocking, &*world, keyed_start(90, "b")).await.unwrap();
    let mut last = keyed_start(12, "c");
    last.key = Some(StartKey {
        text: "c".into(),
        digest: 1,
        window: Some(Duration::ZERO),
        policy: Default::default(),
    });
    let starts = vec![keyed_start(10, "a"), keyed_start(11, "b"), last];
    let starting = {
        let world = world.clone();
        tokio::spawn(async move { world.start(starts).await.unwrap() })
    };
    wait_until_blocked(&test_schema, 1).await;
    let mut turn = turn_with_keyed_children(1, &claimed, &["a"]);
    if let Some(outbox) = &mut turn.outbox {
        outbox.messages = vec![message(run(2), MessageBody::Wake { op: None })];
    }
    let committing = {
        let world = world.clone();
        tokio::spawn(async move { commit_until_unblocked(&world, FIRST, &[turn]).await.remove(0) })
    };
    wait_until_blocked(&test_schema, 2).await;
    blocking.rollback().await.unwrap();
    assert!(starting.await.unwrap().into_iter().all(|answer| answer.is_ok()));
    committing.await.unwrap().unwrap();

    let sent = world.run(run(2)).await.unwrap();
    assert_eq!((sent.sent, sent.key), (1, None), "one message, and no key any more");
    let runs = world.runs(outlast_core::RunQuery { limit: 100, ..Default::default() }).await.unwrap().runs;
    let mut keys: Vec<_> = runs.iter().filter_map(|run| run.key.as_deref()).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"], "each key names one run");
    assert_eq!(world.counts().await.unwrap().values().sum::<u64>(), runs.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_what_a_session_holds_waits_for_no_lock() {
    let test_schema = TestSchema::new(TestClock::new());
    let world = open_without_deadlock_detection(&test_schema).await;
    join(&world, FIRST, NO_EXPIRY).await;
    start(&world, run(1)).await;
    let claimed = claim(&world, FIRST).await.remove(0);
    let mut blocker = test_schema.connect().await;
    let blocking = blocker.transaction().await.unwrap();
    let lock = format!(
        "LOCK TABLE {0}.runs, {0}.turns IN EXCLUSIVE MODE; SELECT 1 FROM {0}.sessions FOR UPDATE",
        test_schema.schema
    );
    blocking.batch_execute(&lock).await.unwrap();
    let held = tokio::time::timeout(Duration::from_secs(10), world.held(FIRST)).await;
    let held = held.expect("it does not wait").unwrap();
    assert_eq!(held.iter().map(|held| (held.run, held.turn)).collect::<Vec<_>>(), [(run(1), claimed.turn)]);
    blocking.rollback().await.unwrap();
}

/// A turn that takes tokens, in this order.
fn turn_with_tokens(number: u128, from: &outlast_core::Claimed, tokens: &[&str]) -> Turn {
    let taken = (1..).zip(tokens).map(|(op, token)| NewToken {
        hash: TokenHash::of(token),
        op: OpNumber(op),
        hook: "review".into(),
        metadata: None,
        webhook: None,
        keep_for: None,
        notify: true,
    });
    let mut outbox = Outbox::default();
    outbox.tokens.taken = taken.collect();
    let turn = one_event_turn(from.run, from.turn, from.seq, 1_000 + number, Then::Hold);
    Turn { outbox: Some(Box::new(outbox)), ..turn }
}

/// Two worlds without deadlock detection, as in two processes, each with a session.
async fn two_worlds(test_schema: &TestSchema) -> [(Arc<PostgresWorld>, SessionId); 2] {
    let open = async |session| {
        let world = open_without_deadlock_detection(test_schema).await;
        join(&world, session, NO_EXPIRY).await;
        (world, session)
    };
    [open(FIRST).await, open(SECOND).await]
}

/// A new run that the session holds.
async fn held((world, session): &(Arc<PostgresWorld>, SessionId), number: u128) -> outlast_core::Claimed {
    start(world, run(number)).await;
    claim(world, *session).await.remove(0)
}

/// Which of its tokens a run has got, and the runs that have the others.
async fn answers(world: &PostgresWorld, run: RunId) -> Vec<(u64, Option<RunId>)> {
    let inbox = world.inbox(run, 0).await.unwrap().into_iter();
    let answers = inbox.map(|message| match message.body {
        MessageBody::TokenTaken { op } => (op.0, None),
        MessageBody::Refused { op, failure } => {
            let owner = failure.details.as_deref().and_then(|details| details["run"].as_str());
            (op.0, Some(owner.unwrap().parse().unwrap()))
        }
        other => panic!("{other:?}"),
    });
    let mut answers: Vec<_> = answers.collect();
    answers.sort_unstable();
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_worlds_that_take_a_token_at_once_one_gets_it() {
    let test_schema = TestSchema::new(TestClock::new());
    let [one, other] = two_worlds(&test_schema).await;
    let mut winners = [0, 0];
    for round in 1..=20 {
        let (left, right) = (held(&one, round * 10).await, held(&other, round * 10 + 1).await);
        let token = format!("order-{round}");
        let (left_turn, right_turn) =
            (turn_with_tokens(1, &left, &[&token]), turn_with_tokens(2, &right, &[&token]));
        let (left_answers, right_answers) = tokio::join!(
            commit_until_unblocked(&one.0, one.1, std::slice::from_ref(&left_turn)),
            commit_until_unblocked(&other.0, other.1, std::slice::from_ref(&right_turn)),
        );
        assert_eq!((left_answers, right_answers), (vec![Ok(Committed::Done)], vec![Ok(Committed::Done)]));
        let owner = one.0.token(TokenHash::of(&token)).await.unwrap().unwrap().run;
        let loser = if owner == left.run { right.run } else { left.run };
        assert_eq!(answers(&one.0, owner).await, [(1, None)]);
        assert_eq!(answers(&one.0, loser).await, [(1, Some(owner))], "it learns who has the token");
        winners[usize::from(owner == right.run)] += 1;
    }
    println!("the first world got {} tokens, the second {}", winners[0], winners[1]);
}

/// Without an order, each turn would get a token that the other one needs, and both would wait until a timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_taken_in_the_order_of_their_hashes() {
    let test_schema = TestSchema::new(TestClock::new());
    let [one, other] = two_worlds(&test_schema).await;
    for round in 1..=3 {
        let mut tokens = [0, 1, 2].map(|number| format!("{round}-{number}"));
        tokens.sort_by_key(|token| TokenHash::of(token));
        let [low, middle, high] = [0, 1, 2].map(|nth| tokens[nth].as_str());
        let (left, right) = (held(&one, round * 10).await, held(&other, round * 10 + 1).await);

        // The first turn waits for the middle token, which another transaction has taken and not committed.
        let mut blocker = test_schema.connect().await;
        let blocking = blocker.transaction().await.unwrap();
        let insert = format!(
            "INSERT INTO {}.tokens (hash, run, op, hook, opened_at) VALUES ($1, 'r', 0, 'h', 0)",
            test_schema.schema
        );
        blocking.execute(&insert, &[&TokenHash::of(middle).to_string()]).await.unwrap();
        let commit = |(world, session): &(Arc<PostgresWorld>, SessionId), turn: Turn| {
            let (world, session) = (world.clone(), *session);
            tokio::spawn(async move { world.commit(session, &[turn]).await.unwrap().remove(0) })
        };
        let waits_first = commit(&one, turn_with_tokens(1, &left, &[high, middle, low]));
        wait_until_blocked(&test_schema, 1).await;
        let waits_second = commit(&other, turn_with_tokens(2, &right, &[low, high]));
        wait_until_blocked_or(&test_schema, 2, || waits_first.is_finished()).await;
        blocking.rollback().await.unwrap();
        let answered = (waits_first.await.unwrap(), waits_second.await.unwrap());
        // On a slow machine a turn may have waited for the blocker for too long.
        if answered == (Ok(Committed::Done), Ok(Committed::Done)) {
            assert_eq!(answers(&one.0, left.run).await, [(1, None), (2, None), (3, None)]);
            assert_eq!(answers(&one.0, right.run).await, [(1, Some(left.run)), (2, Some(left.run))]);
            return;
        }
        println!("round {round}: {answered:?}");
    }
    panic!("in each round a turn was blocked");
}
