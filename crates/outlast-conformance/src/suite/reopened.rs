//! Runs that have ended and are reopened.

use outlast_core::{
    Effects, Join, MessageBody, OpNumber, Outcome, Reopen, RetryRequest, RunId, Status, Timestamp,
};

use super::turn_ext::TurnExt;
use super::{Case, TestWorker, assert_refused};

/// A retry of a run that has this number of events.
fn new_reopen(case: &Case, run: RunId, events: u64) -> Reopen {
    let request = RetryRequest {
        from: 1,
        reopens: OpNumber(0),
        tokens: Vec::new(),
        restarts: vec![3],
        deadline: None,
        is_forced: true,
        reason: "the \"bank\" is open".into(),
    };
    let message = case.new_message_of(run, MessageBody::Retry(Box::new(request)));
    Reopen { message, events, replay_from: 0, deadline: None }
}

/// A run that has failed after a step; it has three events.
async fn failed(case: &Case, worker: &TestWorker) -> RunId {
    let claimed = case.held(worker).await;
    worker.commit_done(case.turn(&claimed).steps(1).failing()).await;
    claimed.run
}

/// A reopened run is ready at once, with the message of the retry behind its unread messages. It has no end, no failure,
/// and was not asked to stop.
pub async fn a_reopened_run_is_ready_with_its_message(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    case.send_payload(claimed.run, "x").await;
    case.cancel(claimed.run).await;
    case.terminate(claimed.run).await;
    worker.commit_done(case.turn(&claimed).steps(1).failing()).await;
    worker.claim_nothing().await;
    let deadline = case.later(3_600);
    let reopen = Reopen { deadline: Some(deadline), ..new_reopen(&case, claimed.run, 3) };
    let body = reopen.message.body.clone();
    let sent = case.world.reopen(reopen).await.expect("a failed run is reopened");
    assert_eq!((sent.position, sent.cancel_was_requested), (4, false));
    let view = case.view(claimed.run).await;
    assert_eq!((view.status, view.ended_at, view.failure, view.owner), (Status::Pending, None, None, None));
    assert_eq!((view.deadline, view.is_cancel_requested), (Some(deadline), false));
    assert_eq!((view.sent, view.consumed), (4, 0));
    let counts = case.counts().await;
    let count = |status| counts.get(&status).copied().unwrap_or(0);
    assert_eq!((count(Status::Pending), count(Status::Failed)), (1, 0));
    let again = worker.claim_one().await;
    assert_eq!((again.run, again.seq, again.can_end_without_code), (claimed.run, 3, false));
    assert_eq!(again.inbox.last().map(|message| &message.body), Some(&body));
    assert_eq!(case.kinds(claimed.run).await, ["run_started", "step_started", "run_failed"]);
    worker.commit_done(case.turn(&again).consuming(4).completing("out")).await;
    assert_eq!(case.status(claimed.run).await, Status::Completed);
}

/// Repeating the call changes nothing, whatever has become of the run since.
pub async fn reopening_again_with_the_same_message_changes_nothing(case: Case) {
    let worker = case.join("wf").await;
    let run = failed(&case, &worker).await;
    let reopen = new_reopen(&case, run, 3);
    let first = case.world.reopen(reopen.clone()).await.unwrap();
    assert_eq!(case.world.reopen(reopen.clone()).await, Ok(first));
    let claimed = worker.claim_one().await;
    assert_eq!(case.world.reopen(reopen.clone()).await, Ok(first));
    worker.commit_done(case.turn(&claimed).consuming(1).failing()).await;
    assert_eq!(case.world.reopen(reopen).await, Ok(first));
    assert_eq!((case.status(run).await, case.view(run).await.sent), (Status::Failed, 1));
}

/// Only a run that has failed or was cancelled is reopened, and only with the history that the caller knows.
pub async fn a_run_that_cannot_be_retried_is_not_reopened(case: Case) {
    let worker = case.join("wf").await;
    let missing = RunId::from_bits(7);
    assert_refused!(case.world.reopen(new_reopen(&case, missing, 3)).await, NotFound);
    let open = case.held(&worker).await;
    assert_refused!(case.world.reopen(new_reopen(&case, open.run, 1)).await, Conflict);
    worker.commit_done(case.turn(&open).completing("out")).await;
    assert_refused!(case.world.reopen(new_reopen(&case, open.run, 2)).await, Conflict);
    let run = failed(&case, &worker).await;
    assert_refused!(case.world.reopen(new_reopen(&case, run, 2)).await, Conflict);
    let passed = Reopen { deadline: Some(case.clock.now()), ..new_reopen(&case, run, 3) };
    assert_refused!(case.world.reopen(passed).await, Invalid);
    assert_eq!((case.status(run).await, case.view(run).await.sent), (Status::Failed, 0));
    let cancelled = case.held(&worker).await;
    worker.commit_done(case.turn(&cancelled).steps(1).cancelling()).await;
    assert!(case.world.reopen(new_reopen(&case, cancelled.run, 3)).await.is_ok());
}

/// A caller that waits after the run was reopened gets its next end, not the one before.
pub async fn a_waiter_receives_the_next_end(case: Case) {
    let worker = case.join("wf").await;
    let run = failed(&case, &worker).await;
    let past = Timestamp::from_micros(0);
    assert!(case.world.ended(run, past).await.unwrap().is_some());
    case.world.reopen(new_reopen(&case, run, 3)).await.unwrap();
    assert_eq!(case.world.ended(run, past).await, Ok(None));
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).consuming(1).completing("out")).await;
    let ended = case.world.ended(run, past).await.unwrap().expect("it has ended again");
    assert!(matches!(ended.outcome, Outcome::Completed(_)), "{ended:?}");
}

/// A run whose outbox is not applied is not reopened: its messages would overtake those of the retry.
pub async fn a_run_with_an_outbox_that_is_not_applied_is_not_reopened(case: Case) {
    let worker = case.join("wf").await;
    let other = case.start("other").await;
    let claimed = case.held(&worker).await;
    let turn = case.turn(&claimed).steps(1).sending(case.new_message(other, "x")).failing();
    let committed = case.world.commit(worker.session, &[turn]).await.unwrap();
    assert!(committed[0].is_ok());
    let answer = case.world.reopen(new_reopen(&case, claimed.run, 3)).await;
    if case.world.describe().effects == Effects::Deferred {
        assert_refused!(answer, Conflict);
        worker.settle().await;
        assert!(case.world.reopen(new_reopen(&case, claimed.run, 3)).await.is_ok());
    } else {
        assert!(answer.is_ok(), "{answer:?}");
    }
}

/// A worker that cannot read the message of a retry does not get the run.
pub async fn an_older_worker_gets_no_reopened_runs(case: Case) {
    let join = Join { format: 2, ..case.new_join(&[("wf", 1)]) };
    let old = case.join_with(case.other_handle().await, join).await;
    let run = failed(&case, &old).await;
    case.world.reopen(new_reopen(&case, run, 3)).await.unwrap();
    old.claim_nothing().await;
    assert_eq!(case.join("wf").await.claim_one().await.run, run);
}
