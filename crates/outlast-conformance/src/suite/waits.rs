//! Going to wait: the wait and the check are one commit.

use std::time::Duration;

use outlast_core::Status;

use super::Case;
use super::turn_ext::{TurnExt, wait, wait_until};

/// A message that arrives between the last read and the wait makes the run ready at once.
pub async fn a_message_between_the_read_and_the_wait_is_not_lost(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let claimed = worker.claim_one().await;
    case.send_payload(run, "meanwhile").await;
    worker.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    let again = worker.claim_one().await;
    assert_eq!((again.run, again.inbox.len()), (run, 1));
}

/// A run that waits until a later moment is woken by a message before it.
pub async fn a_message_wakes_a_run_before_its_moment(case: Case) {
    let worker = case.join("wf").await;
    let at = case.clock.now().plus(Duration::from_secs(3_600));
    let run = case.parked(&worker, wait_until(at)).await;
    case.send_payload(run, "x").await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A run that is woken early and waits again for the same time is ready at that time.
pub async fn a_run_woken_early_can_wait_for_the_same_moment(case: Case) {
    let worker = case.join("wf").await;
    let at = case.clock.now().plus(Duration::from_secs(3_600));
    let run = case.parked(&worker, wait_until(at)).await;
    case.send_payload(run, "not what it waits for").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(wait_until(at));
    worker.commit_done(turn).await;
    worker.claim_nothing().await;
    assert_eq!(case.view(run).await.wake_at, Some(at));
    case.clock.advance_to(at);
    assert_eq!(worker.claim_one().await.run, run);
}

/// A run that has read everything waits, also when it had read only a part before.
pub async fn a_run_that_has_read_everything_waits(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    case.send_payload(run, "b").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).consuming(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).consuming(2).then(wait())).await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Waiting);
}

/// A run that left a part unread is ready at once.
pub async fn a_run_that_left_a_part_unread_is_ready_at_once(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    case.send_payload(run, "b").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).steps(1).consuming(1).then(wait())).await;
    assert_eq!(worker.claim_one().await.consumed, 1);
}

/// A message makes only its own run ready.
pub async fn a_message_wakes_only_its_own_run(case: Case) {
    let worker = case.join("wf").await;
    let first = case.parked(&worker, wait()).await;
    let second = case.parked(&worker, wait()).await;
    case.send_payload(second, "x").await;
    assert_eq!(worker.claim_one().await.run, second);
    assert_eq!(case.status(first).await, Status::Waiting);
}

/// A message to a run that is already ready does not change its place in the order.
pub async fn a_message_does_not_send_a_ready_run_back_in_line(case: Case) {
    let worker = case.join("wf").await;
    let due = case.parked(&worker, wait_until(case.clock.now().plus(Duration::from_secs(1)))).await;
    case.clock.advance("1s");
    let new = [case.start("wf").await, case.start("wf").await];
    case.clock.advance("1s");
    let newest = case.start("wf").await;
    case.send_payload(due, "x").await;
    case.send_payload(new[0], "x").await;
    let order: Vec<_> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(order, [due, new[0], new[1], newest]);
}
