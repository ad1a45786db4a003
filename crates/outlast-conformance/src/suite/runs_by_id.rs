//! Runs and histories that are read by number: what a live page needs.

use outlast_core::RunId;
use outlast_core::limits::RUNS_BY_ID_MAX;

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// Runs are read by their ids, in the given order; those that do not exist are left out.
pub async fn runs_are_read_by_id_in_the_given_order(case: Case) {
    let runs = case.start_many("wf", 3).await;
    let wanted = [runs[2], RunId::from_bits(1), runs[0]];
    let views = case.world.runs_by_id(&wanted).await.unwrap();
    assert_eq!(views, [case.view(runs[2]).await, case.view(runs[0]).await]);
    assert_eq!(case.world.runs_by_id(&[]).await.unwrap(), []);
}

/// The number of runs that are read by id has a limit.
pub async fn too_many_runs_by_id_are_refused(case: Case) {
    let runs: Vec<RunId> = (0..=RUNS_BY_ID_MAX as u128).map(RunId::from_bits).collect();
    assert_refused!(case.world.runs_by_id(&runs).await, Limit);
    assert_eq!(case.world.runs_by_id(&runs[1..]).await.unwrap(), []);
}

/// A run counts its events also while it is held, when its row is behind its history.
pub async fn a_run_counts_its_events_in_one_lookup(case: Case) {
    let run = case.start("wf").await;
    let count = async || case.world.event_count(run).await.unwrap();
    assert_eq!(count().await, 1);
    let worker = case.join("wf").await;
    let first = case.turn(&worker.claim_one().await).steps(3);
    worker.commit_done(first.clone()).await;
    assert_eq!(count().await, 4);
    let second = case.turn_after(&first).steps(2);
    worker.commit_done(second.clone()).await;
    assert_eq!(count().await, 6);
    worker.commit_done(case.turn_after(&second).then(wait())).await;
    assert_eq!(count().await, 6);
    assert_refused!(case.world.event_count(RunId::from_bits(1)).await, NotFound);
}

/// A history begins with the turn that contains an event, or is empty if there is no such event.
pub async fn a_history_begins_with_the_turn_that_contains_an_event(case: Case) {
    let run = case.start("wf").await;
    let worker = case.join("wf").await;
    let first = case.turn(&worker.claim_one().await).steps(3);
    worker.commit_done(first.clone()).await;
    worker.commit_done(case.turn_after(&first).steps(2)).await;
    let numbers = async |from, limit| {
        let turns = case.world.history(run, from, limit).await.unwrap();
        turns.iter().map(|turn| turn.seq).collect::<Vec<_>>()
    };
    assert_eq!(numbers(0, 10).await, [0, 1, 4]);
    assert_eq!(numbers(1, 10).await, [1, 4]);
    assert_eq!(numbers(3, 10).await, [1, 4]);
    assert_eq!(numbers(3, 1).await, [1]);
    assert_eq!(numbers(5, 10).await, [4]);
    assert!(numbers(6, 10).await.is_empty());
    assert!(numbers(u64::MAX, 10).await.is_empty());
}
