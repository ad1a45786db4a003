//! Runs that kill their workers: first suspects, then stuck.

use outlast_core::limits::{POISON_CRASHES, SUSPECT_CRASHES};
use outlast_core::{ClaimRequest, RunId, Status, StuckReason, Then};

use super::Case;
use super::shape::Shape;

/// Crashes so many workers, each with everything aboard that it could claim.
async fn crash_times(case: &Case, times: u32) {
    let heir = case.join("none").await;
    for _ in 0..times {
        case.crash_with_all("wf").await;
        heir.takeover().await;
    }
    heir.leave().await;
}

/// A suspect is given only to a worker that may carry one.
pub async fn a_suspect_is_given_only_to_a_worker_that_may_carry_one(case: Case) {
    let run = case.start("wf").await;
    crash_times(&case, SUSPECT_CRASHES).await;
    let worker = case.join("wf").await;
    let careful = ClaimRequest { suspect: false, ..worker.request() };
    assert!(worker.work(careful).await.claimed.is_empty());
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.crashes), (run, SUSPECT_CRASHES));
}

/// A run that crashed less often than a suspect travels with the others.
pub async fn a_run_below_the_limit_is_no_suspect(case: Case) {
    case.start("wf").await;
    crash_times(&case, SUSPECT_CRASHES - 1).await;
    let worker = case.join("wf").await;
    let careful = ClaimRequest { suspect: false, ..worker.request() };
    assert_eq!(worker.work(careful).await.claimed.len(), 1);
}

/// One claim brings at most one suspect, among any number of others.
pub async fn a_claim_brings_at_most_one_suspect(case: Case) {
    let suspects: Vec<RunId> = [case.start("wf").await, case.start("wf").await].into();
    crash_times(&case, SUSPECT_CRASHES).await;
    let innocent = case.start("wf").await;
    let worker = case.join("wf").await;
    let claimed: Vec<RunId> = worker.claim().await.iter().map(|claimed| claimed.run).collect();
    assert_eq!(claimed, [suspects[0], innocent]);
    assert_eq!(worker.claim_one().await.run, suspects[1]);
}

/// A crash with a suspect aboard counts against the suspect only.
pub async fn a_crash_with_a_suspect_aboard_counts_only_the_suspect(case: Case) {
    let suspect = case.start("wf").await;
    crash_times(&case, SUSPECT_CRASHES).await;
    let innocent = case.start("wf").await;
    crash_times(&case, 1).await;
    assert_eq!(case.view(suspect).await.crashes, SUSPECT_CRASHES + 1);
    assert_eq!((case.view(innocent).await.crashes, case.status(innocent).await), (0, Status::Pending));
}

/// A commit clears a suspect: it travels with the others again.
pub async fn a_commit_clears_a_suspect(case: Case) {
    case.start("wf").await;
    crash_times(&case, SUSPECT_CRASHES).await;
    let worker = case.join("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(Then::Release);
    worker.commit_done(turn).await;
    let careful = ClaimRequest { suspect: false, ..worker.request() };
    assert_eq!(worker.work(careful).await.claimed.len(), 1);
}

/// A run that has killed its worker too often is stuck, with its history and messages untouched.
pub async fn a_run_that_kills_its_workers_becomes_stuck(case: Case) {
    let run = case.start("wf").await;
    case.tell(run, "a").await;
    crash_times(&case, POISON_CRASHES - 1).await;
    assert_eq!(case.status(run).await, Status::Pending);
    crash_times(&case, 1).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.consumed), (Status::Stuck, None, 0));
    let stuck = view.stuck.unwrap();
    assert_eq!((stuck.reason, &*stuck.build), (StuckReason::Poison, super::case::BUILD));
    case.join("wf").await.claim_nothing().await;
    assert_eq!(case.kinds(run).await, ["run_started"]);
    assert_eq!(case.counts().await, [(Status::Stuck, 1)].into());
}

/// A resumed poison run is tried again, and remains a suspect until it commits.
pub async fn a_resumed_poison_run_is_still_a_suspect(case: Case) {
    let run = case.start("wf").await;
    crash_times(&case, POISON_CRASHES).await;
    case.world.resume(run).await.unwrap();
    let worker = case.join("wf").await;
    let careful = ClaimRequest { suspect: false, ..worker.request() };
    assert!(worker.work(careful).await.claimed.is_empty());
    assert_eq!(worker.claim_one().await.crashes, POISON_CRASHES);
}
