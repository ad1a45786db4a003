//! Concurrent calls on two worlds of one schema: nothing is lost and nothing is done twice.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{
    NO_EXPIRY, TestSchema, claim, commit_until_unblocked, join, new_start, one_event_turn, start, wait_until,
};
use outlast_core::turn::BasedOn;
use outlast_core::{
    Claimed, Event, Headers, MessageBody, MessageId, NewMessage, Payload, RunId, RunQuery, SessionId, Start,
    StartKey, Status, Then, Turn, TurnId, World, WorldError,
};
use outlast_postgres::PostgresWorld;
use outlast_testkit::TestClock;

const FIRST: SessionId = SessionId::from_bits(1);
const SECOND: SessionId = SessionId::from_bits(2);

fn run(number: u128) -> RunId {
    RunId::from_bits(number)
}

fn message(id: u128, to: RunId) -> NewMessage {
    let body = MessageBody::Wake { op: None };
    NewMessage { id: MessageId::from_bits(id), run: to, body, headers: Headers::new() }
}

/// Two worlds, as in two processes, each with a session.
async fn two_worlds() -> (Arc<PostgresWorld>, Arc<PostgresWorld>) {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) =
        (Arc::new(test_schema.open_real_time().await), Arc::new(test_schema.open_real_time().await));
    join(&first, FIRST, NO_EXPIRY).await;
    join(&second, SECOND, NO_EXPIRY).await;
    (first, second)
}

/// A turn that consumes the messages of the claim, and waits.
fn read_and_wait(claimed: &Claimed) -> Turn {
    let id = claimed.run.bits() << 64 | u128::from(claimed.seq) << 32 | u128::from(claimed.consumed);
    let then = Then::Wait { wake_at: None, waits: Vec::new() };
    let turn = one_event_turn(claimed.run, claimed.turn, claimed.seq, id, then);
    Turn { consumed: claimed.consumed + claimed.inbox.len() as u64, ..turn }
}

/// Claims runs and consumes their messages until `stop` is set.
async fn read_until_stopped(world: Arc<PostgresWorld>, session: SessionId, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let turns: Vec<Turn> = claim(&world, session).await.iter().map(read_and_wait).collect();
        for answer in commit_until_unblocked(&world, session, &turns).await {
            answer.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_consumed() {
    const RUNS: u128 = 6;
    const MESSAGES: u128 = 60;
    let (first, second) = two_worlds().await;
    for number in 0..RUNS {
        start(&first, run(number)).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers = [(first.clone(), FIRST), (second.clone(), SECOND)]
        .map(|(world, session)| tokio::spawn(read_until_stopped(world, session, stop.clone())));
    let senders = [(0, first.clone()), (1, second.clone()), (2, first.clone())].map(|(sender, world)| {
        tokio::spawn(async move {
            for nth in 0..MESSAGES {
                let id = sender * MESSAGES + nth;
                let sent = world.send(vec![message(id, run(id % RUNS)), message(id, run(id % RUNS))]).await;
                let positions: BTreeSet<u64> =
                    sent.unwrap().into_iter().map(|sent| sent.unwrap().position).collect();
                assert_eq!(positions.len(), 1, "the same message has one position");
            }
        })
    });
    for sender in senders {
        sender.await.unwrap();
    }
    wait_until("all messages are consumed", async || {
        let page = first.runs(RunQuery { limit: 10, ..RunQuery::default() }).await.unwrap();
        let sent: u64 = page.runs.iter().map(|run| run.sent).sum();
        assert_eq!(u128::from(sent), 3 * MESSAGES);
        page.runs.iter().all(|run| run.consumed == run.sent)
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_changes_its_status_is_on_every_page() {
    let (first, second) = two_worlds().await;
    start(&first, run(1)).await;
    let stop = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read_until_stopped(first.clone(), FIRST, stop.clone()));
    let sender = tokio::spawn({
        let (world, stop) = (first.clone(), stop.clone());
        async move {
            let mut id = 0;
            while !stop.load(Ordering::Relaxed) {
                world.send(vec![message(id, run(1))]).await.unwrap().remove(0).unwrap();
                id += 1;
            }
        }
    });
    let statuses: Vec<Status> = Status::ALL.into_iter().filter(|status| !status.is_final()).collect();
    for page in 0..500 {
        let query = RunQuery { statuses: statuses.clone(), limit: 10, ..RunQuery::default() };
        assert_eq!(second.runs(query).await.unwrap().runs.len(), 1, "page {page}");
    }
    stop.store(true, Ordering::Relaxed);
    sender.await.unwrap();
    reader.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_claimed_twice() {
    const RUNS: u128 = 300;
    let (first, second) = two_worlds().await;
    let claimers =
        [(first.clone(), FIRST), (second.clone(), SECOND), (first.clone(), FIRST)].map(|(world, session)| {
            tokio::spawn(async move {
                let mut claimed_runs = Vec::new();
                while world
                    .counts()
                    .await
                    .unwrap()
                    .get(&Status::Running)
                    .is_none_or(|running| *running < RUNS as u64)
                {
                    claimed_runs.extend(claim(&world, session).await.into_iter().map(|claimed| claimed.run));
                }
                claimed_runs
            })
        });
    for part in 0..RUNS / 20 {
        let starts = (part * 20..part * 20 + 20).map(|number| new_start(run(number))).collect();
        second.start(starts).await.unwrap();
    }
    let mut claimed_runs = Vec::new();
    for claimer in claimers {
        claimed_runs.extend(claimer.await.unwrap());
    }
    let different: BTreeSet<RunId> = claimed_runs.iter().copied().collect();
    assert_eq!((claimed_runs.len() as u128, different.len() as u128), (RUNS, RUNS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_names_one_run_however_many_starts_use_it() {
    let (first, second) = two_worlds().await;
    let starters = (0..8_u128).map(|starter| {
        let world = if starter % 2 == 0 { first.clone() } else { second.clone() };
        tokio::spawn(async move {
            let mut new = 0;
            for nth in 0..10 {
                let window = Some(std::time::Duration::ZERO);
                let key = |text: &str| {
                    Some(StartKey { text: text.into(), digest: 1, window, policy: Default::default() })
                };
                let number = starter * 100 + nth * 2;
                // In two orders, so that the starts wait for each other.
                let keys = if starter % 3 == 0 { ["a", "b"] } else { ["b", "a"] };
                let starts = vec![
                    Start { key: key(keys[0]), ..new_start(run(number)) },
                    Start { key: key(keys[1]), ..new_start(run(number + 1)) },
                ];
                let answers = world.start(starts).await.unwrap().into_iter();
                new += answers.filter(|started| started.as_ref().unwrap().is_new).count();
            }
            new
        })
    });
    let mut new = 0;
    for starter in starters.collect::<Vec<_>>() {
        // A start may find a run that a concurrent start has created.
        new += starter.await.unwrap();
    }
    let page = first.runs(RunQuery { limit: 1_000, ..RunQuery::default() }).await.unwrap();
    assert!(new > 20, "{new}");
    assert_eq!(page.runs.len(), new);
    let keyed: Vec<_> = page.runs.iter().filter_map(|run| run.key.clone()).collect();
    assert_eq!(keyed.iter().cloned().collect::<BTreeSet<_>>(), ["a".to_owned(), "b".to_owned()].into());
    assert_eq!(keyed.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_before_the_end_are_counted_and_later_ones_refused() {
    let (first, second) = two_worlds().await;
    for number in 0..20 {
        start(&first, run(number)).await;
        let claimed = claim(&first, FIRST).await.remove(0);
        let sender = {
            let (world, to) = (second.clone(), claimed.run);
            tokio::spawn(async move {
                let mut sent = 0;
                for nth in 0..1_000 {
                    match world.send(vec![message(number * 1_000 + nth, to)]).await.unwrap().remove(0) {
                        Ok(last) => sent = last.position,
                        Err(WorldError::Conflict(_)) => return sent,
                        Err(error) => panic!("{error}"),
                    }
                }
                sent
            })
        };
        wait_until("something was sent", async || first.run(claimed.run).await.unwrap().sent > 0).await;
        let last = Turn {
            events: vec![Event::RunCompleted { output: Payload::null() }],
            ..one_event_turn(claimed.run, claimed.turn, 1, 1_000_000 + number, Then::End(Status::Completed))
        };
        commit_until_unblocked(&first, FIRST, &[last]).await.remove(0).unwrap();
        assert_eq!(sender.await.unwrap(), first.run(claimed.run).await.unwrap().sent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_is_committed_many_times_concurrently_is_written_once() {
    let (first, second) = two_worlds().await;
    for number in 0..20_u128 {
        start(&first, run(number)).await;
        let claimed = claim(&first, FIRST).await.remove(0);
        let turn = one_event_turn(claimed.run, claimed.turn, 1, 2_000_000 + number, Then::Hold);
        let rival = Turn { id: TurnId::from_bits(3_000_000 + number), ..turn.clone() };
        let attempts = (0..6).map(|nth| {
            let world = if nth % 2 == 0 { first.clone() } else { second.clone() };
            let turn = if nth == 5 { rival.clone() } else { turn.clone() };
            tokio::spawn(
                async move { commit_until_unblocked(&world, FIRST, &[turn]).await.remove(0).is_ok() },
            )
        });
        let mut done = Vec::new();
        for attempt in attempts.collect::<Vec<_>>() {
            done.push(attempt.await.unwrap());
        }
        let history = first.history(claimed.run, 0, 10).await.unwrap();
        assert_eq!(history.len(), 2);
        let is_rival = history[1].id == rival.id;
        assert_eq!(done, [!is_rival, !is_rival, !is_rival, !is_rival, !is_rival, is_rival]);
        assert!(matches!(turn.based_on, BasedOn::Turn(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_and_commits_exclude_each_other() {
    let test_schema = TestSchema::new(TestClock::new());
    let (first, second) =
        (Arc::new(test_schema.open_real_time().await), Arc::new(test_schema.open_real_time().await));
    join(&second, SECOND, NO_EXPIRY).await;
    for round in 0..8_u128 {
        let session = SessionId::from_bits(100 + round);
        join(&first, session, std::time::Duration::from_millis(30)).await;
        start(&first, run(round)).await;
        let claimed = claim(&first, session).await.remove(0);
        let committer = {
            let world = first.clone();
            tokio::spawn(async move {
                let (mut from, mut seq) = (claimed.turn, claimed.seq);
                loop {
                    let id = (10 + round) << 64 | u128::from(seq);
                    let turn = one_event_turn(claimed.run, from, seq, id, Then::Hold);
                    match commit_until_unblocked(&world, session, &[turn]).await.remove(0) {
                        Ok(_) => (from, seq) = (TurnId::from_bits(id), seq + 1),
                        Err(WorldError::Fenced(_)) => return (from, seq),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        wait_until("the session is taken over", async || second.takeover(SECOND).await.unwrap() > 0).await;
        let (last, seq) = committer.await.unwrap();
        let taken = claim(&second, SECOND).await.remove(0);
        assert_eq!((taken.turn, taken.seq), (last, seq), "all acknowledged turns, and no others");
        let end = Turn {
            events: vec![Event::RunCompleted { output: Payload::null() }],
            ..one_event_turn(
                taken.run,
                taken.turn,
                taken.seq,
                9_000_000 + round,
                Then::End(Status::Completed),
            )
        };
        commit_until_unblocked(&second, SECOND, &[end]).await.remove(0).unwrap();
    }
}
