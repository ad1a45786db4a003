//! Delayed starts: a run that may not begin before its moment.

use outlast_core::{RunId, Start, Started, Status};

use super::Case;
use super::turn_ext::{TurnExt, wait};

/// Starts a run that may begin this many seconds from now.
async fn start_in(case: &Case, seconds: u64) -> RunId {
    let start = Start { not_before: Some(case.later(seconds)), ..case.new_start("wf") };
    case.try_start(start).await.expect("the world starts a run").run
}

/// A delayed run is ready at its time and not before. Until then it is pending, and its view shows the time.
pub async fn a_delayed_run_begins_at_its_moment(case: Case) {
    let worker = case.join("wf").await;
    let (run, moment) = (start_in(&case, 60).await, case.later(60));
    let view = case.view(run).await;
    assert_eq!(
        (view.status, view.wake_at, view.created_at),
        (Status::Pending, Some(moment), case.clock.now())
    );
    case.clock.advance("59s999ms999us");
    worker.claim_nothing().await;
    case.clock.advance("1us");
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh), (run, true));
    let view = case.view(run).await;
    assert_eq!((view.status, view.wake_at), (Status::Running, None));
}

/// A claim returns when a delayed run is due, if the worker has its code.
pub async fn a_claim_returns_when_a_delayed_run_is_due(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    start_in(&case, 60).await;
    assert_eq!(worker.work(worker.request()).await.next_due, Some(case.later(60)));
    assert_eq!(stranger.work(stranger.request()).await.next_due, None);
}

/// A start time in the past does not delay a run.
pub async fn a_moment_that_has_come_delays_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = start_in(&case, 0).await;
    assert_eq!((case.status(run).await, case.view(run).await.wake_at), (Status::Pending, None));
    assert_eq!(worker.claim_one().await.run, run);
}

/// A message does not make a delayed run begin early; it is there when the run begins.
pub async fn a_message_does_not_make_a_delayed_run_begin(case: Case) {
    let worker = case.join("wf").await;
    let run = start_in(&case, 60).await;
    case.send_payload(run, "early").await;
    let body = outlast_core::MessageBody::Wake { op: None };
    case.try_send(case.new_message_of(run, body)).await.unwrap();
    worker.claim_nothing().await;
    assert_eq!(worker.work(worker.request()).await.next_due, Some(case.later(60)));
    case.clock.advance("1m");
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.inbox.len()), (run, 2));
}

/// A delayed run that is cancelled or terminated is ready at once, also for workers without its code.
pub async fn a_delayed_run_is_ended_at_once(case: Case) {
    let stranger = case.join("other").await;
    for is_cancel in [true, false] {
        let run = start_in(&case, 60).await;
        case.send_payload(run, "early").await;
        stranger.claim_nothing().await;
        if is_cancel {
            case.cancel(run).await
        } else {
            case.terminate(run).await
        };
        case.send_payload(run, "late").await;
        let claimed = stranger.claim_one().await;
        assert_eq!((claimed.run, claimed.is_fresh, claimed.inbox.len()), (run, true, 3));
        stranger.commit_done(case.turn(&claimed).cancelling()).await;
        assert_eq!(case.status(run).await, Status::Cancelled);
    }
}

/// A delayed run is ordered by the time at which it is due, not by that of its start.
pub async fn a_delayed_run_stands_in_line_by_its_moment(case: Case) {
    let delayed = start_in(&case, 2).await;
    case.clock.advance("1s");
    let earlier = case.start("wf").await;
    case.clock.advance("2s");
    let later = case.start("wf").await;
    case.send_payload(delayed, "x").await;
    let worker = case.join("wf").await;
    let order: Vec<_> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(order, [earlier, delayed, later]);
}

/// Once it has begun, a run that was delayed is woken as any other.
pub async fn a_run_that_was_delayed_is_woken_as_any_other(case: Case) {
    let worker = case.join("wf").await;
    let run = start_in(&case, 60).await;
    case.clock.advance("1m");
    let turn = case.turn(&worker.claim_one().await).then(wait());
    worker.commit_done(turn).await;
    worker.claim_nothing().await;
    case.send_payload(run, "x").await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A repeated start, and a later one with the same key, do not change when a delayed run begins.
pub async fn a_repeated_delayed_start_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let moment = Some(case.later(60));
    let start = Start { not_before: moment, ..case.new_keyed_start("wf", "k", "in") };
    let first = case.try_start(start.clone()).await;
    case.clock.advance("10s");
    assert_eq!(case.try_start(start.clone()).await, first);
    let again = case.try_start(case.new_keyed_start("wf", "k", "in")).await;
    assert_eq!(again, Ok(Started { run: start.run, is_new: false }));
    worker.claim_nothing().await;
    assert_eq!(case.view(start.run).await.wake_at, moment);
}

/// A join or a takeover does not change when a delayed run begins.
pub async fn joins_and_takeovers_do_not_make_a_delayed_run_begin(case: Case) {
    let run = start_in(&case, 60).await;
    let worker = case.join("wf").await;
    case.claim_all_and_crash("wf").await;
    worker.takeover().await;
    case.join_build("wf", "build-2").await.claim_nothing().await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Pending);
}
