//! Flags of runs, and lists by the time of their end.

use outlast_core::limits::FLAG_COUNT_MAX;
use outlast_core::{FlagCounts, FlagFilter, ListOrder, RunId, RunQuery};

use super::Case;
use super::turn_ext::{TurnExt, wait, wait_for_retry};

async fn list(case: &Case, query: RunQuery) -> Vec<RunId> {
    let query = RunQuery { order: ListOrder::OldestFirst, limit: 10, ..query };
    let page = case.world.runs(query).await.unwrap();
    page.runs.iter().map(|run| run.id).collect()
}

/// A run that waits for the next attempt of a step is retrying; once a worker holds it, it is not.
pub async fn a_run_that_waits_for_an_attempt_is_retrying_until_it_is_claimed(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait_for_retry(case.later(60))).await;
    assert!(case.view(run).await.is_retrying);
    case.clock.advance("1m");
    let claimed = worker.claim_one().await;
    assert!(!case.view(run).await.is_retrying);
    worker.commit_done(case.turn(&claimed).then(wait())).await;
    assert!(!case.view(run).await.is_retrying);
}

/// A run that was asked to stop is cancelling until it has ended.
pub async fn a_run_is_cancelling_until_it_ends(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait()).await;
    assert!(!case.view(run).await.is_cancelling());
    case.try_send(case.new_cancel(run)).await.unwrap();
    assert!(case.view(run).await.is_cancelling());
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).consuming(1).cancelling()).await;
    assert!(!case.view(run).await.is_cancelling());
    assert_eq!(case.world.flag_counts().await.unwrap(), FlagCounts::default());
}

/// Runs are listed by a flag, together with other filters, and counted up to a limit.
pub async fn runs_are_listed_and_counted_by_their_flags(case: Case) {
    let worker = case.join("wf").await;
    let retrying = case.parked(&worker, wait_for_retry(case.later(60))).await;
    let both = case.parked(&worker, wait_for_retry(case.later(60))).await;
    let cancelling = case.parked(&worker, wait()).await;
    case.parked(&worker, wait()).await;
    for run in [both, cancelling] {
        case.try_send(case.new_cancel(run)).await.unwrap();
    }
    let by = async |flag| list(&case, RunQuery { flag: Some(flag), ..RunQuery::default() }).await;
    assert_eq!(by(FlagFilter::Retrying).await, [retrying, both]);
    assert_eq!(by(FlagFilter::Cancelling).await, [both, cancelling]);
    let query = RunQuery { flag: Some(FlagFilter::Retrying), ..RunQuery::default() };
    assert_eq!(list(&case, RunQuery { workflow: Some("other".into()), ..query.clone() }).await, []);
    assert_eq!(list(&case, RunQuery { after: Some(retrying), ..query }).await, [both]);
    assert_eq!(case.world.flag_counts().await.unwrap(), FlagCounts::new(2, 2));
    let starting = || case.starting_turn(case.new_start("wf")).then(wait_for_retry(case.later(60)));
    let turns: Vec<_> = (0..FLAG_COUNT_MAX).map(|_| starting()).collect();
    for part in turns.chunks(100) {
        worker.world.commit(worker.session, part).await.unwrap();
    }
    assert_eq!(case.world.flag_counts().await.unwrap(), FlagCounts::new(FLAG_COUNT_MAX as u64, 2));
}

/// Runs are listed by the time of their end.
pub async fn a_list_is_filtered_by_the_time_of_the_end(case: Case) {
    let worker = case.join("wf").await;
    let open = case.parked(&worker, wait()).await;
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(case.completed(&worker).await);
        case.clock.advance("1s");
    }
    let second = case.view(ended[1]).await.ended_at;
    let from = RunQuery { ended_from: second, ..RunQuery::default() };
    assert_eq!(list(&case, from.clone()).await, ended[1..]);
    let before = RunQuery { ended_before: second, ..RunQuery::default() };
    assert_eq!(list(&case, before).await, ended[..1]);
    let both = RunQuery { ended_before: Some(case.clock.now()), ..from };
    assert_eq!(list(&case, both).await, ended[1..]);
    assert!(list(&case, RunQuery::default()).await.contains(&open));
}
