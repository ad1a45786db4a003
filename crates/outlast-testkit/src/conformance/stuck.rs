//! Stuck runs: nothing is lost, and another build or `resume` tries again.

use outlast_core::Status;

use super::shape::{Shape, stuck, wait};
use super::{Case, assert_refused};

/// A stuck turn consumes nothing, adds nothing to the history, and says why.
pub async fn a_stuck_turn_leaves_history_and_inbox_untouched(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.tell(run, "a").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).steps(1).consuming(1).then(stuck())).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Stuck, None));
    assert_eq!((view.sent, view.consumed), (1, 0));
    let outlast_core::Then::Stuck(expected) = stuck() else { unreachable!() };
    assert_eq!(view.stuck, Some(expected));
    assert_eq!(case.kinds(run).await, ["run_started"]);
    let other = case.join_build("wf", "build-2").await;
    let again = other.claim_one().await;
    assert_eq!((again.seq, again.consumed, again.inbox.len()), (1, 0, 1));
}

/// The build that left a run stuck is not given it again, however often it joins.
pub async fn the_same_build_is_not_given_a_stuck_run(case: Case) {
    let (worker, earlier) = (case.join("wf").await, case.join_build("wf", "build-2").await);
    case.parked(&worker, stuck()).await;
    case.clock.advance("1d");
    worker.claim_nothing().await;
    case.join("wf").await.claim_nothing().await;
    // Only the join of another build makes it ready: two that both fail would pass it to and fro.
    earlier.claim_nothing().await;
}

/// A worker of another build that joins with the code is given the run; until then it stays stuck.
pub async fn another_build_that_joins_is_given_a_stuck_run(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    assert_eq!(mended.claim_one().await.run, run);
    let view = case.view(run).await;
    assert_eq!((view.status, view.stuck), (Status::Running, None));
}

/// Another build without the code does not make a stuck run ready.
pub async fn another_build_without_the_code_changes_nothing(case: Case) {
    let (worker, earlier) = (case.join("wf").await, case.join_build("wf", "build-2").await);
    let run = case.parked(&worker, stuck()).await;
    let stranger = case.join_build("other", "build-3").await;
    stranger.claim_nothing().await;
    earlier.claim_nothing().await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
}

/// After another build went on, the one that failed is still not given the run.
pub async fn the_build_that_failed_is_not_given_the_run_after_another_went_on(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await).steps(1).then(wait());
    mended.commit_done(turn).await;
    case.tell(run, "x").await;
    case.clock.advance("1m");
    worker.claim_nothing().await;
    assert_eq!(mended.claim_one().await.run, run);
}

/// A resumed run is given to every build, also to the one that left it stuck.
pub async fn a_resumed_run_is_given_to_every_build(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    case.world.resume(run).await.unwrap();
    assert_eq!(worker.claim_one().await.run, run);
    assert_eq!(case.view(run).await.stuck, None);
}

/// Only a stuck run can be resumed.
pub async fn only_a_stuck_run_is_resumed(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    assert_refused!(case.world.resume(run).await, Conflict);
    let turn = case.turn(&worker.claim_one().await).then(wait());
    assert_refused!(case.world.resume(run).await, Conflict);
    worker.commit_done(turn).await;
    assert_refused!(case.world.resume(run).await, Conflict);
}

/// A stuck run keeps what it is sent, and stays stuck.
pub async fn a_message_to_a_stuck_run_is_kept_and_changes_nothing(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join_build("wf", "build-2").await);
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).then(stuck())).await;
    case.tell(run, "a").await;
    case.cancel(run).await;
    worker.claim_nothing().await;
    other.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    case.world.resume(run).await.unwrap();
    assert_eq!(worker.claim_one().await.inbox.len(), 2);
}

/// A run that gets stuck again is not given to the second build either.
pub async fn a_run_stuck_again_is_kept_from_the_build_that_tried_last(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let second = case.join_build("wf", "build-2").await;
    let turn = case.turn(&second.claim_one().await).then(super::shape::stuck_by("build-2"));
    second.commit_done(turn).await;
    second.claim_nothing().await;
    assert_eq!(case.view(run).await.stuck.unwrap().build, "build-2");
    let third = case.join_build("wf", "build-3").await;
    assert_eq!(third.claim_one().await.run, run);
}
