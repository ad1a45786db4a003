//! Takeover of the runs of workers that are gone.

use outlast_core::{Status, Then};

use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// The runs of a crashed worker are ready for others after a takeover, and not before.
pub async fn the_runs_of_a_crashed_worker_are_taken_over(case: Case) {
    let heir = case.join("wf").await;
    let run = case.start("wf").await;
    assert_eq!(case.claim_all_and_crash("wf").await, [run]);
    heir.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Running);
    assert_eq!(heir.takeover().await, 1);
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.crashes), (Status::Pending, None, 1));
    let claimed = heir.claim_one().await;
    assert_eq!((claimed.run, claimed.columns.crashes), (run, 1));
    assert_eq!(heir.takeover().await, 0, "a takeover happens once");
}

/// A session is taken over from the microsecond at which it expires, and not before.
pub async fn an_expired_session_is_taken_over(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    worker.claim_one().await;
    case.clock.advance("9s");
    let heir = case.join_elsewhere("wf").await;
    assert_eq!(heir.takeover().await, 0);
    case.clock.advance("999ms999us");
    assert_eq!(heir.takeover().await, 0);
    case.clock.advance("1us");
    assert_eq!(heir.takeover().await, 1);
    assert_eq!(heir.claim_one().await.run, run);
    assert_eq!(case.world.workers().await.unwrap().len(), 1);
}

/// A worker does not take over its own session, however late it is.
pub async fn a_worker_does_not_take_itself_over(case: Case) {
    let worker = case.join("wf").await;
    case.start("wf").await;
    worker.claim_one().await;
    case.clock.advance("1h");
    assert_eq!(worker.takeover().await, 0);
    assert_eq!(worker.held().await, 1);
}

/// A live worker keeps its runs when another one is taken over.
pub async fn a_living_worker_keeps_its_runs(case: Case) {
    let (heir, living) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let kept = case.start("wf").await;
    let turn = case.turn(&living.claim_one().await).steps(1);
    let lost = case.start("wf").await;
    assert_eq!(case.claim_all_and_crash("wf").await, [lost]);
    assert_eq!(heir.takeover().await, 1);
    living.commit_done(turn).await;
    assert_eq!(case.view(kept).await.crashes, 0);
}

/// Everything that was committed before a crash exists after it.
pub async fn what_was_committed_before_the_crash_is_kept(case: Case) {
    let (heir, doomed) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let turn = case.turn(&doomed.claim_one().await).steps(2).consuming(1);
    doomed.commit_done(turn.clone()).await;
    case.send_payload(run, "b").await;
    case.crash(doomed).await;
    heir.takeover().await;
    let claimed = heir.claim_one().await;
    assert_eq!((claimed.turn, claimed.seq, claimed.consumed), (turn.id, 3, 1));
    assert_eq!((claimed.inbox.len(), claimed.inbox[0].position), (1, 2));
    assert_eq!(claimed.history.whole().unwrap().last(), Some(&turn.record()));
}

/// A crash does not affect runs that the worker had released before: they continue to wait.
pub async fn a_crash_does_not_touch_runs_that_wait(case: Case) {
    let (heir, doomed) = (case.join("wf").await, case.join_elsewhere("wf").await);
    let run = case.parked(&doomed, wait()).await;
    case.crash(doomed).await;
    assert_eq!(heir.takeover().await, 0);
    heir.claim_nothing().await;
    assert_eq!((case.status(run).await, case.view(run).await.crashes), (Status::Waiting, 0));
}

/// A session that has ended cannot take over others.
pub async fn a_session_that_is_gone_takes_nothing_over(case: Case) {
    let worker = case.join("wf").await;
    worker.leave().await;
    assert_refused!(case.world.takeover(worker.session).await, Fenced);
}

/// A turn sets the number of crashes of its run.
pub async fn a_turn_says_how_many_crashes_count(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.claim_all_and_crash("wf").await;
    worker.takeover().await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(run).await.crashes, 1, "a step may still be open that was at the crash");
    let turn = case.turn_after(&turn).steps(1).clearing_crashes();
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(run).await.crashes, 0);
    worker.commit_done(case.turn_after(&turn).then(Then::Release)).await;
    assert_eq!(worker.claim_one().await.columns.crashes, 0);
}
