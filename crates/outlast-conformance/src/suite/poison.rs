//! Runs that crash their workers: how they are claimed, and when they are stuck.

use outlast_core::limits::{CRASH_CLASS_3_RUNS_MAX, POISON_CRASHES, SUSPECT_CRASHES};
use outlast_core::takeover::class_room;
use outlast_core::{ClaimRequest, RunId, Status, StuckReason, SuspectRoom, Then};

use super::turn_ext::TurnExt;
use super::{Case, TestWorker};

/// Crashes this many workers with this code, each with all runs that it could claim.
async fn crash_times(case: &Case, workflow: &str, times: u32) {
    let heir = case.join("none").await;
    for _ in 0..times {
        let doomed = case.join_elsewhere(workflow).await;
        let suspects = SuspectRoom::AnyClass { room: 1_000 };
        doomed.work(ClaimRequest { suspects, ..doomed.request() }).await;
        case.crash(doomed).await;
        heir.takeover().await;
    }
    heir.leave().await;
}

/// A run of a workflow of its own whose worker crashed this often while it held nothing else.
async fn crashed(case: &Case, workflow: &str, times: u32) -> RunId {
    let run = case.start(workflow).await;
    crash_times(case, workflow, times).await;
    assert_eq!(case.view(run).await.crashes, times);
    run
}

/// The runs that the worker gets with this request.
async fn given(worker: &TestWorker, suspects: SuspectRoom) -> Vec<RunId> {
    let claimed = worker.work(ClaimRequest { suspects, ..worker.request() }).await.claimed;
    claimed.iter().map(|claimed| claimed.run).collect()
}

/// Only a worker with room for it can claim a run of a higher crash class.
pub async fn a_run_of_a_higher_crash_class_is_given_only_where_there_is_room(case: Case) {
    let run = crashed(&case, "wf", SUSPECT_CRASHES).await;
    let worker = case.join("wf").await;
    assert_eq!(given(&worker, SuspectRoom::Nothing).await, []);
    assert_eq!(given(&worker, SuspectRoom::Class { class: 3, room: 1 }).await, []);
    assert_eq!(given(&worker, SuspectRoom::Class { class: 2, room: 0 }).await, []);
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.columns.crashes), (run, SUSPECT_CRASHES));
}

/// A run whose worker crashed once is claimed like any other.
pub async fn a_run_with_one_crash_is_carried_like_any_other(case: Case) {
    let run = crashed(&case, "wf", SUSPECT_CRASHES - 1).await;
    let worker = case.join("wf").await;
    assert_eq!(given(&worker, SuspectRoom::Nothing).await, [run]);
}

/// A claim returns runs of at most one higher class, the first in the order, and any number of other runs.
pub async fn a_claim_gives_one_higher_crash_class_at_a_time(case: Case) {
    let join = case.new_join(&[("a", 1), ("b", 1), ("c", 1)]);
    let (third, second) = (crashed(&case, "a", 3).await, crashed(&case, "b", 2).await);
    case.clock.advance("1s");
    let innocent = case.start("c").await;
    let worker = case.join_with(case.world.clone(), join).await;
    let any = SuspectRoom::AnyClass { room: 100 };
    assert_eq!(given(&worker, any).await, [third, innocent]);
    assert_eq!(given(&worker, SuspectRoom::Class { class: 3, room: 15 }).await, []);
    assert_eq!(given(&worker, any).await, [second], "once it carries none of the other class");
}

/// A claim returns as many runs of a class as the worker has room for; other workers can claim the rest.
pub async fn crash_classes_have_room_for_fewer_and_fewer_runs(case: Case) {
    let many = 70;
    case.start_many("wf", many).await;
    crash_times(&case, "wf", 2).await;
    let worker = case.join("wf").await;
    let room = SuspectRoom::AnyClass { room: 100 };
    assert_eq!(given(&worker, room).await.len(), class_room(2, 100));
    worker.leave().await;
    crash_times(&case, "wf", 1).await;
    let worker = case.join("wf").await;
    let room = SuspectRoom::AnyClass { room: 1_000 };
    assert_eq!(given(&worker, room).await.len(), CRASH_CLASS_3_RUNS_MAX);
    let other = case.join("wf").await;
    assert_eq!(given(&other, SuspectRoom::Class { class: 3, room: 2 }).await.len(), 2);
}

/// A worker holds at most one run of the last class.
pub async fn a_claim_gives_one_run_of_the_last_crash_class(case: Case) {
    let join = case.new_join(&[("a", 1), ("b", 1)]);
    let (first, second) = (crashed(&case, "a", 4).await, crashed(&case, "b", 4).await);
    let worker = case.join_with(case.world.clone(), join).await;
    assert_eq!(given(&worker, SuspectRoom::AnyClass { room: 100 }).await, [first]);
    assert_eq!(given(&worker, SuspectRoom::AnyClass { room: 100 }).await, [second]);
}

/// The first claim of a session returns one run of the last class and nothing else, or ordinary runs if there is none.
pub async fn the_first_claim_of_a_session_gives_a_run_of_the_last_class_alone(case: Case) {
    let join = case.new_join(&[("a", 1), ("b", 1), ("c", 1)]);
    let (last, second) = (crashed(&case, "a", 4).await, crashed(&case, "b", 2).await);
    let innocent = case.start("c").await;
    let worker = case.join_with(case.world.clone(), join).await;
    let trial = SuspectRoom::TrialFirst { room: 100 };
    assert_eq!(given(&worker, trial).await, [last]);
    assert_eq!(given(&worker, trial).await, [second, innocent]);
}

/// A crash counts against the highest class that the session held, and against all runs when that is the lowest or the
/// last.
pub async fn a_crash_counts_against_the_highest_class_aboard(case: Case) {
    let table: [(&[u32], &[u32]); 7] = [
        (&[0, 0, 1], &[1, 1, 2]),
        (&[0, 1, 2, 2], &[0, 1, 3, 3]),
        (&[0, 2, 3], &[0, 2, 4]),
        (&[3, 3], &[4, 4]),
        (&[0, 1, 4], &[1, 2, 4]),
        (&[2, 4], &[3, 4]),
        (&[4, 4], &[4, 4]),
    ];
    let heir = case.join("none").await;
    for (row, (before, after)) in table.into_iter().enumerate() {
        let workflows: Vec<String> = (0..before.len()).map(|index| format!("wf-{row}-{index}")).collect();
        let mut runs = Vec::new();
        for (workflow, times) in workflows.iter().zip(before) {
            runs.push(crashed(&case, workflow, *times).await);
        }
        let code: Vec<(&str, u32)> = workflows.iter().map(|workflow| (&**workflow, 1)).collect();
        let doomed = case.join_with(case.other_handle().await, case.new_join(&code)).await;
        for class in [2, 3, 4, 4] {
            given(&doomed, SuspectRoom::Class { class, room: 9 }).await;
        }
        assert_eq!(doomed.held().await, runs.len() as u64);
        case.crash(doomed).await;
        heir.takeover().await;
        for (run, expected) in runs.iter().zip(after) {
            let view = case.view(*run).await;
            assert_eq!((view.crashes, view.status), (*expected, Status::Pending), "row {row}");
        }
    }
}

/// After a turn that resets the crash counter, the run is claimed like any other.
pub async fn a_run_whose_crashes_are_forgotten_is_carried_like_any_other(case: Case) {
    let run = crashed(&case, "wf", SUSPECT_CRASHES).await;
    let worker = case.join("wf").await;
    let turn = case.turn(&worker.claim_one().await).steps(1).clearing_crashes().then(Then::Release);
    worker.commit_done(turn).await;
    assert_eq!(given(&worker, SuspectRoom::Nothing).await, [run]);
}

/// A run whose worker crashed five times, the last time with no other run, is stuck; its history and inbox do not
/// change.
pub async fn a_run_that_crashes_its_workers_becomes_stuck(case: Case) {
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    crash_times(&case, "wf", POISON_CRASHES - 1).await;
    assert_eq!(case.status(run).await, Status::Pending);
    crash_times(&case, "wf", 1).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.owner, view.consumed), (Status::Stuck, None, 0));
    let stuck = view.stuck.unwrap();
    assert_eq!((stuck.reason, &*stuck.build), (StuckReason::Poison, super::case::BUILD));
    assert!(view.failed_builds.contains(super::case::BUILD));
    case.join("wf").await.claim_nothing().await;
    assert_eq!(case.kinds(run).await, ["run_started"]);
    assert_eq!(case.counts().await, [(Status::Stuck, 1)].into());
}

/// Another build can claim a run that crashed its workers, as the only one of its class; so can every build after it
/// was
/// resumed. One more crash makes it stuck again.
pub async fn a_run_that_crashed_its_workers_is_tried_with_care(case: Case) {
    let run = crashed(&case, "wf", POISON_CRASHES).await;
    let mended = case.join_build("wf", "build-2").await;
    assert_eq!(given(&mended, SuspectRoom::Nothing).await, []);
    assert_eq!(given(&mended, SuspectRoom::AnyClass { room: 100 }).await, [run]);
    mended.leave().await;
    assert_eq!(case.status(run).await, Status::Stuck, "without progress it is as it was");
    case.world.resume(run).await.unwrap();
    let worker = case.join("wf").await;
    assert_eq!(given(&worker, SuspectRoom::Nothing).await, []);
    worker.leave().await;
    crash_times(&case, "wf", 1).await;
    let view = case.view(run).await;
    assert_eq!((view.status, view.crashes), (Status::Stuck, POISON_CRASHES));
    case.join("wf").await.claim_nothing().await;
}
