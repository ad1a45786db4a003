//! Details of heartbeats: kept outside the history for the attempt that comes after a lost one.

use outlast_core::{Beat, HeartbeatDetails, OpNumber, Payload, Report, RunId, WorldError};

use super::case::text;
use super::turn_ext::{TurnExt, wait};
use super::{Case, TestWorker, assert_refused};

fn details(run: RunId, op: u64, attempt: u32, details: Option<Payload>) -> HeartbeatDetails {
    HeartbeatDetails { run, op: OpNumber(op), attempt, details }
}

async fn beat(worker: &TestWorker, details: &[HeartbeatDetails]) -> Result<Beat, WorldError> {
    worker.world.beat(worker.session, &Report::default(), details).await
}

/// The heartbeat details of the last beat are returned by the claim that follows a crash.
pub async fn details_are_brought_by_the_claim_after_a_crash(case: Case) {
    let heir = case.join("wf").await;
    let doomed = case.join_elsewhere("wf").await;
    let run = case.start("wf").await;
    let claimed = doomed.claim_one().await;
    assert_eq!(claimed.details, []);
    doomed.commit_done(case.turn(&claimed).steps(2)).await;
    let coded = Payload::coded("zip", vec![0, 159, 146, 150]);
    beat(&doomed, &[details(run, 1, 1, Some(text("10 of 90"))), details(run, 2, 1, Some(coded.clone()))])
        .await
        .unwrap();
    let last = details(run, 1, 1, Some(text("80 of 90")));
    beat(&doomed, std::slice::from_ref(&last)).await.unwrap();
    case.crash(doomed).await;
    heir.takeover().await;
    let again = heir.claim_one().await;
    assert_eq!(again.details, [last.clone(), details(run, 2, 1, Some(coded))]);
    let second = details(run, 1, 2, Some(text("81 of 90")));
    beat(&heir, std::slice::from_ref(&second)).await.unwrap();
    heir.leave().await;
    assert_eq!(case.join("wf").await.claim_one().await.details[0], second, "a later attempt counts");
}

/// Details of runs that the session does not hold are ignored, and so are those of a session that has ended.
pub async fn details_of_runs_that_others_hold_are_ignored(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let run = case.held(&worker).await.run;
    let said = details(run, 1, 1, Some(text("x")));
    let unknown = details(RunId::from_bits(case.id()), 1, 1, Some(text("x")));
    beat(&other, &[said.clone(), unknown]).await.unwrap();
    worker.leave().await;
    assert_refused!(beat(&worker, std::slice::from_ref(&said)).await, Fenced);
    assert_eq!(case.join("wf").await.claim_one().await.details, []);
}

/// The details of an attempt are deleted when it ends; those of a later attempt at the step are kept.
pub async fn an_attempt_that_has_ended_is_forgotten(case: Case) {
    let worker = case.join("wf").await;
    let run = case.held(&worker).await.run;
    let (first, second) = (details(run, 1, 2, Some(text("a"))), details(run, 2, 2, Some(text("b"))));
    beat(&worker, &[first, second.clone()]).await.unwrap();
    beat(&worker, &[details(run, 1, 2, None), details(run, 2, 1, None)]).await.unwrap();
    worker.leave().await;
    assert_eq!(case.join("wf").await.claim_one().await.details, [second]);
}

/// Heartbeat details change neither the run's row nor its history.
pub async fn details_leave_the_run_as_it_is(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let before = case.view(claimed.run).await;
    beat(&worker, &[details(claimed.run, 1, 1, Some(text("x")))]).await.unwrap();
    assert_eq!(case.view(claimed.run).await, before);
    worker.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    assert_eq!(case.kinds(claimed.run).await, ["run_started", "step_started"]);
}
