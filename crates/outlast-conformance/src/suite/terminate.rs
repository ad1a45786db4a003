//! Terminating: a run ends without its code, and any worker may end it.

use outlast_core::event::{RULES, format_of_rules};
use outlast_core::{ClaimRequest, Ended, Outcome, RunId, Status, Timestamp};

use super::turn_ext::{TurnExt, failure, stuck, wait};
use super::{Case, TestWorker};

/// A run that had a turn and is parked like this.
async fn parked_after_a_turn(case: &Case, worker: &TestWorker, then: outlast_core::Then) -> RunId {
    let claimed = case.held(worker).await;
    let turn = case.turn(&claimed).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).then(then)).await;
    claimed.run
}

/// A worker without the code can claim and end a terminated run.
pub async fn a_run_that_is_terminated_needs_no_code(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = parked_after_a_turn(&case, &worker, wait()).await;
    case.terminate(run).await;
    case.clock.advance("1s");
    let claimed = stranger.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh, claimed.is_overdue), (run, false, false));
    assert_eq!(claimed.inbox.len(), 1);
    stranger.commit_done(case.turn(&claimed).terminating()).await;
    assert_eq!(case.status(run).await, Status::Cancelled);
    let outcome = Outcome::Cancelled(failure());
    assert_eq!(case.world.ended(run, Timestamp::NEVER).await, Ok(Some(Ended { run, outcome })));
    assert_eq!(case.kinds(run).await, ["run_started", "step_started", "run_terminated"]);
    assert_eq!(case.counts().await, [(Status::Cancelled, 1)].into());
}

/// A worker with the code may end it as well, and only one worker gets it.
pub async fn a_run_that_is_terminated_is_given_once(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = parked_after_a_turn(&case, &worker, wait()).await;
    case.terminate(run).await;
    assert_eq!(worker.claim_one().await.run, run);
    case.clock.advance("1s");
    stranger.claim_nothing().await;
}

/// A run that was never claimed is terminated like any other.
pub async fn a_fresh_run_that_is_terminated_needs_no_code(case: Case) {
    let stranger = case.join("other").await;
    let run = case.start("wf").await;
    case.terminate(run).await;
    let claimed = stranger.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh), (run, true));
}

/// Every worker can claim a terminated stuck run, also of the build that left it stuck.
pub async fn a_stuck_run_is_terminated_by_any_build(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join_build("other", "build-2").await);
    for ender in [&worker, &other] {
        let run = parked_after_a_turn(&case, &worker, stuck()).await;
        worker.claim_nothing().await;
        case.terminate(run).await;
        assert_eq!(case.status(run).await, Status::Stuck, "until someone claims it");
        let claimed = ender.claim_one().await;
        assert_eq!(claimed.run, run);
        ender.commit_done(case.turn(&claimed).terminating()).await;
        let view = case.view(run).await;
        assert_eq!((view.status, view.stuck), (Status::Cancelled, None));
    }
}

/// A run is kept from the build that failed to continue it, but not when it is terminated.
pub async fn a_failed_build_may_terminate(case: Case) {
    let worker = case.join("wf").await;
    let run = parked_after_a_turn(&case, &worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await).then(wait());
    mended.commit_done(turn).await;
    case.send_payload(run, "x").await;
    case.clock.advance("1s");
    worker.claim_nothing().await;
    case.terminate(run).await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A cancel makes a stuck run without a committed turn ready, because no code is needed to end it. A stuck run that has
/// committed a turn stays stuck.
pub async fn a_cancel_frees_a_stuck_run_only_before_its_first_turn(case: Case) {
    let worker = case.join("wf").await;
    let fresh = case.parked(&worker, stuck()).await;
    let begun = parked_after_a_turn(&case, &worker, stuck()).await;
    case.cancel(begun).await;
    worker.claim_nothing().await;
    case.cancel(fresh).await;
    let claimed = case.join("other").await.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh), (fresh, true));
}

/// A terminate of a held run is an unread message for its holder alone.
pub async fn a_held_run_that_is_terminated_stays_with_its_holder(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let claimed = case.held(&worker).await;
    case.terminate(claimed.run).await;
    stranger.claim_nothing().await;
    let unread = worker.work(worker.request()).await.unread;
    assert_eq!((unread[0].run, unread[0].messages.len()), (claimed.run, 1));
}

/// A terminate that arrives while a worker holds the run takes effect when that worker releases it.
pub async fn a_terminate_that_came_while_held_counts_afterwards(case: Case) {
    let stranger = case.join("other").await;
    for then in [wait(), outlast_core::Then::Release] {
        let worker = case.join("wf").await;
        let claimed = case.held(&worker).await;
        case.terminate(claimed.run).await;
        worker.commit_done(case.turn(&claimed).steps(1).then(then)).await;
        case.clock.advance("1s");
        let again = stranger.claim_one().await;
        assert_eq!((again.run, again.inbox.len()), (claimed.run, 1));
        worker.leave().await;
    }
}

/// A terminate is not lost when the holder leaves the run stuck: the run is ready to be ended.
pub async fn a_terminate_that_came_before_a_run_got_stuck_counts(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let claimed = case.held(&worker).await;
    case.terminate(claimed.run).await;
    worker.commit_done(case.turn(&claimed).steps(1).then(stuck())).await;
    assert_eq!(case.status(claimed.run).await, Status::Stuck);
    let again = stranger.claim_one().await;
    assert_eq!((again.run, again.inbox.len()), (claimed.run, 1));
}

/// A terminated run cannot be claimed by a worker that cannot read its history.
pub async fn a_run_that_is_terminated_needs_its_format(case: Case) {
    let worker = case.join("wf").await;
    let run = parked_after_a_turn(&case, &worker, wait()).await;
    let old = ClaimRequest { format: format_of_rules(RULES) - 1, ..worker.request() };
    assert!(worker.work(old.clone()).await.claimed.is_empty());
    case.terminate(run).await;
    assert!(worker.work(old).await.claimed.is_empty());
    case.clock.advance("1s");
    assert_eq!(case.join("other").await.claim_one().await.run, run);
}

/// After a commit has consumed a terminate, only workers with the code can claim the run.
pub async fn a_terminate_that_was_consumed_counts_no_more(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let claimed = case.held(&worker).await;
    case.terminate(claimed.run).await;
    worker.commit_done(case.turn(&claimed).steps(1).consuming(1).then(wait())).await;
    case.send_payload(claimed.run, "x").await;
    case.clock.advance("1s");
    stranger.claim_nothing().await;
    assert_eq!(worker.claim_one().await.inbox.len(), 1);
}

/// After a wake, only workers with the code can claim the run.
pub async fn a_wake_needs_the_code(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = case.parked(&worker, wait()).await;
    let body = outlast_core::MessageBody::Wake { op: None };
    case.try_send(case.new_message_of(run, body)).await.unwrap();
    case.clock.advance("1s");
    stranger.claim_nothing().await;
    assert_eq!(worker.claim_one().await.run, run);
}
