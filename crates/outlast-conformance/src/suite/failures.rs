//! Failed runs: what lists show of them.

use outlast_core::{
    Event, Failure, FailureKind, FailureQuery, ListOrder, RunFailure, RunId, RunQuery, RunView, Status, Then,
};

use super::turn_ext::TurnExt;
use super::{Case, TestWorker};

/// A run that failed with this message.
async fn failed(case: &Case, worker: &TestWorker, message: &str) -> RunId {
    let failure = failure(message);
    let mut turn = case.starting_turn(case.new_start("wf"));
    turn.events.push(Event::RunFailed { failure });
    worker.commit_done(turn.clone().then(Then::End(Status::Failed))).await;
    case.clock.advance("1s");
    turn.run
}

fn failure(message: &str) -> Failure {
    let mut failure = Failure::new(FailureKind::Fatal, message).with_code("declined");
    failure.step = Some("charge".into());
    failure
}

async fn list(case: &Case, query: FailureQuery) -> Vec<RunView> {
    case.world.failures(query).await.unwrap()
}

fn ids(runs: &[RunView]) -> Vec<RunId> {
    runs.iter().map(|run| run.id).collect()
}

/// The view of a failed run has a summary of its failure, also in lists, whichever characters it contains.
pub async fn a_failed_run_shows_why_it_failed(case: Case) {
    let worker = case.join("wf").await;
    let message = format!("a \"quoted\"\0 text\u{e000} of card 7 {}", "ü".repeat(200));
    let run = failed(&case, &worker, &message).await;
    let view = case.view(run).await;
    assert_eq!(view.failure.as_deref(), Some(&RunFailure::of(&failure(&message))));
    let page = case.world.runs(RunQuery { limit: 10, ..RunQuery::default() }).await.unwrap();
    assert_eq!(page.runs, std::slice::from_ref(&view));
    assert_eq!(list(&case, FailureQuery { limit: 10, ..FailureQuery::default() }).await, [view]);
}

/// Runs that complete, are cancelled, wait or are stuck have no failure, and are not among the failures.
pub async fn only_a_failed_run_has_a_failure(case: Case) {
    let worker = case.join("wf").await;
    let starting = || case.starting_turn(case.new_start("wf"));
    for turn in [
        starting().completing("out"),
        starting().cancelling(),
        starting().terminating(),
        starting().then(super::turn_ext::wait()),
        starting().then(super::turn_ext::stuck()),
    ] {
        let run = turn.run;
        worker.commit_done(turn).await;
        assert_eq!(case.view(run).await.failure, None);
    }
    assert_eq!(list(&case, FailureQuery { limit: 10, ..FailureQuery::default() }).await, []);
}

/// Failures are listed by the time of their end, the last first, also within bounds.
pub async fn failures_are_listed_by_the_time_of_their_end(case: Case) {
    let worker = case.join("wf").await;
    // The run that was started first ends last.
    let first = case.starting_turn(case.new_start("wf"));
    worker.commit_done(first.clone()).await;
    let (second, third) = (failed(&case, &worker, "b").await, failed(&case, &worker, "c").await);
    worker.commit_done(case.turn_after(&first).failing()).await;
    let query = FailureQuery { limit: 10, ..FailureQuery::default() };
    assert_eq!(ids(&list(&case, query.clone()).await), [first.run, third, second]);
    assert_eq!(ids(&list(&case, FailureQuery { limit: 1, ..query.clone() }).await), [first.run]);
    let ended = case.view(third).await.ended_at.unwrap();
    let from = FailureQuery { ended_from: Some(ended), ..query.clone() };
    assert_eq!(ids(&list(&case, from).await), [first.run, third]);
    let before = FailureQuery { ended_before: Some((ended, None)), ..query };
    assert_eq!(ids(&list(&case, before).await), [second]);
}

/// Failures with the same fingerprint are listed without the others.
pub async fn failures_with_one_fingerprint_are_listed(case: Case) {
    let worker = case.join("wf").await;
    let (one, _, two) = (
        failed(&case, &worker, "order 1 is gone").await,
        failed(&case, &worker, "order 1 is late").await,
        failed(&case, &worker, "order 2222 is gone").await,
    );
    let fingerprint = case.view(one).await.failure.map(|failure| failure.fingerprint);
    let query = FailureQuery { fingerprint, limit: 10, ..FailureQuery::default() };
    assert_eq!(ids(&list(&case, query.clone()).await), [two, one]);
    let ended = case.view(two).await.ended_at.unwrap();
    let query = FailureQuery { ended_before: Some((ended, None)), ..query };
    assert_eq!(ids(&list(&case, query).await), [one]);
}

/// The end and the id of the last failure of a page are where the next page begins, even if many ended together.
pub async fn pages_of_failures_bring_every_run_once(case: Case) {
    let worker = case.join("wf").await;
    let turns: Vec<_> = (0..5).map(|_| case.starting_turn(case.new_start("wf")).failing()).collect();
    for answer in worker.world.commit(worker.session, &turns).await.unwrap() {
        answer.unwrap();
    }
    let mut query = FailureQuery { limit: 2, ..FailureQuery::default() };
    let mut all = Vec::new();
    loop {
        let page = list(&case, query.clone()).await;
        let Some(last) = page.last() else { break };
        query.ended_before = last.ended_at.map(|ended| (ended, Some(last.id)));
        all.extend(ids(&page));
    }
    let query = RunQuery { order: ListOrder::NewestFirst, limit: 10, ..RunQuery::default() };
    assert_eq!(all, ids(&case.world.runs(query).await.unwrap().runs));
}
