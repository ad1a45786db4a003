//! Preference: a woken run goes first to the worker that may still have its future.

use std::time::Duration;

use outlast_core::limits::PREFERENCE;
use outlast_core::{Then, Timestamp};

use super::turn_ext::{TurnExt, wait, wait_until};
use super::{Case, TestWorker};

async fn two_workers(case: &Case) -> (TestWorker, TestWorker) {
    (case.join("wf").await, case.join_elsewhere("wf").await)
}

fn in_a_second(case: &Case) -> Timestamp {
    case.clock.now().plus(Duration::from_secs(1))
}

/// The session that last held a run can claim it at once when a message has woken it.
pub async fn a_woken_run_is_given_to_its_last_holder_at_once(case: Case) {
    let (last, other) = two_workers(&case).await;
    let run = case.parked(&last, wait()).await;
    case.send_payload(run, "x").await;
    other.claim_nothing().await;
    assert_eq!(last.claim_one().await.run, run);
}

/// Other sessions can claim the run when the preference is over, and not before.
pub async fn a_woken_run_is_given_to_others_after_the_preference(case: Case) {
    let (last, other) = two_workers(&case).await;
    let run = case.parked(&last, wait()).await;
    case.send_payload(run, "x").await;
    case.clock.advance(PREFERENCE - Duration::from_micros(1));
    other.claim_nothing().await;
    case.clock.advance("1us");
    assert_eq!(other.claim_one().await.run, run);
}

/// A run that is due is preferred from the moment at which it was due.
pub async fn a_due_run_is_preferred_from_its_due_moment(case: Case) {
    let (last, other) = two_workers(&case).await;
    let at = in_a_second(&case);
    let run = case.parked(&last, wait_until(at)).await;
    case.clock.advance_to(at);
    other.claim_nothing().await;
    case.clock.advance_to(at.plus(PREFERENCE));
    assert_eq!(other.claim_one().await.run, run);
}

/// The next due time that other sessions get includes the preference.
pub async fn other_sessions_get_the_due_time_after_the_preference(case: Case) {
    let (last, other) = two_workers(&case).await;
    let at = in_a_second(&case);
    case.parked(&last, wait_until(at)).await;
    case.clock.advance_to(at);
    let work = other.work(other.request()).await;
    assert_eq!(work.next_due, Some(at.plus(PREFERENCE)));
}

/// A session that has left has no preference.
pub async fn a_session_that_left_is_not_preferred(case: Case) {
    let (last, other) = two_workers(&case).await;
    let (messaged, due) =
        (case.parked(&last, wait()).await, case.parked(&last, wait_until(case.clock.now())).await);
    last.leave().await;
    case.send_payload(messaged, "x").await;
    let claimed: std::collections::BTreeSet<_> =
        other.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(claimed, [messaged, due].into());
}

/// A session that was taken over has no preference.
pub async fn a_session_that_was_taken_over_is_not_preferred(case: Case) {
    let (other, last) = two_workers(&case).await;
    let run = case.parked(&last, wait()).await;
    case.send_payload(run, "x").await;
    case.crash(last).await;
    other.takeover().await;
    assert_eq!(other.claim_one().await.run, run);
}

/// Every session can claim a new run at once.
pub async fn every_session_can_claim_a_new_run(case: Case) {
    let (_, other) = two_workers(&case).await;
    let run = case.start("wf").await;
    assert_eq!(other.claim_one().await.run, run);
}

/// Every session can claim a run at once that was released because its worker stops.
pub async fn every_session_can_claim_a_released_run(case: Case) {
    let (last, other) = two_workers(&case).await;
    let run = case.parked(&last, wait()).await;
    case.send_payload(run, "x").await;
    let turn = case.turn(&last.claim_one().await).then(Then::Release);
    last.commit_done(turn).await;
    assert_eq!(other.claim_one().await.run, run);
}
