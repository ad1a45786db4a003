//! The format of a run: the version that a reader of its events and messages needs.

use outlast_core::event::{RULES, format_of_rules};
use outlast_core::{
    Claimed, Event, Failure, FailureKind, Join, MessageBody, NewMessage, OpNumber, Outcome, RunId, Start,
    Then, Turn, WorldError,
};

use super::turn_ext::{TurnExt, stuck};
use super::{Case, TestWorker};

/// A worker of a build that can read the first format.
async fn join_old(case: &Case) -> TestWorker {
    let join = Join { rules: 1, format: 1, ..case.new_join(&[("wf", 1)]) };
    case.join_with(case.other_handle().await, join).await
}

/// A new run with the first rules and format.
async fn start_old(case: &Case) -> RunId {
    let run = case.try_start(Start { rules: 1, ..case.new_start("wf") }).await.unwrap().run;
    assert_eq!(case.view(run).await.format, 1);
    run
}

/// A run with the first format that the worker holds.
async fn held_old(case: &Case, worker: &TestWorker) -> Claimed {
    let run = start_old(case).await;
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.run, run);
    claimed
}

fn failure() -> Failure {
    Failure::new(FailureKind::MaybeAttempted, "who knows")
}

/// The turn also records something that only the second format has.
fn with_new_event(mut turn: Turn) -> Turn {
    turn.events.push(Event::StepFailed { op: OpNumber(1), failure: failure() });
    turn
}

/// A message that only the second format has.
fn new_message(case: &Case, run: RunId) -> NewMessage {
    let outcome = Outcome::Failed(failure());
    case.new_message_of(run, MessageBody::ChildEnded { op: OpNumber(1), outcome })
}

/// Only the newer worker can claim the run.
async fn is_only_for(case: &Case, run: RunId, new: &TestWorker, old: &TestWorker) {
    assert_eq!(case.view(run).await.format, format_of_rules(RULES));
    case.clock.advance("1s");
    old.claim_nothing().await;
    assert_eq!(new.claim_one().await.run, run);
}

/// The commit that first needs a format raises that of its run, also when nothing else of the row changes.
pub async fn a_commit_raises_the_format(case: Case) {
    let new = case.join("wf").await;
    let claimed = held_old(&case, &new).await;
    let turn = case.turn(&claimed).steps(1);
    new.commit_done(turn.clone()).await;
    assert_eq!(case.view(claimed.run).await.format, 1, "every build can read a step");
    let turn = with_new_event(case.turn_after(&turn));
    new.commit_done(turn.clone()).await;
    assert_eq!(case.view(claimed.run).await.format, format_of_rules(RULES));
    let old = join_old(&case).await;
    new.commit_done(case.turn_after(&turn).then(Then::Release)).await;
    is_only_for(&case, claimed.run, &new, &old).await;
}

/// Older builds can claim a run as long as no newer format was written to it, whichever worker held it.
pub async fn a_commit_that_needs_no_more_leaves_the_format(case: Case) {
    let new = case.join("wf").await;
    let claimed = held_old(&case, &new).await;
    let old = join_old(&case).await;
    new.commit_done(case.turn(&claimed).steps(2).then(Then::Release)).await;
    assert_eq!(case.view(claimed.run).await.format, 1);
    assert_eq!(old.claim_one().await.run, claimed.run);
}

/// The turn by which a run waits raises its format as well, and so does one that ends it.
pub async fn every_kind_of_turn_raises_the_format(case: Case) {
    let (new, old) = (case.join("wf").await, join_old(&case).await);
    let claimed = {
        start_old(&case).await;
        new.claim_one().await
    };
    let wake_at = Some(case.later(1));
    let waiting = with_new_event(case.turn(&claimed)).then(Then::Wait { wake_at, waits: Vec::new() });
    new.commit_done(waiting).await;
    is_only_for(&case, claimed.run, &new, &old).await;
    new.leave().await;
    let new = case.join("wf").await;
    let ended = start_old(&case).await;
    let claimed = new.claim().await.into_iter().find(|claimed| claimed.run == ended).unwrap();
    new.commit_done(with_new_event(case.turn(&claimed)).completing("out")).await;
    assert_eq!(case.view(ended).await.format, format_of_rules(RULES));
}

/// A turn that starts its run raises the format above that of the start; a stuck one adds no events and does not.
pub async fn a_turn_from_a_start_raises_the_format(case: Case) {
    let worker = case.join("wf").await;
    let start = || Start { rules: 1, ..case.new_start("wf") };
    let turn = with_new_event(case.starting_turn(start()));
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(turn.run).await.format, format_of_rules(RULES));
    let turn = with_new_event(case.starting_turn(start())).then(stuck());
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(turn.run).await.format, 1);
}

/// The message that first needs a format raises that of its run.
pub async fn a_message_raises_the_format(case: Case) {
    let run = start_old(&case).await;
    let (new, old) = (case.join("wf").await, join_old(&case).await);
    case.try_send(new_message(&case, run)).await.unwrap();
    is_only_for(&case, run, &new, &old).await;
}

/// A message that the run's holder cannot read is refused, and nothing changes. The refusal names the worker.
pub async fn a_message_that_the_holder_cannot_read_is_refused(case: Case) {
    let old = join_old(&case).await;
    let claimed = held_old(&case, &old).await;
    let before = case.view(claimed.run).await;
    let message = new_message(&case, claimed.run);
    let Err(WorldError::Conflict(refusal)) = case.try_send(message.clone()).await else {
        panic!("the holder cannot read it")
    };
    assert!(refusal.contains("process 7 on host") && refusal.contains("stop"), "{refusal}");
    assert_eq!(case.view(claimed.run).await, before);
    assert_eq!(case.inbox_bodies(claimed.run).await, []);
    old.commit_done(case.turn(&claimed).then(Then::Release)).await;
    let sent = case.try_send(message).await.unwrap();
    assert_eq!(sent.position, 1, "nobody holds it now");
    old.claim_nothing().await;
}

/// A refused message does not affect the others of its batch. A holder that can read it receives it.
pub async fn a_message_that_cannot_be_read_leaves_its_neighbours_alone(case: Case) {
    let old = join_old(&case).await;
    let claimed = held_old(&case, &old).await;
    let new = case.join("wf").await;
    let other = held_old(&case, &new).await;
    let messages = vec![
        case.new_message(claimed.run, "a"),
        new_message(&case, claimed.run),
        new_message(&case, other.run),
        case.new_message(claimed.run, "b"),
    ];
    let answers = case.world.send(messages).await.unwrap();
    let positions: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|sent| sent.position)).collect();
    assert_eq!(positions, [Some(1), None, Some(1), Some(2)]);
    assert_eq!(case.view(claimed.run).await.format, 1);
    assert_eq!(case.view(other.run).await.format, format_of_rules(RULES));
}

/// A message of a turn is never refused for that reason: a worker that can read it claims the run when its holder
/// releases it.
pub async fn a_turn_tells_a_run_whose_holder_cannot_read_it(case: Case) {
    let (new, old) = (case.join("wf").await, join_old(&case).await);
    let source = {
        start_old(&case).await;
        new.claim_one().await
    };
    let claimed = held_old(&case, &old).await;
    new.commit_done(case.turn(&source).steps(1).sending(new_message(&case, claimed.run))).await;
    assert_eq!(case.view(claimed.run).await.sent, 1);
    assert_eq!(case.view(claimed.run).await.format, format_of_rules(RULES));
    old.commit_done(case.turn(&claimed).steps(1).then(Then::Wait { wake_at: None, waits: Vec::new() })).await;
    is_only_for(&case, claimed.run, &new, &old).await;
}

/// A session that knows the newest rules and cannot read their format keeps new runs at rules that it can read:
/// starts, keyed starts and children.
pub async fn new_runs_get_a_format_that_every_session_can_read(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.held(&worker).await;
    let join = Join { format: 1, ..case.new_join(&[("none", 1)]) };
    let old = case.join_with(case.other_handle().await, join).await;
    let started = case.start("wf").await;
    let keyed = case.try_start(case.new_keyed_start("wf", "k", "in")).await.unwrap().run;
    let child = case.new_child(parent.run, 1, "child");
    let mut keyed_child = case.new_child(parent.run, 2, "child");
    keyed_child.start.key = case.new_keyed_start("child", "c", "in").key;
    let turn = case.turn(&parent).steps(1).child(child.clone()).child(keyed_child.clone());
    worker.commit_done(turn).await;
    for run in [started, keyed, child.start.run, keyed_child.start.run] {
        let history = case.world.history(run, 0, 1).await.unwrap();
        let Event::RunStarted(first) = &history[0].events[0] else { panic!("{history:?}") };
        assert_eq!((first.rules, case.view(run).await.format), (1, 1), "run {run}");
    }
    old.leave().await;
}
