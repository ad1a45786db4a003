//! Priorities: which of the due runs is claimed first, and that none waits for ever.

use std::time::Duration;

use outlast_core::limits::{PREFERENCE, PRIORITY_AGE, PRIORITY_MAX, SUSPECT_CRASHES};
use outlast_core::{ClaimRequest, RunId, Start, SuspectRoom, Then};

use super::turn_ext::{TurnExt, wait, wait_until};
use super::{Case, assert_refused};

/// Starts a run of workflow `wf` with a priority.
async fn start(case: &Case, priority: u8) -> RunId {
    case.try_start(Start { priority, ..case.new_start("wf") }).await.unwrap().run
}

/// Starts a run with a priority that begins later.
async fn start_later(case: &Case, priority: u8, seconds: u64) -> RunId {
    let not_before = Some(case.later(seconds));
    case.try_start(Start { priority, not_before, ..case.new_start("wf") }).await.unwrap().run
}

/// Of runs that became ready at the same time, those with the higher priority are claimed first, and equal ones in the
/// order of their ids.
pub async fn the_more_urgent_comes_first(case: Case) {
    let (usual, low) = (start(&case, 0).await, start(&case, 1).await);
    let (high, high_too, other) =
        (start(&case, PRIORITY_MAX).await, start(&case, PRIORITY_MAX).await, start(&case, 0).await);
    let worker = case.join("wf").await;
    assert_eq!(worker.claim_runs().await, [high, high_too, low, usual, other]);
}

/// A level of priority equals a fixed time of waiting, to the microsecond.
pub async fn a_level_is_worth_a_time_of_waiting(case: Case) {
    let waiting = start(&case, 0).await;
    case.clock.advance(PRIORITY_AGE - Duration::from_micros(1));
    let sooner = start(&case, 1).await;
    case.clock.advance("1us");
    let equal = start(&case, 1).await;
    case.clock.advance("1us");
    let later = start(&case, 1).await;
    case.clock.advance(PRIORITY_AGE);
    let urgent = start(&case, 2).await;
    let worker = case.join("wf").await;
    assert_eq!(worker.claim_runs().await, [sooner, waiting, equal, later, urgent]);
}

/// Runs of low priority are claimed although runs of high priority keep starting.
pub async fn nothing_waits_for_ever(case: Case) {
    let worker = case.join("wf").await;
    let patient = start(&case, 0).await;
    let one = ClaimRequest { limit: 1, ..worker.request() };
    let longest = PRIORITY_AGE * u32::from(PRIORITY_MAX);
    let mut rounds = 0;
    loop {
        start(&case, PRIORITY_MAX).await;
        let given = worker.work(one.clone()).await.claimed[0].run;
        if given == patient {
            break;
        }
        rounds += 1;
        case.clock.advance("10s");
    }
    assert_eq!(rounds, longest.as_secs() / 10, "it is given as soon as it has waited long enough");
}

/// A run cannot be claimed before it is due, whatever its priority.
pub async fn an_urgent_run_is_not_given_before_it_is_due(case: Case) {
    let worker = case.join("wf").await;
    let delayed = start_later(&case, PRIORITY_MAX, 30).await;
    let claimed = case.held(&worker).await;
    let asleep = case.try_start(Start { priority: 5, ..case.new_start("wf") }).await.unwrap().run;
    let sleeper = worker.claim_one().await;
    assert_eq!(sleeper.run, asleep);
    worker.commit_done(case.turn(&sleeper).then(wait_until(case.later(20)))).await;
    worker.commit_done(case.turn(&claimed).then(Then::Release)).await;
    assert_eq!(worker.claim_one().await.run, claimed.run);
    case.clock.advance("20s");
    assert_eq!(worker.claim_one().await.run, asleep);
    case.clock.advance("10s");
    assert_eq!(worker.claim_one().await.run, delayed);
}

/// Runs of high priority that are due later do not hide a run that is due now.
pub async fn urgent_runs_that_are_due_soon_hide_nothing(case: Case) {
    let not_before = Some(case.later(60));
    for priority in [PRIORITY_MAX, 7] {
        let starts = (0..500).map(|_| Start { priority, not_before, ..case.new_start("wf") });
        case.world.start(starts.collect()).await.unwrap();
    }
    let usual = start(&case, 0).await;
    let worker = case.join("wf").await;
    let work = worker.work(ClaimRequest { limit: 1, ..worker.request() }).await;
    assert_eq!(work.claimed.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [usual]);
}

/// A claim returns the earliest due time of all priorities.
pub async fn a_claim_returns_the_first_due_time_of_all_priorities(case: Case) {
    let worker = case.join("wf").await;
    let due = async || worker.work(worker.request()).await.next_due;
    start_later(&case, PRIORITY_MAX, 60).await;
    assert_eq!(due().await, Some(case.later(60)));
    start_later(&case, 0, 90).await;
    assert_eq!(due().await, Some(case.later(60)));
    start_later(&case, 3, 50).await;
    start_later(&case, 0, 70).await;
    assert_eq!(due().await, Some(case.later(50)));
    start_later(&case, 0, 40).await;
    assert_eq!(due().await, Some(case.later(40)));
}

/// A claim that leaves ready runs for the next one returns a next due time that is not later than that of any delayed
/// run.
pub async fn a_full_claim_returns_the_next_due_time(case: Case) {
    let worker = case.join("wf").await;
    for priority in [0, 4] {
        start(&case, priority).await;
        start(&case, priority).await;
    }
    start_later(&case, 4, 60).await;
    start_later(&case, 0, 30).await;
    let work = worker.work(ClaimRequest { limit: 1, ..worker.request() }).await;
    assert!(work.next_due.is_some_and(|due| due <= case.later(30)), "{:?}", work.next_due);
}

/// Priorities count across workflows and queues.
pub async fn priorities_count_across_workflows_and_queues(case: Case) {
    let in_queue = |workflow: &str, queue, priority| {
        let start = Start { priority, ..case.new_queued_start(workflow, queue) };
        let run = start.run;
        (start, run)
    };
    let (starts, runs): (Vec<_>, Vec<_>) =
        [("a", "one", 0), ("b", "one", 2), ("a", "two", 1), ("b", "two", 3)]
            .map(|(workflow, queue, priority)| in_queue(workflow, queue, priority))
            .into_iter()
            .unzip();
    case.world.start(starts).await.unwrap();
    let queues = ["one".into(), "two".into()].into();
    let join = outlast_core::Join { queues, ..case.new_join(&[("a", 1), ("b", 1)]) };
    let worker = case.join_with(case.world.clone(), join).await;
    assert_eq!(worker.claim_runs().await, [runs[3], runs[1], runs[2], runs[0]]);
}

/// A claim returns the runs of the lowest ranks among all priorities; the next claim returns those that follow.
pub async fn a_short_claim_brings_the_most_urgent(case: Case) {
    let mut runs = Vec::new();
    for priority in 0..=PRIORITY_MAX {
        runs.extend([start(&case, priority).await, start(&case, priority).await]);
    }
    let worker = case.join("wf").await;
    let mut order = Vec::new();
    while order.len() < runs.len() {
        let claimed = worker.work(ClaimRequest { limit: 3, ..worker.request() }).await.claimed;
        order.extend(claimed.iter().map(|claimed| claimed.run));
    }
    let expected: Vec<RunId> = runs.chunks(2).rev().flatten().copied().collect();
    assert_eq!(order, expected);
}

/// A run has its priority for life: after a wait, a release and a crash.
pub async fn a_run_keeps_its_priority(case: Case) {
    let worker = case.join_elsewhere("wf").await;
    let mut urgent = Vec::new();
    for then in [wait(), Then::Hold, Then::Release] {
        urgent.push(start(&case, 2).await);
        worker.commit_done(case.turn(&worker.claim_one().await).steps(1).then(then)).await;
    }
    let usual = start(&case, 0).await;
    case.send_payload(urgent[0], "x").await;
    case.crash(worker).await;
    let other = case.join("wf").await;
    other.takeover().await;
    case.clock.advance(PREFERENCE);
    let newest = start(&case, 0).await;
    assert_eq!(other.claim_runs().await, [urgent[0], urgent[1], urgent[2], usual, newest]);
}

/// The worker that may have the run's future is preferred for runs of high priority as well.
pub async fn an_urgent_run_is_preferred_by_its_last_holder(case: Case) {
    let (last, other) = (case.join("wf").await, case.join("wf").await);
    let run = start(&case, PRIORITY_MAX).await;
    last.commit_done(case.turn(&last.claim_one().await).steps(1).then(wait())).await;
    case.send_payload(run, "x").await;
    let usual = start(&case, 0).await;
    assert_eq!(other.claim_one().await.run, usual);
    case.clock.advance(PREFERENCE);
    assert_eq!(other.claim_one().await.run, run);
}

/// A run that can be ended without its code is ordered as if it had no priority.
pub async fn a_run_that_needs_no_code_has_no_priority(case: Case) {
    let doomed = start(&case, PRIORITY_MAX).await;
    case.cancel(doomed).await;
    case.clock.advance("1s");
    let (urgent, usual) = (start(&case, 1).await, start(&case, 0).await);
    let worker = case.join("wf").await;
    assert_eq!(worker.claim_runs().await, [urgent, doomed, usual]);
}

/// With room for one run of a crash class, the run of the lowest rank is claimed.
pub async fn the_most_urgent_of_a_crash_class_is_given(case: Case) {
    let (usual, urgent) = (start(&case, 0).await, start(&case, 5).await);
    for _ in 0..SUSPECT_CRASHES {
        case.claim_all_and_crash("wf").await;
        let taker = case.join("wf").await;
        taker.takeover().await;
        taker.leave().await;
    }
    let worker = case.join("wf").await;
    let one = ClaimRequest { suspects: SuspectRoom::Class { class: 2, room: 1 }, ..worker.request() };
    assert_eq!(worker.work(one.clone()).await.claimed[0].run, urgent);
    assert_eq!(worker.work(one).await.claimed[0].run, usual);
}

/// A start with a priority above the highest is refused and changes nothing.
pub async fn a_priority_past_the_highest_is_refused(case: Case) {
    let bad = Start { priority: PRIORITY_MAX + 1, ..case.new_start("wf") };
    let answers = case.world.start(vec![bad.clone(), case.new_start("wf")]).await.unwrap();
    assert!(answers[1].is_ok(), "its neighbour is left alone");
    assert_refused!(answers[0].clone(), Invalid);
    assert_refused!(case.world.run(bad.run).await, NotFound);
    let worker = case.join("wf").await;
    assert_refused!(worker.commit(case.starting_turn(bad.clone())).await, Invalid);
    assert_refused!(case.world.run(bad.run).await, NotFound);
}
