//! Paused runs: when they are marked, and when they are ready.

use outlast_core::{
    Join, Marks, MessageBody, NewMessage, RunId, RunQuery, Start, Status, Then, Timestamp, WorldError,
};

use super::turn_ext::{TurnExt, stuck, wait, wait_until};
use super::{Case, TestWorker, assert_refused};

fn new_pause(case: &Case, run: RunId) -> NewMessage {
    case.new_message_of(run, MessageBody::Pause { reason: "closed".into() })
}

async fn pause(case: &Case, run: RunId) {
    case.try_send(new_pause(case, run)).await.expect("the world takes a pause");
}

async fn resume(case: &Case, run: RunId) {
    case.try_send(case.new_message_of(run, MessageBody::Resume)).await.expect("the world takes a resume");
}

async fn marks(case: &Case, run: RunId) -> Marks {
    case.view(run).await.marks
}

/// A paused run that has had a turn, and that the worker parked like this.
async fn paused(case: &Case, worker: &TestWorker, then: Then) -> RunId {
    let claimed = case.held(worker).await;
    worker.commit_done(case.turn(&claimed).steps(1).then(then)).await;
    pause(case, claimed.run).await;
    claimed.run
}

/// The messages of a run that was paused, by their kind.
fn kinds(bodies: &[MessageBody]) -> Vec<&'static str> {
    let kind = |body: &MessageBody| match body {
        MessageBody::Pause { .. } => "pause",
        MessageBody::Resume => "resume",
        MessageBody::Cancel { .. } => "cancel",
        _ => "other",
    };
    bodies.iter().map(kind).collect()
}

/// A paused run is not ready, whatever it was and whichever messages it gets. After the pause it is ready at once, with
/// all messages.
pub async fn a_paused_run_is_not_ready_until_it_is_resumed(case: Case) {
    let worker = case.join("wf").await;
    for then in [wait(), wait_until(case.later(60)), Then::Release] {
        let run = paused(&case, &worker, then).await;
        assert_eq!(marks(&case, run).await, Marks::PAUSED);
        case.send_payload(run, "x").await;
        case.clock.advance("2m");
        worker.claim_nothing().await;
        resume(&case, run).await;
        assert_eq!(marks(&case, run).await, Marks::NONE);
        let claimed = worker.claim_one().await;
        let bodies: Vec<_> = claimed.inbox.iter().map(|message| message.body.clone()).collect();
        assert_eq!(kinds(&bodies), ["pause", "other", "resume"]);
        worker.commit_done(case.turn(&claimed).completing("out")).await;
    }
}

/// A run is paused before it has begun, and begins after the pause; one that was started with a delay not before its
/// time.
pub async fn a_run_that_has_not_begun_can_be_paused(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    pause(&case, run).await;
    worker.claim_nothing().await;
    resume(&case, run).await;
    let claimed = worker.claim_one().await;
    assert!(claimed.is_fresh);
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let begin = case.later(60);
    let delayed =
        case.try_start(Start { not_before: Some(begin), ..case.new_start("wf") }).await.unwrap().run;
    pause(&case, delayed).await;
    resume(&case, delayed).await;
    worker.claim_nothing().await;
    case.clock.advance("1m");
    assert_eq!(worker.claim_one().await.run, delayed);
}

/// A stuck run stays stuck while it is paused, and `resume` of the world does not end the pause.
pub async fn a_paused_run_that_is_stuck_is_not_ready(case: Case) {
    let worker = case.join("wf").await;
    let run = paused(&case, &worker, stuck()).await;
    let other = case.join_build("wf", "build-2").await;
    other.claim_nothing().await;
    case.world.resume(run).await.unwrap();
    other.claim_nothing().await;
    assert_eq!((case.status(run).await, marks(&case, run).await), (Status::Stuck, Marks::PAUSED));
    resume(&case, run).await;
    assert_eq!(other.claim_one().await.run, run);
}

/// A paused run is ready at its deadline. The turn that delivers the deadline clears the mark.
pub async fn the_deadline_makes_a_paused_run_ready(case: Case) {
    let worker = case.join("wf").await;
    let start = Start { deadline: Some(case.later(60)), ..case.new_start("wf") };
    let run = case.try_start(start).await.unwrap().run;
    let turn = case.turn(&worker.claim_one().await).steps(1).then(wait_until(case.later(10)));
    worker.commit_done(turn).await;
    pause(&case, run).await;
    case.send_payload(run, "x").await;
    case.clock.advance("59s");
    worker.claim_nothing().await;
    case.clock.advance("1s");
    let claimed = worker.claim_one().await;
    assert_eq!(marks(&case, run).await, Marks::PAUSED);
    let turn = case.turn(&claimed).with_cancel_requested().clearing_deadline().then(wait());
    worker.commit_done(turn).await;
    assert_eq!(marks(&case, run).await, Marks::NONE);
    assert_refused!(case.try_send(new_pause(&case, run)).await, Conflict);
}

/// A cancel ends a pause in the same change, and a run that was asked to stop cannot be paused.
pub async fn a_cancel_ends_a_pause(case: Case) {
    let worker = case.join("wf").await;
    let run = paused(&case, &worker, wait()).await;
    case.cancel(run).await;
    assert_eq!(marks(&case, run).await, Marks::NONE);
    assert_refused!(case.try_send(new_pause(&case, run)).await, Conflict);
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    // In one call.
    let run = case.parked(&worker, wait()).await;
    let answers = case.world.send(vec![case.new_cancel(run), new_pause(&case, run)]).await.unwrap();
    assert!(answers[0].is_ok() && matches!(answers[1], Err(WorldError::Conflict(_))), "{answers:?}");
    assert_eq!(marks(&case, run).await, Marks::NONE);
    assert_eq!(worker.claim_one().await.run, run);
}

/// A paused run that can be ended without its code is ready for every worker.
pub async fn a_paused_run_can_be_ended_without_its_code(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("other").await);
    let fresh = case.start("wf").await;
    pause(&case, fresh).await;
    case.cancel(fresh).await;
    assert_eq!(other.claim_one().await.run, fresh);
    let begun = paused(&case, &worker, wait()).await;
    case.terminate(begun).await;
    // At first only its last holder may claim a run that waited.
    case.clock.advance("1m");
    let claimed = other.claim_one().await;
    assert!(claimed.can_end_without_code);
    other.commit_done(case.turn(&claimed).terminating()).await;
    assert_eq!((case.status(begun).await, marks(&case, begun).await), (Status::Cancelled, Marks::NONE));
    // A pause after the terminate does not delay the end.
    let doomed = case.parked(&worker, wait()).await;
    case.terminate(doomed).await;
    pause(&case, doomed).await;
    case.clock.advance("1m");
    assert_eq!(other.claim_one().await.run, doomed);
}

/// A holder keeps a run that is paused, and releases it without making it ready.
pub async fn a_held_run_that_is_paused_is_not_ready_when_it_is_released(case: Case) {
    let worker = case.join("wf").await;
    for then in [wait(), wait_until(case.later(60)), Then::Release, stuck()] {
        let claimed = case.held(&worker).await;
        pause(&case, claimed.run).await;
        assert_eq!(case.view(claimed.run).await.owner, Some(worker.session));
        let unread = worker.work(worker.request()).await.unread;
        assert_eq!((unread.len(), unread[0].run), (1, claimed.run));
        worker.commit_done(case.turn(&claimed).steps(1).then(then)).await;
        case.clock.advance("2m");
        worker.claim_nothing().await;
        assert_eq!(marks(&case, claimed.run).await, Marks::PAUSED);
    }
}

/// The outcomes that a holder sends to its own paused run do not make the run ready.
pub async fn a_run_that_is_released_with_a_message_to_itself_stays_paused(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    pause(&case, claimed.run).await;
    let message = case.new_message_of(claimed.run, MessageBody::Attempted { events: Vec::new() });
    worker.commit_done(case.turn(&claimed).then(Then::Release).sending(message)).await;
    worker.settle().await;
    worker.claim_nothing().await;
    resume(&case, claimed.run).await;
    let inbox = worker.claim_one().await.inbox;
    assert_eq!(inbox.len(), 3, "{inbox:?}");
}

/// A paused run whose worker leaves or crashes is not ready.
pub async fn a_paused_run_of_a_session_that_ended_is_not_ready(case: Case) {
    let worker = case.join("wf").await;
    let leaving = case.join("wf").await;
    let left = case.held(&leaving).await.run;
    pause(&case, left).await;
    leaving.leave().await;
    let doomed = case.join_elsewhere("wf").await;
    let lost = case.held(&doomed).await.run;
    pause(&case, lost).await;
    case.crash(doomed).await;
    case.clock.advance("1h");
    worker.takeover().await;
    worker.claim_nothing().await;
    for run in [left, lost] {
        assert_eq!((case.status(run).await, marks(&case, run).await), (Status::Pending, Marks::PAUSED));
        resume(&case, run).await;
        let claimed = worker.claim_one().await;
        assert_eq!(claimed.run, run);
        worker.commit_done(case.turn(&claimed).completing("out")).await;
    }
}

/// The end of a run clears the mark, also when the run was paused while its last turn was computed.
pub async fn the_end_of_a_run_ends_its_pause(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    pause(&case, claimed.run).await;
    let turn = case.turn(&claimed).steps(1);
    worker.commit_done(turn.clone()).await;
    worker.commit_done(case.turn_after(&turn).completing("out")).await;
    assert_eq!(marks(&case, claimed.run).await, Marks::NONE);
    assert_refused!(case.try_send(new_pause(&case, claimed.run)).await, Conflict);
}

/// A repeated pause changes nothing, also after the run was resumed.
pub async fn a_repeated_pause_changes_nothing(case: Case) {
    let run = case.start("wf").await;
    let message = new_pause(&case, run);
    let first = case.try_send(message.clone()).await.unwrap();
    resume(&case, run).await;
    assert_eq!(case.try_send(message).await.unwrap(), first);
    assert_eq!(marks(&case, run).await, Marks::NONE);
    assert_eq!(case.view(run).await.sent, 2);
}

/// A run that a worker of an older build holds cannot be paused, and a paused run is not given to such a worker.
pub async fn an_older_worker_has_no_paused_runs(case: Case) {
    let join = Join { format: 2, ..case.new_join(&[("wf", 1)]) };
    let old = case.join_with(case.other_handle().await, join).await;
    let claimed = case.held(&old).await;
    assert_refused!(case.try_send(new_pause(&case, claimed.run)).await, Conflict);
    assert_eq!(marks(&case, claimed.run).await, Marks::NONE);
    old.commit_done(case.turn(&claimed).steps(1).then(wait())).await;
    pause(&case, claimed.run).await;
    case.clock.advance("1m");
    old.claim_nothing().await;
    resume(&case, claimed.run).await;
    old.claim_nothing().await;
    case.clock.advance("1m");
    assert_eq!(case.join("wf").await.claim_one().await.run, claimed.run);
}

/// Lists and counts find runs by their marks, in every status.
pub async fn runs_are_listed_and_counted_by_their_marks(case: Case) {
    let worker = case.join("wf").await;
    let waiting = paused(&case, &worker, wait()).await;
    let held = case.held(&worker).await.run;
    pause(&case, held).await;
    let plain = case.start("wf").await;
    let of = |marks: Marks| RunQuery { marks, limit: 10, ..RunQuery::default() };
    assert_eq!(case.listed(of(Marks::PAUSED)).await, [held, waiting]);
    assert_eq!(case.listed(of(Marks::QUARANTINED)).await, []);
    assert_eq!(case.listed(of(Marks::PAUSED.with(Marks::QUARANTINED))).await, [held, waiting]);
    let running = RunQuery { statuses: vec![Status::Running], ..of(Marks::PAUSED) };
    assert_eq!(case.listed(running).await, [held]);
    assert_eq!(case.listed(of(Marks::NONE)).await, [plain, held, waiting]);
    let counts = case.world.mark_counts().await.unwrap();
    assert_eq!((counts[&Marks::PAUSED], counts[&Marks::QUARANTINED]), (2, 0));
    resume(&case, held).await;
    assert_eq!(case.world.mark_counts().await.unwrap()[&Marks::PAUSED], 1);
    assert_eq!(case.counts().await.values().sum::<u64>(), 3, "they are counted by status as well");
}

/// A pause is a message, with the time at which it was accepted.
pub async fn a_pause_has_the_time_of_its_acceptance(case: Case) {
    let run = case.start("wf").await;
    case.clock.advance("5s");
    pause(&case, run).await;
    let inbox = case.world.inbox(run, 0).await.unwrap();
    assert_eq!(inbox[0].at, case.clock.now());
    assert!(inbox[0].at > Timestamp::from_micros(0));
    assert_eq!(inbox[0].body, MessageBody::Pause { reason: "closed".into() });
}
