//! Many connections at the same time, on two worlds of one schema: nothing is lost and nothing is done twice.

#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{LONG, Place, claim, commit_patiently, join, new_start, start, step, until};
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

/// Two worlds as two processes would have them, each with a session.
async fn pair() -> (Arc<PostgresWorld>, Arc<PostgresWorld>) {
    let place = Place::new(TestClock::new());
    let (first, second) = (Arc::new(place.open_real().await), Arc::new(place.open_real().await));
    join(&first, FIRST, LONG).await;
    join(&second, SECOND, LONG).await;
    (first, second)
}

/// A turn that reads what the claim brought, and waits.
fn read_and_wait(claimed: &Claimed) -> Turn {
    let id = claimed.run.bits() << 64 | u128::from(claimed.seq) << 32 | u128::from(claimed.consumed);
    let then = Then::Wait { wake_at: None, waits: Vec::new() };
    let turn = step(claimed.run, claimed.turn, claimed.seq, id, then);
    Turn { consumed: claimed.consumed + claimed.inbox.len() as u64, ..turn }
}

/// Reads messages of runs until it is told to stop.
async fn read(world: Arc<PostgresWorld>, session: SessionId, stops: Arc<AtomicBool>) {
    while !stops.load(Ordering::Relaxed) {
        let turns: Vec<Turn> = claim(&world, session).await.iter().map(read_and_wait).collect();
        for answer in commit_patiently(&world, session, &turns).await {
            answer.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_message_is_slept_over() {
    const RUNS: u128 = 6;
    const MESSAGES: u128 = 60;
    let (first, second) = pair().await;
    for number in 0..RUNS {
        start(&first, run(number)).await;
    }
    let stops = Arc::new(AtomicBool::new(false));
    let readers = [(first.clone(), FIRST), (second.clone(), SECOND)]
        .map(|(world, session)| tokio::spawn(read(world, session, stops.clone())));
    let senders = [(0, first.clone()), (1, second.clone()), (2, first.clone())].map(|(sender, world)| {
        tokio::spawn(async move {
            for nth in 0..MESSAGES {
                let id = sender * MESSAGES + nth;
                let sent = world.send(vec![message(id, run(id % RUNS)), message(id, run(id % RUNS))]).await;
                let positions: BTreeSet<u64> =
                    sent.unwrap().into_iter().map(|sent| sent.unwrap().position).collect();
                assert_eq!(positions.len(), 1, "the same message has one place");
            }
        })
    });
    for sender in senders {
        sender.await.unwrap();
    }
    until("all is read", async || {
        let page = first.runs(RunQuery { limit: 10, ..RunQuery::default() }).await.unwrap();
        let sent: u64 = page.runs.iter().map(|run| run.sent).sum();
        assert_eq!(u128::from(sent), 3 * MESSAGES);
        page.runs.iter().all(|run| run.consumed == run.sent)
    })
    .await;
    stops.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_changes_its_status_is_on_every_page() {
    let (first, second) = pair().await;
    start(&first, run(1)).await;
    let stops = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(read(first.clone(), FIRST, stops.clone()));
    let sender = tokio::spawn({
        let (world, stops) = (first.clone(), stops.clone());
        async move {
            let mut id = 0;
            while !stops.load(Ordering::Relaxed) {
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
    stops.store(true, Ordering::Relaxed);
    sender.await.unwrap();
    reader.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_run_is_given_twice() {
    const RUNS: u128 = 300;
    let (first, second) = pair().await;
    let claimers =
        [(first.clone(), FIRST), (second.clone(), SECOND), (first.clone(), FIRST)].map(|(world, session)| {
            tokio::spawn(async move {
                let mut given = Vec::new();
                while world
                    .counts()
                    .await
                    .unwrap()
                    .get(&Status::Running)
                    .is_none_or(|running| *running < RUNS as u64)
                {
                    given.extend(claim(&world, session).await.into_iter().map(|claimed| claimed.run));
                }
                given
            })
        });
    for part in 0..RUNS / 20 {
        let starts = (part * 20..part * 20 + 20).map(|number| new_start(run(number))).collect();
        second.start(starts).await.unwrap();
    }
    let mut given = Vec::new();
    for claimer in claimers {
        given.extend(claimer.await.unwrap());
    }
    let different: BTreeSet<RunId> = given.iter().copied().collect();
    assert_eq!((given.len() as u128, different.len() as u128), (RUNS, RUNS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_names_one_run_however_many_take_it() {
    let (first, second) = pair().await;
    let starters = (0..8_u128).map(|starter| {
        let world = if starter % 2 == 0 { first.clone() } else { second.clone() };
        tokio::spawn(async move {
            let mut new = 0;
            for nth in 0..10 {
                let window = Some(std::time::Duration::ZERO);
                let key = |text: &str| Some(StartKey { text: text.into(), digest: 1, window });
                let number = starter * 100 + nth * 2;
                // In two orders, so that they wait for each other.
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
        // One that another start overtook finds a run that is younger than itself.
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
async fn what_was_sent_before_the_end_is_counted_and_nothing_after() {
    let (first, second) = pair().await;
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
        until("something was sent", async || first.run(claimed.run).await.unwrap().sent > 0).await;
        let last = Turn {
            events: vec![Event::RunCompleted { output: Payload::null() }],
            ..step(claimed.run, claimed.turn, 1, 1_000_000 + number, Then::End(Status::Completed))
        };
        commit_patiently(&first, FIRST, &[last]).await.remove(0).unwrap();
        assert_eq!(sender.await.unwrap(), first.run(claimed.run).await.unwrap().sent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_turn_tried_many_times_at_once_is_there_once() {
    let (first, second) = pair().await;
    for number in 0..20_u128 {
        start(&first, run(number)).await;
        let claimed = claim(&first, FIRST).await.remove(0);
        let turn = step(claimed.run, claimed.turn, 1, 2_000_000 + number, Then::Hold);
        let rival = Turn { id: TurnId::from_bits(3_000_000 + number), ..turn.clone() };
        let tries = (0..6).map(|nth| {
            let world = if nth % 2 == 0 { first.clone() } else { second.clone() };
            let turn = if nth == 5 { rival.clone() } else { turn.clone() };
            tokio::spawn(async move { commit_patiently(&world, FIRST, &[turn]).await.remove(0).is_ok() })
        });
        let mut done = Vec::new();
        for one in tries.collect::<Vec<_>>() {
            done.push(one.await.unwrap());
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
    let place = Place::new(TestClock::new());
    let (first, second) = (Arc::new(place.open_real().await), Arc::new(place.open_real().await));
    join(&second, SECOND, LONG).await;
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
                    let turn = step(claimed.run, from, seq, id, Then::Hold);
                    match commit_patiently(&world, session, &[turn]).await.remove(0) {
                        Ok(_) => (from, seq) = (TurnId::from_bits(id), seq + 1),
                        Err(WorldError::Fenced(_)) => return (from, seq),
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        };
        until("it is taken over", async || second.takeover(SECOND).await.unwrap() > 0).await;
        let (last, seq) = committer.await.unwrap();
        let taken = claim(&second, SECOND).await.remove(0);
        assert_eq!((taken.turn, taken.seq), (last, seq), "all that was acknowledged, and no more");
        let end = Turn {
            events: vec![Event::RunCompleted { output: Payload::null() }],
            ..step(taken.run, taken.turn, taken.seq, 9_000_000 + round, Then::End(Status::Completed))
        };
        commit_patiently(&second, SECOND, &[end]).await.remove(0).unwrap();
    }
}
