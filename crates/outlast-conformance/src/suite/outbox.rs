//! Messages of a turn to other runs, as one change with it.

use outlast_core::{
    Effects, Event, Failure, FailureKind, MessageBody, NewMessage, OpNumber, Outcome, RunId, SessionId,
    Status, Then, Turn,
};

use super::case::text;
use super::turn_ext::{TurnExt, failure, stuck, wait};
use super::{Case, TestWorker, assert_refused};

/// The message to a parent when its child has ended.
fn child_ended(case: &Case, parent: RunId) -> NewMessage {
    let body = MessageBody::ChildEnded { op: OpNumber(0), outcome: Outcome::Completed(text("out")) };
    case.new_message_of(parent, body)
}

/// Commits turns in one call, all of which the world accepts.
async fn commit_all(worker: &TestWorker, turns: &[Turn]) {
    let answers = worker.world.commit(worker.session, turns).await.unwrap();
    worker.settle().await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// A message of a turn reaches its run and wakes it, with the end of its sender.
pub async fn a_message_of_a_turn_wakes_its_run(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("child").await);
    let parent = case.parked(&worker, wait()).await;
    let child = case.held(&other).await;
    let message = child_ended(&case, parent);
    other.commit_done(case.turn(&child).sending(message.clone()).completing("out")).await;
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.inbox.len()), (parent, 1));
    let read = &claimed.inbox[0];
    assert_eq!(
        (read.id, read.position, read.at, &read.body),
        (message.id, 1, case.clock.now(), &message.body)
    );
}

/// A message to a run that someone holds is unread for its holder.
pub async fn a_message_of_a_turn_to_a_held_run_is_unread(case: Case) {
    let (worker, other) = (case.join("wf").await, case.join("child").await);
    let (parent, child) = (case.held(&worker).await, case.held(&other).await);
    other.commit_done(case.turn(&child).sending(child_ended(&case, parent.run)).completing("out")).await;
    assert_eq!(worker.work(worker.request()).await.unread[0].run, parent.run);
    worker.commit_done(case.turn(&parent).steps(1).then(wait())).await;
    assert_eq!(worker.claim_one().await.inbox.len(), 1, "it did not go to wait over it");
}

/// A parent that begins to wait in the call in which its child ends is woken, whichever of the two turns is first.
pub async fn an_end_and_a_wait_in_one_call_do_not_miss_each_other(case: Case) {
    let worker = case.join("wf").await;
    for is_end_first in [true, false] {
        let (parent, child) = (case.held(&worker).await, case.held(&worker).await);
        let wait = case.turn(&parent).steps(1).then(wait());
        let end = case.turn(&child).sending(child_ended(&case, parent.run)).completing("out");
        commit_all(&worker, &if is_end_first { [end, wait] } else { [wait, end] }).await;
        let claimed = worker.claim_one().await;
        assert_eq!((claimed.run, claimed.inbox.len()), (parent.run, 1));
        worker.commit_done(case.turn(&claimed).completing("out")).await;
    }
}

/// A turn that fires a timer is refused if an earlier turn of the same call has sent its run a message, and the world
/// applies effects with the commit.
pub async fn a_timer_does_not_fire_over_a_neighbours_message(case: Case) {
    let worker = case.join("wf").await;
    let (parent, child) = (case.held(&worker).await, case.held(&worker).await);
    let end = case.turn(&child).sending(child_ended(&case, parent.run)).completing("out");
    let fire = case.turn(&parent).steps(1).firing(case.clock.now());
    let answers = case.world.commit(worker.session, &[end, fire]).await.unwrap();
    assert!(answers[0].is_ok());
    match case.world.describe().effects {
        Effects::Inline => {
            assert_refused!(&answers[1], Conflict);
        }
        // With deferred effects, the answer arrives too late.
        Effects::Deferred => assert!(answers[1].is_ok()),
    }
}

/// A message to a run that does not exist or has ended is dropped; the others arrive.
pub async fn a_message_of_a_turn_that_cannot_arrive_is_dropped(case: Case) {
    let worker = case.join("wf").await;
    let (ended, waiting) = (case.completed(&worker).await, case.parked(&worker, wait()).await);
    let sender = case.held(&worker).await;
    let turn = [RunId::from_bits(case.id()), ended, waiting]
        .into_iter()
        .fold(case.turn(&sender).steps(1), |turn, run| turn.sending(child_ended(&case, run)));
    worker.commit_done(turn).await;
    assert_eq!((case.view(ended).await.sent, case.view(waiting).await.sent), (0, 1));
}

/// A repeated turn sends nothing twice, nor does another turn with the same message.
pub async fn a_message_of_a_turn_arrives_once(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    let sender = case.held(&worker).await;
    let turn = case.turn(&sender).steps(1).sending(child_ended(&case, waiting));
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn.clone()).await;
    let again = Turn { outbox: turn.outbox.clone(), ..case.turn_after(&turn).steps(1) };
    worker.commit_done(again).await;
    assert_eq!(case.view(waiting).await.sent, 1);
}

/// The messages of a turn keep their order, after the earlier messages of the inbox.
pub async fn the_messages_of_a_turn_keep_their_order(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    case.send_payload(waiting, "before").await;
    case.clock.advance("1s");
    let sender = {
        case.start("other").await;
        case.join("other").await
    };
    let claimed = sender.claim_one().await;
    let messages: Vec<_> = ["a", "b", "c"].map(|payload| case.new_message(waiting, payload)).into();
    let turn =
        messages.iter().fold(case.turn(&claimed).steps(1), |turn, message| turn.sending(message.clone()));
    sender.commit_done(turn).await;
    let expected: Vec<_> = messages.into_iter().map(|message| message.body).collect();
    assert_eq!(case.inbox_bodies(waiting).await[1..], expected);
}

/// Children are started before messages are sent: a turn can send a message to a child that it starts.
pub async fn a_child_can_be_told_something_in_the_turn_that_starts_it(case: Case) {
    let (worker, stranger) = (case.join("wf").await, case.join("none").await);
    let parent = case.held(&worker).await;
    let child = case.new_child(parent.run, 3, "child");
    let cancel = case.new_cancel(child.start.run);
    worker.commit_done(case.turn(&parent).child(child.clone()).sending(cancel).completing("out")).await;
    let claimed = stranger.claim_one().await;
    assert_eq!((claimed.run, claimed.inbox.len()), (child.start.run, 1), "a fresh run needs no code for it");
}

/// A stuck run accepts messages of turns, and stays stuck.
pub async fn a_message_of_a_turn_does_not_free_a_stuck_run(case: Case) {
    let worker = case.join("wf").await;
    let parent = case.parked(&worker, stuck()).await;
    let sender = case.held(&worker).await;
    worker.commit_done(case.turn(&sender).sending(child_ended(&case, parent)).completing("out")).await;
    worker.claim_nothing().await;
    assert_eq!((case.status(parent).await, case.view(parent).await.sent), (Status::Stuck, 1));
    case.world.resume(parent).await.unwrap();
    assert_eq!(worker.claim_one().await.inbox.len(), 1);
}

/// A turn from a start can send messages too.
pub async fn a_turn_from_a_start_sends_messages(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    let turn = case.starting_turn(case.new_start("wf")).sending(child_ended(&case, waiting));
    worker.commit_done(turn.clone()).await;
    worker.commit_done(turn).await;
    assert_eq!(worker.claim_one().await.run, waiting);
    assert_eq!(case.view(waiting).await.sent, 1);
}

/// A message of a run's last turn to itself is unread for the next holder.
pub async fn a_message_reaches_a_run_that_is_released_in_the_same_call(case: Case) {
    let (worker, heir) = (case.join("wf").await, case.join("wf").await);
    let (parent, child) = (case.held(&worker).await, case.held(&worker).await);
    let end = case.turn(&child).sending(child_ended(&case, parent.run)).completing("out");
    commit_all(&worker, &[case.turn(&parent).then(Then::Release), end]).await;
    assert_eq!(heir.claim_one().await.inbox.len(), 1);
}

/// Every kind of message is read back as it was sent.
pub async fn every_sort_of_message_survives(case: Case) {
    let run = case.start("wf").await;
    let mut awkward = Failure::new(FailureKind::Conflict, "key `k` is taken");
    awkward.details = Some(Box::new(serde_json::json!({ "run": run, "x": [1.5, null, "\u{0}ü"] })));
    awkward.causes = ["below".into()].into();
    let (op, other) = (OpNumber(i64::MAX as u64), RunId::from_bits(u128::MAX));
    let bodies = [
        MessageBody::Hook { name: "h".into(), payload: text("x"), to: Default::default() },
        MessageBody::Pause { reason: "p\u{0}ü".into() },
        MessageBody::Resume,
        MessageBody::Cancel { reason: "r\u{0}ü".into() },
        MessageBody::Wake { op: None },
        MessageBody::Wake { op: Some(OpNumber(0)) },
        MessageBody::ChildStarted { op, run: other },
        MessageBody::ChildEnded { op, outcome: Outcome::Completed(text("out")) },
        MessageBody::ChildEnded { op, outcome: Outcome::Failed(awkward.clone()) },
        MessageBody::ChildEnded { op, outcome: Outcome::Cancelled(failure()) },
        MessageBody::Refused { op, failure: awkward.clone() },
        MessageBody::Attempted {
            events: vec![
                Event::StepCompleted { op, output: text("\u{0}out") },
                Event::StepFailed { op: OpNumber(0), failure: awkward },
            ],
        },
        MessageBody::Terminate { reason: String::new() },
        MessageBody::Compensate { reason: "a\0b".into() },
    ];
    let messages = bodies.iter().map(|body| case.new_message_of(run, body.clone())).collect();
    assert!(case.world.send(messages).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(case.inbox_bodies(run).await, bodies);
    let claimed = case.join("wf").await.claim_one().await;
    assert_eq!(claimed.inbox.into_iter().map(|message| message.body).collect::<Vec<_>>(), bodies);
}

/// The turn of an ended session sends nothing.
pub async fn a_session_that_is_gone_sends_nothing(case: Case) {
    let worker = case.join("wf").await;
    let waiting = case.parked(&worker, wait()).await;
    let turn = case.starting_turn(case.new_start("wf")).sending(child_ended(&case, waiting));
    let gone = SessionId::from_bits(case.id());
    let answer = super::one(case.world.commit(gone, &[turn]).await);
    assert_refused!(answer, Fenced);
    assert_eq!(case.view(waiting).await.sent, 0);
}

/// The effects of a turn on other runs are applied with the commit or by a delivery, as the world declares.
pub async fn what_a_turn_does_to_others_is_done_at_once_or_by_a_delivery(case: Case) {
    let worker = case.join("wf").await;
    let (sender, target) = (case.held(&worker).await, case.start("other").await);
    let child = case.new_child(sender.run, 1, "child");
    let turn = case.turn(&sender).steps(1).child(child.clone()).sending(case.new_message(target, "x"));
    let committed = super::one(case.world.commit(worker.session, &[turn.tagged("a", "1")]).await);
    assert_eq!(committed, Ok(outlast_core::Committed::Done));
    let is_inline = case.world.describe().effects == Effects::Inline;
    assert_eq!(case.view(target).await.sent, u64::from(is_inline));
    assert_eq!(case.world.run(child.start.run).await.is_ok(), is_inline);
    assert_eq!(case.view(sender.run).await.tags.len(), 1, "its tags are its own");
    let delivered = case.world.deliver(worker.session).await.unwrap();
    assert_eq!((delivered.applied, delivered.left), (if is_inline { 0 } else { 2 }, 0));
    assert_eq!(case.view(target).await.sent, 1);
    assert!(case.world.run(child.start.run).await.is_ok());
}

/// Messages of several turns of a run to another run arrive in order.
pub async fn what_the_turns_of_a_run_say_arrives_in_order(case: Case) {
    let worker = case.join("wf").await;
    let (first, second) = (case.held(&worker).await, case.held(&worker).await);
    let target = case.start("other").await;
    let mut sent: [Vec<MessageBody>; 2] = Default::default();
    let mut turns = [case.turn(&first), case.turn(&second)];
    for _ in 0..3 {
        for (turn, sent) in turns.iter_mut().zip(&mut sent) {
            let messages = [0, 1].map(|number| case.new_message(target, &format!("{}-{number}", turn.id)));
            sent.extend(messages.iter().map(|message| message.body.clone()));
            let [one, two] = messages;
            let sending = turn.clone().steps(1).sending(one).sending(two);
            let answers = case.world.commit(worker.session, std::slice::from_ref(&sending)).await.unwrap();
            assert!(answers[0].is_ok());
            *turn = case.turn_after(&sending);
        }
    }
    worker.settle().await;
    let bodies = case.inbox_bodies(target).await;
    assert_eq!(bodies.len(), 12);
    for sent in sent {
        let of_one: Vec<_> = bodies.iter().filter(|body| sent.contains(body)).cloned().collect();
        assert_eq!(of_one, sent);
    }
}

/// A run is not pruned before its effects on other runs are applied.
pub async fn a_run_with_undelivered_entries_is_not_pruned(case: Case) {
    let worker = case.join("wf").await;
    let (sender, target) = (case.held(&worker).await, case.start("other").await);
    let end = case.turn(&sender).sending(child_ended(&case, target)).completing("out");
    case.world.commit(worker.session, &[end]).await.unwrap();
    case.clock.advance("1h");
    let prune = async || case.world.prune(case.clock.now(), None, 100).await.unwrap().runs;
    if case.world.describe().effects == Effects::Deferred {
        assert_eq!(prune().await, 0);
        worker.settle().await;
    }
    assert_eq!(prune().await, 1);
    assert_eq!(case.view(target).await.sent, 1);
}

/// A run is not deleted before its effects on other runs are applied.
pub async fn a_run_with_undelivered_entries_is_not_deleted(case: Case) {
    let worker = case.join("wf").await;
    let (sender, target) = (case.held(&worker).await, case.start("other").await);
    let end = case.turn(&sender).sending(child_ended(&case, target)).completing("out");
    case.world.commit(worker.session, &[end]).await.unwrap();
    if case.world.describe().effects == Effects::Deferred {
        assert_refused!(case.world.delete(sender.run).await, Conflict);
        assert_eq!(case.status(sender.run).await, Status::Completed);
        worker.settle().await;
    }
    case.world.delete(sender.run).await.unwrap();
    assert_refused!(case.world.run(sender.run).await, NotFound);
    assert_eq!(case.view(target).await.sent, 1);
}
