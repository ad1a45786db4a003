//! Deadlines: when a run is cancelled, and who may end it if no worker with its code does.

use std::time::Duration;

use outlast_core::limits::{DEADLINE_GRACE, SUSPECT_CRASHES};
use outlast_core::{ClaimRequest, RunId, Start, Status, SuspectRoom, Then, Timestamp};

use super::turn_ext::{TurnExt, stuck, wait, wait_until};
use super::{Case, TestWorker, assert_refused};

/// Starts a run of `wf` that is asked to stop this many seconds from now.
async fn start_within(case: &Case, seconds: u64) -> RunId {
    let start = Start { deadline: Some(case.later(seconds)), ..case.new_start("wf") };
    case.try_start(start).await.expect("the world starts a run").run
}

/// A run with a deadline in a minute that the worker has parked like this.
async fn parked(case: &Case, worker: &TestWorker, then: Then) -> RunId {
    let run = start_within(case, 60).await;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(then);
    worker.commit_done(turn).await;
    run
}

/// The runs that a worker that ends overdue runs gets, and whether as overdue.
async fn overdue(worker: &TestWorker) -> Vec<(RunId, bool)> {
    worker.claim_overdue().await.iter().map(|claimed| (claimed.run, claimed.is_overdue)).collect()
}

async fn next_due(worker: &TestWorker, ends_overdue: bool) -> Option<Timestamp> {
    let ends_overdue_from = if ends_overdue { Timestamp::from_micros(0) } else { Timestamp::NEVER };
    worker.work(ClaimRequest { ends_overdue_from, limit: 0, ..worker.request() }).await.next_due
}

/// A deadline is on the run, in its history, and in every claim.
pub async fn a_deadline_is_on_the_run_and_in_its_claim(case: Case) {
    let worker = case.join("wf").await;
    let start = Start { deadline: Some(case.later(60)), ..case.new_start("wf") };
    case.try_start(start.clone()).await.unwrap();
    assert_eq!(case.view(start.run).await.deadline, start.deadline);
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.columns.deadline, claimed.is_overdue), (start.deadline, false));
    assert_eq!(claimed.history.clone().whole().unwrap()[0].events, [start.event()]);
    worker.commit_done(case.turn(&claimed).steps(1).then(Then::Release)).await;
    assert_eq!(worker.claim_one().await.columns.deadline, start.deadline);
    case.start("wf").await;
    assert_eq!(worker.claim_one().await.columns.deadline, None);
}

/// A turn from a start has the deadline of its start.
pub async fn a_turn_from_a_start_keeps_its_deadline(case: Case) {
    let worker = case.join("wf").await;
    let deadline = Some(case.later(60));
    let turn = case.starting_turn(Start { deadline, ..case.new_start("wf") });
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(turn.run).await.deadline, deadline);
    worker.commit_done(case.turn_after(&turn).steps(1).then(wait())).await;
    case.clock.advance("2m");
    assert_eq!(overdue(&case.join("other").await).await, [(turn.run, true)]);
}

/// A turn can clear the deadline permanently.
pub async fn a_turn_clears_the_deadline(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = start_within(&case, 60).await;
    let turn = case.turn(&worker.claim_one().await).steps(1).clearing_deadline();
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(run).await.deadline, None);
    worker.commit_done(case.turn_after(&turn).then(wait())).await;
    case.clock.advance("1h");
    assert_eq!(overdue(&stranger).await, []);
    assert_eq!(next_due(&stranger, true).await, None);
    case.send_payload(run, "x").await;
    assert_eq!(worker.claim_one().await.columns.deadline, None);
}

/// A turn from a start may clear it as well.
pub async fn a_turn_from_a_start_clears_the_deadline(case: Case) {
    let worker = case.join("wf").await;
    let turn = case.starting_turn(Start { deadline: Some(case.later(60)), ..case.new_start("wf") });
    let turn = turn.clearing_deadline().then(wait());
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(turn.run).await.deadline, None);
    case.clock.advance("1h");
    assert_eq!(overdue(&worker).await, []);
}

/// A stuck turn decides nothing, so the deadline still applies.
pub async fn a_stuck_turn_keeps_the_deadline(case: Case) {
    let worker = case.join("wf").await;
    let (run, deadline) = (start_within(&case, 60).await, case.later(60));
    let turn = case.turn(&worker.claim_one().await).then(stuck());
    worker.commit_done(turn.clearing_deadline()).await;
    assert_eq!(case.view(run).await.deadline, Some(deadline));
}

/// A run that has ended has no deadline, and is not overdue.
pub async fn the_end_clears_the_deadline(case: Case) {
    let worker = case.join("wf").await;
    let run = start_within(&case, 60).await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    assert_eq!(case.view(run).await.deadline, None);
    case.clock.advance("1h");
    assert_eq!(overdue(&worker).await, []);
}

/// A deadline must come after the moment at which the run may begin.
pub async fn a_deadline_before_the_begin_is_refused(case: Case) {
    let not_before = Some(case.later(60));
    for (seconds, is_fine) in [(59, false), (60, false), (61, true)] {
        let start = Start { not_before, deadline: Some(case.later(seconds)), ..case.new_start("wf") };
        let (run, answer) = (start.run, case.try_start(start).await);
        if is_fine {
            assert!(answer.is_ok());
        } else {
            assert_refused!(answer, Invalid);
            assert_refused!(case.world.run(run).await, NotFound);
        }
    }
}

/// A deadline alone makes no run ready: the turn with which the run waits sets when it is due.
pub async fn a_deadline_makes_no_run_ready(case: Case) {
    let worker = case.join("wf").await;
    parked(&case, &worker, wait()).await;
    case.clock.advance("1h");
    worker.claim_nothing().await;
    assert_eq!(next_due(&worker, false).await, None);
}

/// A run without a holder is overdue when the grace after its deadline is over, and not before.
pub async fn a_run_is_overdue_after_the_grace(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = parked(&case, &worker, wait()).await;
    case.clock.advance(Duration::from_secs(60) + DEADLINE_GRACE - Duration::from_micros(1));
    assert_eq!(overdue(&stranger).await, []);
    case.clock.advance("1us");
    stranger.claim_nothing().await;
    let claimed = stranger.claim_overdue().await.remove(0);
    assert_eq!((claimed.run, claimed.is_overdue, claimed.is_fresh), (run, true, false));
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(stranger.session)));
    stranger.commit_done(case.turn(&claimed).terminating()).await;
    assert_eq!(case.status(run).await, Status::Cancelled);
}

/// An overdue run is claimed once, with everything that a claim returns.
pub async fn an_overdue_run_is_given_once(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = parked(&case, &worker, wait()).await;
    case.send_payload(run, "x").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).consuming(0);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).consuming(1).then(wait())).await;
    case.clock.advance("1h");
    let claimed = stranger.claim_overdue().await.remove(0);
    assert_eq!((claimed.consumed, claimed.seq, claimed.columns.deadline.is_some()), (1, 3, true));
    assert_eq!(claimed.history.whole().unwrap().len(), 3);
    assert_eq!(overdue(&worker).await, []);
    case.send_payload(run, "y").await;
    worker.claim_nothing().await;
    assert_eq!(stranger.work(stranger.request()).await.unread[0].run, run);
}

/// A worker with the code of an overdue run that is ready claims it as usual, and the run can clean up.
pub async fn an_overdue_run_that_is_ready_is_given_to_its_code_as_usual(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let due = parked(&case, &worker, wait_until(case.later(60))).await;
    let fresh = start_within(&case, 60).await;
    case.clock.advance("1h");
    let mut given = overdue(&worker).await;
    given.sort();
    assert_eq!(given, [(due, false), (fresh, false)]);
    assert_eq!(overdue(&stranger).await, []);
}

/// A run that is ready for other code is overdue for a worker without the code.
pub async fn a_ready_run_is_overdue_to_those_without_its_code(case: Case) {
    let stranger = case.join("other").await;
    let run = start_within(&case, 60).await;
    case.clock.advance("1h");
    assert_eq!(overdue(&stranger).await, [(run, true)]);
    case.join("wf").await.claim_nothing().await;
}

/// An overdue run that was terminated, or cancelled before its first turn, is claimed as an ordinary run.
pub async fn an_overdue_run_that_needs_no_code_is_given_as_usual(case: Case) {
    let stranger = case.join("other").await;
    let run = start_within(&case, 60).await;
    case.cancel(run).await;
    case.clock.advance("1h");
    assert_eq!(overdue(&stranger).await, [(run, false)]);
}

/// Every build can claim an overdue stuck run, also the one that left it stuck.
pub async fn an_overdue_stuck_run_is_given_to_any_build(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join_build("other", "build-2").await);
    for ender in [&worker, &stranger] {
        let run = parked(&case, &worker, stuck()).await;
        case.clock.advance("1h");
        assert_eq!(case.status(run).await, Status::Stuck);
        assert_eq!(overdue(ender).await, [(run, true)]);
        assert_eq!(case.view(run).await.stuck, None);
    }
}

/// A build that failed to continue a run can claim it to end it.
pub async fn a_failed_build_ends_an_overdue_run(case: Case) {
    let worker = case.join("wf").await;
    let run = parked(&case, &worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await).then(wait_until(case.later(60)));
    mended.commit_done(turn).await;
    case.clock.advance("1h");
    worker.claim_nothing().await;
    assert_eq!(overdue(&worker).await, [(run, true)]);
}

/// A held run is not overdue until its holder releases it.
pub async fn a_held_run_is_not_overdue(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    let run = start_within(&case, 60).await;
    worker.claim_one().await;
    assert_eq!(next_due(&stranger, true).await, None);
    case.clock.advance("1h");
    assert_eq!(overdue(&stranger).await, []);
    worker.leave().await;
    assert_eq!(overdue(&stranger).await, [(run, true)]);
}

/// A run of a crashed worker is overdue after the takeover.
pub async fn a_run_that_was_taken_over_is_overdue(case: Case) {
    let stranger = case.join("other").await;
    let run = start_within(&case, 60).await;
    case.claim_all_and_crash("wf").await;
    case.clock.advance("1h");
    assert_eq!(overdue(&stranger).await, []);
    assert_eq!(stranger.takeover().await, 1);
    assert_eq!(overdue(&stranger).await, [(run, true)]);
}

/// A claim of a worker that ends overdue runs returns when the next one will be overdue.
pub async fn a_claim_returns_when_the_next_run_is_overdue(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("other").await);
    parked(&case, &worker, wait()).await;
    let at = case.later(60).plus(DEADLINE_GRACE);
    assert_eq!(next_due(&stranger, true).await, Some(at));
    assert_eq!(next_due(&stranger, false).await, None);
    case.clock.advance("1s");
    parked(&case, &worker, wait()).await;
    assert_eq!(next_due(&stranger, true).await, Some(at), "the first of them");
    parked(&case, &worker, wait_until(case.later(10))).await;
    assert_eq!(next_due(&worker, true).await, Some(case.later(10)), "or what is due before");
    case.clock.advance_to(at);
    assert_eq!(overdue(&stranger).await.len(), 1);
    assert_eq!(next_due(&stranger, true).await, Some(at.plus(Duration::from_secs(1))));
}

/// A worker that ends overdue runs from a later time on gets none before, and gets that time as the next due time.
pub async fn overdue_runs_are_given_from_the_moment_that_a_worker_says(case: Case) {
    let stranger = case.join("other").await;
    let run = start_within(&case, 60).await;
    case.clock.advance("1h");
    let from = case.later(10);
    let request = ClaimRequest { ends_overdue_from: from, ..stranger.request() };
    let before = stranger.work(request.clone()).await;
    assert_eq!((before.claimed.len(), before.next_due), (0, Some(from)));
    case.clock.advance("9s999ms999us");
    assert!(stranger.work(request.clone()).await.claimed.is_empty());
    case.clock.advance("1us");
    let claimed = stranger.work(request.clone()).await.claimed;
    assert_eq!((claimed[0].run, claimed[0].is_overdue), (run, true));
    start_within(&case, 60).await;
    let overdue_at = case.later(60).plus(DEADLINE_GRACE);
    let request = ClaimRequest { ends_overdue_from: case.later(10), ..request };
    assert_eq!(stranger.work(request).await.next_due, Some(overdue_at), "whichever comes later");
}

/// Runs that have been overdue for longest are claimed first, up to the limit of the claim.
pub async fn the_longest_overdue_comes_first(case: Case) {
    let stranger = case.join("other").await;
    let mut runs = Vec::new();
    for seconds in [30, 20, 10] {
        runs.push(start_within(&case, seconds).await);
    }
    case.clock.advance("1h");
    let two = ClaimRequest { limit: 2, ends_overdue_from: Timestamp::from_micros(0), ..stranger.request() };
    let given: Vec<_> = stranger.work(two).await.claimed.iter().map(|claimed| claimed.run).collect();
    assert_eq!(given, [runs[2], runs[1]]);
    assert_eq!(overdue(&stranger).await, [(runs[0], true)]);
}

/// A worker that cannot read the format of an overdue run leaves it to others.
pub async fn an_overdue_run_is_given_to_those_who_can_read_it(case: Case) {
    let worker = case.join("wf").await;
    let run = start_within(&case, 60).await;
    case.clock.advance("1h");
    let old = ClaimRequest { format: 0, ends_overdue_from: Timestamp::from_micros(0), ..worker.request() };
    assert!(worker.work(old).await.claimed.is_empty());
    assert_eq!(overdue(&case.join("other").await).await, [(run, true)]);
}

/// Ready runs are claimed before overdue ones, and both count towards the limit of the claim.
pub async fn ready_runs_come_before_overdue_ones(case: Case) {
    let worker = case.join("other").await;
    let late = [start_within(&case, 60).await, start_within(&case, 60).await];
    case.clock.advance("1h");
    let ready = case.start_many("other", 2).await;
    let three = ClaimRequest { limit: 3, ends_overdue_from: Timestamp::from_micros(0), ..worker.request() };
    let claimed = worker.work(three).await.claimed;
    let given: Vec<_> = claimed.iter().map(|claimed| (claimed.run, claimed.is_overdue)).collect();
    assert_eq!(given, [(ready[0], false), (ready[1], false), (late[0], true)]);
}

/// An overdue run of a higher crash class is claimed by a worker that may hold one.
pub async fn an_overdue_run_is_given_by_its_crash_class(case: Case) {
    let stranger = case.join("other").await;
    let runs = [start_within(&case, 60).await, start_within(&case, 60).await];
    for _ in 0..SUSPECT_CRASHES {
        case.claim_all_and_crash("wf").await;
        stranger.takeover().await;
    }
    case.clock.advance("1h");
    let ends = ClaimRequest { ends_overdue_from: Timestamp::from_micros(0), ..stranger.request() };
    let full = ClaimRequest { suspects: SuspectRoom::Nothing, ..ends.clone() };
    assert!(stranger.work(full).await.claimed.is_empty());
    let one = ClaimRequest { suspects: SuspectRoom::Class { class: 2, room: 1 }, ..ends };
    let claimed = stranger.work(one).await.claimed;
    assert_eq!(claimed.iter().map(|claimed| claimed.run).collect::<Vec<_>>(), [runs[0]]);
    assert_eq!(overdue(&stranger).await, [(runs[1], true)]);
}
