//! Queues as clients see them: how many of their runs are ready, stuck and held.

use outlast_core::limits::{BATCH_STARTS_MAX, QUEUE_COUNT_MAX};
use outlast_core::{Join, QueueView, Start, Timestamp};

use super::Case;
use super::turn_ext::{stuck, wait, wait_until};

/// The queue of this name.
async fn queue(case: &Case, name: &str) -> QueueView {
    let queues = case.world.queues().await.unwrap();
    queues.into_iter().find(|queue| *queue.name == *name).unwrap_or_else(|| QueueView::empty(name))
}

async fn ready(case: &Case, name: &str) -> (u64, Option<Timestamp>) {
    let found = queue(case, name).await;
    (found.ready, found.oldest_ready_at)
}

async fn start_in(case: &Case, queue: &str) {
    case.try_start(case.new_queued_start("wf", queue)).await.unwrap();
}

/// Starts that begin later are not ready, however many and however old they are, and hide none that is.
pub async fn delayed_starts_do_not_hide_ready_runs(case: Case) {
    assert_eq!(case.world.queues().await.unwrap(), []);
    let not_before = Some(case.later(3600));
    let later = |queue| Start { not_before, ..case.new_queued_start("wf", queue) };
    let starts: Vec<_> = (0..BATCH_STARTS_MAX).map(|_| later("a")).collect();
    case.world.start(starts).await.unwrap();
    case.try_start(later("c")).await.unwrap();
    case.clock.advance("1s");
    let began = case.clock.now();
    start_in(&case, "b").await;
    case.clock.advance("1s");
    start_in(&case, "b").await;
    let names: Vec<_> = case.world.queues().await.unwrap().into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, ["a".into(), "b".into(), "c".into()], "queues are listed by name");
    assert_eq!(ready(&case, "a").await, (0, None));
    assert_eq!(ready(&case, "b").await, (2, Some(began)));
    case.clock.advance("1h");
    assert_eq!(ready(&case, "a").await, (BATCH_STARTS_MAX as u64, not_before));
}

/// A waiting run that a message or a time has woken is ready, since then.
pub async fn a_woken_run_is_ready_in_its_queue(case: Case) {
    let worker = case.join("wf").await;
    let messaged = case.parked(&worker, wait()).await;
    let due = case.later(60);
    case.parked(&worker, wait_until(due)).await;
    assert_eq!(ready(&case, "default").await, (0, None));
    case.clock.advance("10s");
    case.send_payload(messaged, "x").await;
    let sent = case.clock.now();
    assert_eq!(ready(&case, "default").await, (1, Some(sent)));
    case.clock.advance("1m");
    assert_eq!(ready(&case, "default").await, (2, Some(sent)));
    assert_eq!(worker.claim_runs().await.len(), 2);
    assert_eq!(ready(&case, "default").await, (0, None));
}

/// Held runs are counted as running in their queue until their worker releases them.
pub async fn held_runs_are_running_in_their_queues(case: Case) {
    for name in ["a", "b", "b"] {
        start_in(&case, name).await;
    }
    let worker = case.join_queues("wf", &["a", "b"]).await;
    assert_eq!(queue(&case, "b").await.running, 0);
    assert_eq!(worker.claim_runs().await.len(), 3);
    let (a, b) = (queue(&case, "a").await, queue(&case, "b").await);
    assert_eq!((a.running, a.ready, b.running, b.ready), (1, 0, 2, 0));
    worker.leave().await;
    let b = queue(&case, "b").await;
    assert_eq!((b.running, b.ready), (0, 2));
}

/// A run that builds failed to continue is counted as stuck, and not as ready: more workers of the same build do not help.
pub async fn a_stuck_run_is_not_ready(case: Case) {
    let worker = case.join("wf").await;
    case.parked(&worker, stuck()).await;
    let view = queue(&case, "default").await;
    assert_eq!((view.ready, view.oldest_ready_at, view.stuck), (0, None, 1));
    let join = Join { build: "build-2".into(), ..case.new_join(&[("wf", 1)]) };
    let mended = case.join_with(case.world.clone(), join).await;
    mended.claim_one().await;
    let view = queue(&case, "default").await;
    assert_eq!((view.running, view.stuck), (1, 0));
}

/// A run that can be ended without its code is counted as ready in its queue, also if builds failed to continue it.
pub async fn a_run_that_needs_no_code_is_ready_in_its_queue(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    case.clock.advance("1s");
    case.terminate(run).await;
    let view = queue(&case, "default").await;
    assert_eq!((view.ready, view.stuck), (1, 0));
    start_in(&case, "gpu").await;
    case.clock.advance("1s");
    let doomed = case.try_start(case.new_queued_start("wf", "gpu")).await.unwrap().run;
    case.terminate(doomed).await;
    assert_eq!(queue(&case, "gpu").await.ready, 2);
}

/// The oldest ready run is found whatever its workflow, version and priority.
pub async fn the_oldest_of_all_groups_is_found(case: Case) {
    let start = |workflow: &str, version, priority| Start { version, priority, ..case.new_start(workflow) };
    let mut began = Vec::new();
    for new in [start("b", 1, 0), start("a", 2, 9), start("a", 1, 3), start("a", 1, 0)] {
        began.push(case.clock.now());
        case.try_start(new).await.unwrap();
        case.clock.advance("1s");
    }
    assert_eq!(ready(&case, "default").await, (4, Some(began[0])));
    case.join("b").await.claim_one().await;
    assert_eq!(ready(&case, "default").await, (3, Some(began[1])));
}

/// The ready runs of a queue are counted up to a limit, over all its groups. The oldest one is found even if there are
/// more.
pub async fn ready_runs_are_counted_up_to_a_limit(case: Case) {
    case.clock.advance("1h");
    case.start_many("a", QUEUE_COUNT_MAX - 1).await;
    start_in(&case, "other").await;
    let not_before = Some(case.later(1));
    case.start_many("b", 2).await;
    assert_eq!(queue(&case, "default").await.ready, QUEUE_COUNT_MAX as u64);
    assert_eq!(queue(&case, "other").await.ready, 1);
    let began = case.clock.now();
    case.try_start(Start { not_before, ..case.new_start("c") }).await.unwrap();
    case.clock.advance("1m");
    assert_eq!(ready(&case, "default").await, (QUEUE_COUNT_MAX as u64, Some(began)));
}
