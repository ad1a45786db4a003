//! Counts: true after every change.

use outlast_core::Status::{Cancelled, Completed, Failed, Pending, Running, Stuck, Waiting};
use outlast_core::{Status, Then, complete_counts};

use super::Case;
use super::turn_ext::{TurnExt, stuck, wait};

/// The counts follow a run through its life.
pub async fn counts_follow_every_change(case: Case) {
    let worker = case.join("wf").await;
    assert_eq!(case.counts().await, [].into());
    let run = case.start("wf").await;
    assert_eq!(case.counts().await, [(Pending, 1)].into());
    let turn = case.turn(&worker.claim_one().await).steps(1);
    assert_eq!(case.counts().await, [(Running, 1)].into());
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.counts().await, [(Running, 1)].into());
    worker.commit_done(case.turn_after(&turn).then(wait())).await;
    assert_eq!(case.counts().await, [(Waiting, 1)].into());
    case.send_payload(run, "x").await;
    assert_eq!(case.counts().await, [(Waiting, 1)].into());
    let turn = case.turn(&worker.claim_one().await).then(Then::Release);
    worker.commit_done(turn).await;
    assert_eq!(case.counts().await, [(Pending, 1)].into());
    let turn = case.turn(&worker.claim_one().await).then(stuck());
    worker.commit_done(turn).await;
    assert_eq!(case.counts().await, [(Stuck, 1)].into());
    case.world.resume(run).await.unwrap();
    let turn = case.turn(&worker.claim_one().await).completing("out");
    assert_eq!(case.counts().await, [(Running, 1)].into());
    worker.commit_done(turn).await;
    assert_eq!(case.counts().await, [(Completed, 1)].into());
}

/// Every status is listed, whether there are runs in it, there have been some, or there never were.
pub async fn counts_list_every_status(case: Case) {
    let expected = |numbers: &[(Status, u64)]| complete_counts(numbers.iter().copied());
    assert_eq!(case.world.counts().await.unwrap(), expected(&[]));
    assert_eq!(expected(&[]).into_keys().collect::<Vec<_>>(), Status::ALL);
    let worker = case.join("wf").await;
    case.start("wf").await;
    assert_eq!(case.world.counts().await.unwrap(), expected(&[(Pending, 1)]));
    worker.commit_done(case.turn(&worker.claim_one().await).completing("out")).await;
    assert_eq!(case.world.counts().await.unwrap(), expected(&[(Completed, 1)]));
}

/// Each final status is counted separately.
pub async fn each_final_status_is_counted_separately(case: Case) {
    let worker = case.join("wf").await;
    for _ in 0..4 {
        case.start("wf").await;
    }
    let claimed = worker.claim().await;
    let turns = vec![
        case.turn(&claimed[0]).completing("out"),
        case.turn(&claimed[1]).failing(),
        case.turn(&claimed[2]).cancelling(),
        case.turn(&claimed[3]).failing(),
    ];
    case.world.commit(worker.session, &turns).await.unwrap();
    assert_eq!(case.counts().await, [(Completed, 1), (Failed, 2), (Cancelled, 1)].into());
}

/// The counts are correct after a takeover and after a leave.
pub async fn counts_are_true_after_sessions_end(case: Case) {
    for _ in 0..3 {
        case.start("wf").await;
    }
    case.claim_all_and_crash("wf").await;
    assert_eq!(case.counts().await, [(Running, 3)].into());
    let worker = case.join("wf").await;
    worker.takeover().await;
    assert_eq!(case.counts().await, [(Pending, 3)].into());
    worker.claim().await;
    assert_eq!(case.counts().await, [(Running, 3)].into());
    worker.leave().await;
    assert_eq!(case.counts().await, [(Pending, 3)].into());
}

/// What is repeated or refused is not counted.
pub async fn repeats_and_refusals_are_not_counted(case: Case) {
    let start = case.new_keyed_start("wf", "k", "in");
    case.try_start(start.clone()).await.unwrap();
    case.try_start(start).await.unwrap();
    case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap();
    case.try_start(case.new_keyed_start("wf", "k", "other")).await.unwrap_err();
    assert_eq!(case.counts().await, [(Pending, 1)].into());
    let worker = case.join("wf").await;
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    assert_eq!(case.counts().await, [(Completed, 1)].into());
}
