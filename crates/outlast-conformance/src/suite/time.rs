//! Time: a run is due when the world's clock says so, not earlier.

use std::time::Duration;

use outlast_core::{ClaimRequest, Timestamp};

use super::Case;
use super::turn_ext::{wait, wait_until};

fn later(case: &Case, seconds: u64) -> Timestamp {
    case.clock.now().plus(Duration::from_secs(seconds))
}

/// A run cannot be claimed before it is due, and can be from then on, to the microsecond.
pub async fn a_run_is_due_at_its_moment_and_not_before(case: Case) {
    let worker = case.join("wf").await;
    let at = later(&case, 60);
    let run = case.parked(&worker, wait_until(at)).await;
    case.clock.advance("59s999ms999us");
    worker.claim_nothing().await;
    case.clock.advance("1us");
    assert_eq!(worker.claim_one().await.run, run);
}

/// A run that waits until a time in the past is ready at once.
pub async fn a_moment_that_has_passed_makes_a_run_ready_at_once(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait_until(case.clock.now())).await;
    assert_eq!(worker.claim_one().await.run, run);
}

/// A claim returns when the next run is due that the worker could claim.
pub async fn a_claim_returns_when_the_next_run_is_due(case: Case) {
    let worker = case.join("wf").await;
    assert_eq!(worker.work(worker.request()).await.next_due, None);
    let (sooner, later) = (later(&case, 10), later(&case, 20));
    case.parked(&worker, wait_until(later)).await;
    case.parked(&worker, wait_until(sooner)).await;
    case.parked(&worker, wait()).await;
    assert_eq!(worker.work(worker.request()).await.next_due, Some(sooner));
    let none = ClaimRequest { limit: 0, ..worker.request() };
    assert_eq!(worker.work(none).await.next_due, Some(sooner));
    case.clock.advance_to(sooner);
    assert_eq!(worker.work(worker.request()).await.next_due, Some(later));
}

/// The next due time does not include runs whose code the worker lacks.
pub async fn the_next_due_time_leaves_out_runs_without_code(case: Case) {
    let worker = case.join("wf").await;
    case.parked(&worker, wait_until(later(&case, 10))).await;
    let stranger = case.join("other").await;
    assert_eq!(stranger.work(stranger.request()).await.next_due, None);
}

/// A later crash or restart does not lengthen the wait.
pub async fn a_restart_honours_the_remaining_wait(case: Case) {
    let doomed = case.join_elsewhere("wf").await;
    let at = later(&case, 60);
    let run = case.parked(&doomed, wait_until(at)).await;
    case.clock.advance("40s");
    case.crash(doomed).await;
    let worker = case.join("wf").await;
    worker.takeover().await;
    let work = worker.work(worker.request()).await;
    assert_eq!((work.claimed.len(), work.next_due), (0, Some(at)));
    case.clock.advance_to(at);
    assert_eq!(worker.claim_one().await.run, run);
}

/// The world uses the clock with which it was opened.
pub async fn the_worlds_clock_is_the_only_one(case: Case) {
    case.clock.advance("1d");
    assert_eq!(case.world.clock().now(), case.clock.now());
    assert!(case.world.clock().is_virtual());
    let run = case.start("wf").await;
    assert_eq!(case.view(run).await.created_at, case.clock.now());
}
