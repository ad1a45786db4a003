//! Runs that need no code: cancelled before their first turn.

use outlast_core::event::{RULES, format_of_rules};
use outlast_core::{ClaimRequest, Status};

use super::Case;
use super::turn_ext::{TurnExt, wait};

/// Every worker can claim and end a cancelled run without a turn.
pub async fn a_fresh_run_that_is_cancelled_needs_no_code(case: Case) {
    let stranger = case.join("other").await;
    let run = case.start("wf").await;
    stranger.claim_nothing().await;
    case.cancel(run).await;
    let claimed = stranger.claim_one().await;
    assert_eq!((claimed.run, claimed.is_fresh, claimed.inbox.len()), (run, true, 1));
    stranger.commit_done(case.turn(&claimed).cancelling()).await;
    assert_eq!(case.status(run).await, Status::Cancelled);
}

/// A worker with the code can claim such a run as well, and only one worker gets it.
pub async fn a_fresh_run_that_is_cancelled_is_given_to_its_own_worker_too(case: Case) {
    let run = case.start("wf").await;
    case.cancel(run).await;
    let worker = case.join("wf").await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A payload is not a cancel: the run needs its code.
pub async fn a_fresh_run_that_was_sent_a_payload_needs_its_code(case: Case) {
    let stranger = case.join("other").await;
    let run = case.start("wf").await;
    case.send_payload(run, "x").await;
    stranger.claim_nothing().await;
}

/// A run that had a turn needs its code to be cancelled.
pub async fn a_run_that_had_a_turn_needs_its_code(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(wait());
    worker.commit_done(turn).await;
    case.cancel(run).await;
    case.clock.advance("1h");
    stranger.claim_nothing().await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A worker that cannot read the format cannot claim a run that needs no code either.
pub async fn a_run_that_needs_no_code_needs_its_format(case: Case) {
    let run = case.start("wf").await;
    case.cancel(run).await;
    let worker = case.join("wf").await;
    let old = ClaimRequest { format: format_of_rules(RULES) - 1, ..worker.request() };
    assert!(worker.work(old).await.claimed.is_empty());
    assert_eq!(case.join("other").await.claim_one().await.run, run);
}

/// A cancel that arrives while a worker holds the fresh run counts when that worker releases it.
pub async fn a_cancel_that_came_while_held_counts_after_a_release(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = case.start("wf").await;
    worker.claim_one().await;
    case.cancel(run).await;
    stranger.claim_nothing().await;
    worker.leave().await;
    assert_eq!(stranger.claim_one().await.run, run);
}
