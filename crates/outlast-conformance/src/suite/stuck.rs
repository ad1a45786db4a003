//! Stuck runs: nothing is lost, and a build that has not failed, or `resume`, tries again.

use outlast_core::limits::{FAILED_BUILD_RETRY, FAILED_BUILDS_MAX};
use outlast_core::{FailedBuilds, RunId, Status, Stuck, Then};

use super::case::BUILD;
use super::turn_ext::{TurnExt, stuck, stuck_by, wait};
use super::{Case, TestWorker, assert_refused};

fn why(then: Then) -> Stuck {
    let Then::Stuck(stuck) = then else { unreachable!("only stuck turns are asked") };
    stuck
}

/// The builds that failed to continue the run, oldest first.
async fn failed(case: &Case, run: RunId) -> Vec<String> {
    case.view(run).await.failed_builds.builds().iter().map(ToString::to_string).collect()
}

/// Has the worker claim the run and leave it stuck.
async fn stick(case: &Case, worker: &TestWorker, run: RunId) {
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.run, run);
    worker.commit_done(case.turn(&claimed).then(stuck_by(&worker.build))).await;
}

/// A stuck turn consumes no messages, adds no events, and stores its reason.
pub async fn a_stuck_turn_leaves_history_and_inbox_untouched(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).steps(1).consuming(1).keeping(3).then(stuck())).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner), (Status::Stuck, None));
    assert_eq!((view.sent, view.consumed, view.kept), (1, 0, 0));
    assert_eq!(view.stuck, Some(why(stuck())));
    assert_eq!(case.kinds(run).await, ["run_started"]);
    let other = case.join_build("wf", "build-2").await;
    let again = other.claim_one().await;
    assert_eq!((again.seq, again.consumed, again.inbox.len()), (1, 0, 1));
}

/// `held` returns why a run was stuck when it was claimed, until the run progresses.
pub async fn a_held_run_says_why_it_was_stuck(case: Case) {
    let worker = case.join("wf").await;
    case.parked(&worker, stuck()).await;
    let other = case.join_build("wf", "build-2").await;
    let claimed = other.claim_one().await;
    let held = case.world.held(other.session).await.unwrap();
    assert_eq!(held[0].columns.stuck.as_deref(), Some(&why(stuck())));
    other.commit_done(case.turn(&claimed).steps(1)).await;
    assert_eq!(case.world.held(other.session).await.unwrap()[0].columns.stuck, None);
}

/// A build that left a run stuck cannot claim it again, also after it joins again.
pub async fn the_same_build_is_not_given_a_stuck_run(case: Case) {
    let worker = case.join("wf").await;
    case.parked(&worker, stuck()).await;
    case.clock.advance("1d");
    worker.claim_nothing().await;
    case.join("wf").await.claim_nothing().await;
}

/// A stuck run is ready at once for every build that has not failed, joined before or after.
pub async fn a_stuck_run_is_ready_for_every_other_build(case: Case) {
    for is_earlier in [true, false] {
        let earlier = case.join_build("wf", "build-2").await;
        let worker = case.join("wf").await;
        let run = case.start("wf").await;
        let claimed = worker.claim_one().await;
        worker.commit_done(case.turn(&claimed).then(stuck())).await;
        let other = if is_earlier { earlier } else { case.join_build("wf", "build-3").await };
        worker.claim_nothing().await;
        assert_eq!(case.status(run).await, Status::Stuck, "until someone claims it");
        let claimed = other.claim_one().await;
        assert_eq!((claimed.run, claimed.columns.stuck.as_deref()), (run, Some(&why(stuck()))));
        let view = case.view(run).await;
        assert_eq!((view.status, view.stuck), (Status::Running, None));
        other.commit_done(case.turn(&claimed).completing("out")).await;
    }
}

/// Joining writes no run: neither the one that is stuck nor its moment changes.
pub async fn joining_writes_no_runs(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let before = case.view(run).await;
    case.clock.advance("1s");
    case.join_build("wf", "build-2").await;
    assert_eq!(case.view(run).await, before);
}

/// Another build cannot claim a stuck run without its code.
pub async fn another_build_without_the_code_is_not_given_a_stuck_run(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    case.join_build("other", "build-3").await.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
}

/// Turns without events leave the list of failed builds as it is: neither a wait nor a release is progress.
pub async fn a_turn_without_events_does_not_open_a_run_to_a_failed_build(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await);
    mended.commit_done(turn.clone()).await;
    mended.commit_done(case.turn_after(&turn).then(wait())).await;
    assert_eq!((case.status(run).await, failed(&case, run).await), (Status::Waiting, vec![BUILD.to_owned()]));
    case.send_payload(run, "x").await;
    case.clock.advance("1m");
    worker.claim_nothing().await;
    let turn = case.turn(&mended.claim_one().await).consuming(0).then(Then::Release);
    mended.commit_done(turn).await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Pending, "a build could let it wait");
    assert_eq!(mended.claim_one().await.run, run);
}

/// A run that progressed is open to every build again.
pub async fn progress_opens_a_run_to_a_failed_build(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await).steps(1);
    mended.commit_done(turn.clone()).await;
    assert_eq!(failed(&case, run).await, Vec::<String>::new());
    mended.commit_done(case.turn_after(&turn).then(Then::Release)).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.stuck), (Status::Pending, None));
    let claimed = worker.claim_one().await;
    assert_eq!((&claimed.columns.stuck, &claimed.columns.failed_builds), (&None, &FailedBuilds::default()));
}

/// A build that releases a stuck run without progress leaves it as it was: by a release, a leave or a crash.
pub async fn a_stuck_run_that_is_let_go_without_progress_is_stuck_as_before(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let before = case.view(run).await;
    let is_as_before = async |case: &Case| {
        let view = case.view(run).await;
        assert_eq!((view.status, &view.stuck), (Status::Stuck, &before.stuck));
        assert_eq!(view.failed_builds, before.failed_builds);
        worker.claim_nothing().await;
    };
    let mended = case.join_build("wf", "build-2").await;
    mended.commit_done(case.turn(&mended.claim_one().await).then(Then::Release)).await;
    is_as_before(&case).await;
    mended.claim_one().await;
    mended.leave().await;
    is_as_before(&case).await;
    let join = outlast_core::Join { build: "build-2".into(), ..case.new_join(&[("wf", 1)]) };
    let doomed = case.join_with(case.other_handle().await, join).await;
    doomed.claim_one().await;
    case.crash(doomed).await;
    worker.takeover().await;
    is_as_before(&case).await;
    assert_eq!(case.view(run).await.crashes, 1);
}

/// A run that progressed and whose worker crashed then is not stuck any more.
pub async fn a_run_that_progressed_is_not_stuck_after_a_crash(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let join = outlast_core::Join { build: "build-2".into(), ..case.new_join(&[("wf", 1)]) };
    let doomed = case.join_with(case.other_handle().await, join).await;
    doomed.commit_done(case.turn(&doomed.claim_one().await).steps(1)).await;
    case.crash(doomed).await;
    worker.takeover().await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.stuck, view.failed_builds.is_empty()), (Status::Pending, None, true));
    assert_eq!(worker.claim_one().await.run, run);
}

/// Every build can claim a resumed run, also those that failed.
pub async fn a_resumed_run_is_given_to_every_build(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    case.world.resume(run).await.unwrap();
    assert_eq!(case.status(run).await, Status::Stuck);
    assert_eq!(worker.claim_one().await.run, run);
    assert_eq!(case.view(run).await.stuck, None);
}

/// A resumed run that is released without progress is stuck, and every build can still claim it.
pub async fn a_resumed_run_that_crashes_is_stuck_and_open_to_every_build(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    case.world.resume(run).await.unwrap();
    case.claim_all_and_crash("wf").await;
    worker.takeover().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    assert_eq!(worker.claim_one().await.run, run);
}

/// Any run without a holder can be resumed, and every build can then claim it; only a stuck run becomes ready.
pub async fn any_run_without_a_holder_is_resumed(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let mended = case.join_build("wf", "build-2").await;
    let turn = case.turn(&mended.claim_one().await).then(wait());
    assert_refused!(case.world.resume(run).await, Conflict);
    mended.commit_done(turn).await;
    case.world.resume(run).await.unwrap();
    assert_eq!(failed(&case, run).await, Vec::<String>::new());
    mended.claim_nothing().await;
    case.send_payload(run, "x").await;
    case.clock.advance("1s");
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.run, run);
    assert_refused!(case.world.resume(run).await, Conflict);
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    assert_refused!(case.world.resume(run).await, Conflict);
    let pending = case.start("wf").await;
    case.world.resume(pending).await.unwrap();
    assert_eq!(case.status(pending).await, Status::Pending);
}

/// A stuck run accepts messages, and stays stuck.
pub async fn a_message_to_a_stuck_run_is_kept_and_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).then(stuck())).await;
    case.send_payload(run, "a").await;
    case.cancel(run).await;
    worker.claim_nothing().await;
    assert_eq!(case.status(run).await, Status::Stuck);
    case.world.resume(run).await.unwrap();
    assert_eq!(worker.claim_one().await.inbox.len(), 2);
}

/// Neither of the builds that failed can claim a run that gets stuck again.
pub async fn a_run_stuck_again_is_kept_from_all_builds_that_failed(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, stuck()).await;
    let second = case.join_build("wf", "build-2").await;
    stick(&case, &second, run).await;
    second.claim_nothing().await;
    worker.claim_nothing().await;
    assert_eq!(case.view(run).await.stuck.unwrap().build, "build-2");
    assert_eq!(failed(&case, run).await, [BUILD, "build-2"]);
    let third = case.join_build("wf", "build-3").await;
    assert_eq!(third.claim_one().await.run, run);
}

/// A full list loses its oldest build to a new one, and the run rests: otherwise builds would pass it on for ever.
pub async fn a_ninth_build_replaces_the_oldest_and_the_run_rests(case: Case) {
    let first = case.join_build("wf", "build-0").await;
    let run = case.start("wf").await;
    stick(&case, &first, run).await;
    for number in 1..=FAILED_BUILDS_MAX {
        first.claim_nothing().await;
        let next = case.join_build("wf", &format!("build-{number}")).await;
        stick(&case, &next, run).await;
    }
    assert_eq!(failed(&case, run).await.len(), FAILED_BUILDS_MAX);
    let other = case.join_build("wf", "another").await;
    other.claim_nothing().await;
    let rests_until = Some(case.clock.now().plus(FAILED_BUILD_RETRY));
    assert_eq!(other.work(other.request()).await.next_due, rests_until);
    case.send_payload(run, "x").await;
    assert_eq!(case.view(run).await.retry_at, rests_until);
    case.clock.advance(FAILED_BUILD_RETRY - std::time::Duration::from_micros(1));
    first.claim_nothing().await;
    case.clock.advance("1us");
    assert_eq!(first.claim_one().await.run, run);
    assert_eq!(case.view(run).await.retry_at, None);
}

/// A resting run that can be ended without its code is ready at once, and so is one that is resumed.
pub async fn a_resting_run_is_ended_or_resumed_at_once(case: Case) {
    for is_resumed in [false, true] {
        let run = case.start("wf").await;
        for number in 0..=FAILED_BUILDS_MAX {
            let worker = case.join_build("wf", &format!("build-{number}")).await;
            stick(&case, &worker, run).await;
            worker.leave().await;
        }
        if is_resumed {
            case.world.resume(run).await.unwrap();
        } else {
            case.terminate(run).await;
        }
        let ender = case.join("wf").await;
        let claimed = ender.claim_one().await;
        assert_eq!(claimed.run, run);
        ender.commit_done(case.turn(&claimed).terminating()).await;
    }
}
