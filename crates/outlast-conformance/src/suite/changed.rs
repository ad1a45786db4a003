//! Change signals: a signal whenever a run may have become ready.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};
use std::time::Duration;

use outlast_core::{Busy, Then, Timestamp};

use super::turn_ext::{TurnExt, stuck, wait};
use super::{Case, TestWorker};

async fn epoch(worker: &TestWorker) -> u64 {
    worker.work(outlast_core::ClaimRequest { limit: 0, ..worker.request() }).await.epoch
}

fn is_waiting(changed: Pin<&mut impl Future<Output = Busy>>) -> bool {
    changed.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Waits for a change that `make` causes, which must not come before.
async fn learns_of<T>(case: &Case, worker: &TestWorker, make: impl AsyncFnOnce() -> T) {
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
    learns_of(&case, &worker, async || case.send_payload(waiting, "x").await).await;
    worker.claim_one().await;
    learns_of(&case, &worker, async || case.send_payload(waiting, "y").await).await;
}

/// A run that is released, left, taken over or resumed is a change.
pub async fn a_run_that_is_let_go_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&other.claim_one().await).then(Then::Release);
    learns_of(&case, &worker, async || other.commit_done(turn).await).await;
    other.claim_one().await;
    learns_of(&case, &worker, async || other.leave().await).await;
    case.claim_all_and_crash("wf").await;
    learns_of(&case, &worker, async || worker.takeover().await).await;
    let turn = case.turn(&worker.claim_one().await).then(stuck());
    worker.commit_done(turn).await;
    learns_of(&case, &worker, async || case.world.resume(run).await.unwrap()).await;
}

/// A message that arrives while the run begins to wait is a change.
pub async fn a_wait_that_ends_at_once_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("wf").await);
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).then(wait());
    case.send_payload(run, "x").await;
    learns_of(&case, &other, async || worker.commit_done(turn).await).await;
}

/// The effects of a turn are a change: a child, a message, an answer to the run it holds.
pub async fn what_a_turn_does_beyond_its_run_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let waiting = case.parked(&other, wait()).await;
    let claimed = case.held(&worker).await;
    let first = case.turn(&claimed).steps(1).child(case.new_child(claimed.run, 0, "other"));
    learns_of(&case, &other, async || worker.commit_done(first.clone()).await).await;
    other.claim_one().await;
    let second = case.turn_after(&first).steps(1).sending(case.new_cancel(waiting));
    learns_of(&case, &other, async || worker.commit_done(second.clone()).await).await;
    let child = outlast_core::NewChild { notify_parent: true, ..case.new_child(claimed.run, 1, "none") };
    let third = case.turn_after(&second).steps(1).child(child);
    learns_of(&case, &worker, async || worker.commit_done(third).await).await;
}

/// A terminate is a change to those without the code too, also when the run is stuck.
pub async fn a_terminate_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let run = case.parked(&worker, stuck()).await;
    learns_of(&case, &other, async || case.terminate(run).await).await;
    assert_eq!(other.claim_one().await.run, run);
}

/// A deadline that is earlier than all others is a change.
pub async fn an_earlier_deadline_is_a_change(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let starts = [3_600, 60]
        .map(|seconds| outlast_core::Start { deadline: Some(case.later(seconds)), ..case.new_start("wf") });
    for start in starts {
        case.try_start(start).await.unwrap();
        let turn = case.turn(&worker.claim_one().await).steps(1).then(wait());
        learns_of(&case, &other, async || worker.commit_done(turn).await).await;
    }
}

/// A change between the claim and the wait is not missed.
pub async fn a_change_between_claim_and_waiting_is_not_missed(case: Case) {
    let worker = case.join("wf").await;
    let epoch = epoch(&worker).await;
    case.start("wf").await;
    drop(case.world.changed(epoch, Timestamp::NEVER).await);
}

/// Without a change, `changed` completes when the clock reaches the given time, and not before.
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

/// The work that follows a change is in progress from the change on, so that virtual time waits for it.
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
