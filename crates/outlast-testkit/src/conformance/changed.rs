//! Wake-up: a hint whenever something may have become ready.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use outlast_core::{Busy, Then, Timestamp};

use super::shape::{Shape, stuck, wait};
use super::{Case, Worker};

async fn epoch(worker: &Worker) -> u64 {
    worker.work(outlast_core::ClaimRequest { limit: 0, ..worker.request() }).await.epoch
}

fn is_waiting(changed: Pin<&mut impl Future<Output = Busy>>) -> bool {
    changed.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Waits for a change that `make` brings about, which must not come before.
async fn learns_of<T>(case: &Case, worker: &Worker, make: impl AsyncFnOnce() -> T) {
    let epoch = epoch(worker).await;
    let mut changed = pin!(worker.world.changed(epoch, Timestamp::NEVER));
    assert!(is_waiting(changed.as_mut()), "nothing has changed yet");
    make().await;
    drop(changed.await);
    case.clock.settle().await;
}

/// A start is a change.
pub async fn a_start_is_a_change(case: Case) {
    let worker = case.join("wf").await;
    learns_of(&case, &worker, async || case.start("wf").await).await;
}

/// A message is a change: to a waiting run, and to one that the worker holds.
pub async fn a_message_is_a_change(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    learns_of(&case, &worker, async || case.tell(waiting, "x").await).await;
    worker.claim_one().await;
    learns_of(&case, &worker, async || case.tell(waiting, "y").await).await;
}

/// A run that is released, left, taken over or resumed is a change.
pub async fn a_run_that_is_let_go_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&other.claim_one().await).then(Then::Release);
    learns_of(&case, &worker, async || other.commit_done(turn).await).await;
    other.claim_one().await;
    learns_of(&case, &worker, async || other.leave().await).await;
    case.crash_with_all("wf").await;
    learns_of(&case, &worker, async || worker.takeover().await).await;
    let turn = case.turn(&worker.claim_one().await).then(stuck());
    worker.commit_done(turn).await;
    learns_of(&case, &worker, async || case.world.resume(run).await.unwrap()).await;
}

/// A message that came while the run went to wait is a change.
pub async fn a_wait_that_ends_at_once_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).then(wait());
    case.tell(run, "x").await;
    learns_of(&case, &other, async || worker.commit_done(turn).await).await;
}

/// What changed between the claim and the wait for a change is not missed.
pub async fn a_change_between_claim_and_waiting_is_not_missed(case: Case) {
    let worker = case.join("wf").await;
    let epoch = epoch(&worker).await;
    case.start("wf").await;
    drop(case.world.changed(epoch, Timestamp::NEVER).await);
}

/// Without a change it completes when the clock shows the moment, and not before.
pub async fn without_a_change_it_completes_at_its_moment(case: Case) {
    let worker = case.join("wf").await;
    let epoch = epoch(&worker).await;
    let until = case.clock.now().plus(Duration::from_secs(5));
    let mut changed = pin!(case.world.changed(epoch, until));
    assert!(is_waiting(changed.as_mut()));
    case.clock.advance("4s999ms");
    assert!(is_waiting(changed.as_mut()));
    case.clock.advance("1ms");
    drop(changed.await);
}

/// The work that follows a change is under way from the change on, so that virtual time waits for it.
pub async fn the_work_that_follows_a_change_is_under_way_without_a_gap(case: Case) {
    let worker = case.join("wf").await;
    let epoch = epoch(&worker).await;
    let mut changed = pin!(case.world.changed(epoch, Timestamp::NEVER));
    assert!(is_waiting(changed.as_mut()));
    case.start("wf").await;
    assert!(case.clock.busy_count() > 0, "from the ring on");
    let busy = changed.await;
    assert!(case.clock.busy_count() > 0, "handed over");
    drop(busy);
    case.clock.settle().await;
}
