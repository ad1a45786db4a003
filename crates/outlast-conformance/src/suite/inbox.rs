//! Inboxes: kept, in order, once.

use outlast_core::limits::INBOX_MESSAGES_MAX;
use outlast_core::{Event, MessageBody, OpNumber, Outcome, Sent, Status, Then};

use super::turn_ext::{TurnExt, failure, wait};
use super::{Case, assert_refused};

/// The answer to a message to a run that was not asked to stop.
fn sent(position: u64) -> Sent {
    Sent { position, cancel_was_requested: false, is_repeated: false }
}

/// Messages are read in the order in which they were sent, and are numbered from 1.
pub async fn messages_keep_their_order(case: Case) {
    let run = case.start("wf").await;
    let batch: Vec<_> = ["a", "b", "c"].map(|text| case.new_message(run, text)).into();
    let ids: Vec<_> = batch.iter().map(|message| message.id).collect();
    assert_eq!(case.world.send(batch).await.unwrap(), [1, 2, 3].map(|position| Ok(sent(position))));
    assert_eq!(case.send_payload(run, "d").await, 4);
    let inbox = case.world.inbox(run, 0).await.unwrap();
    assert_eq!(inbox.iter().map(|message| message.position).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(inbox[..3].iter().map(|message| message.id).collect::<Vec<_>>(), ids);
    assert_eq!(case.world.inbox(run, 3).await.unwrap(), inbox[3..]);
    let view = case.view(run).await;
    assert_eq!((view.sent, view.consumed), (4, 0));
}

/// A message has the time at which the world accepted it.
pub async fn a_message_has_the_time_of_the_worlds_clock(case: Case) {
    let run = case.start("wf").await;
    case.clock.advance("1h");
    let sent_at = case.clock.now();
    case.send_payload(run, "a").await;
    case.clock.advance("1h");
    assert_eq!(case.world.inbox(run, 0).await.unwrap()[0].at, sent_at);
}

/// A repeated send with the same id adds no message, and returns the position of the first.
pub async fn a_repeated_message_is_kept_once(case: Case) {
    let run = case.start("wf").await;
    let message = case.new_message(run, "a");
    assert_eq!(case.try_send(message.clone()).await, Ok(sent(1)));
    assert_eq!(case.send_payload(run, "b").await, 2);
    assert_eq!(case.try_send(message).await, Ok(sent(1)));
    assert_eq!(case.view(run).await.sent, 2);
}

/// A repeat is recognised after the message was consumed.
pub async fn a_message_repeated_after_it_was_consumed_is_not_a_new_one(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let message = case.new_message(run, "a");
    case.try_send(message.clone()).await.unwrap();
    let turn = case.turn(&worker.claim_one().await).steps(1).then(wait());
    worker.commit_done(turn).await;
    assert_eq!(case.try_send(message).await, Ok(sent(1)));
    let view = case.view(run).await;
    assert_eq!((view.sent, view.consumed), (1, 1));
    worker.claim_nothing().await;
}

/// A repeat is recognised after the run has ended: its sender learns that it arrived.
pub async fn a_message_repeated_after_the_end_answers_as_before(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let message = case.new_message(run, "a");
    case.try_send(message.clone()).await.unwrap();
    let turn = case.turn(&worker.claim_one().await).completing("out");
    worker.commit_done(turn).await;
    assert_eq!(case.try_send(message).await, Ok(sent(1)));
}

/// A run that has ended accepts no message, with every final status.
pub async fn a_message_to_an_ended_run_conflicts(case: Case) {
    let worker = case.join("wf").await;
    let run = case.completed(&worker).await;
    assert_refused!(case.try_send(case.new_message(run, "late")).await, Conflict);
    assert_refused!(case.try_send(case.new_cancel(run)).await, Conflict);
    assert_eq!(case.view(run).await.sent, 0);
}

/// Each message of a batch has its own answer.
pub async fn a_refused_message_leaves_its_neighbours_alone(case: Case) {
    let worker = case.join("wf").await;
    let ended = case.completed(&worker).await;
    let run = case.start("wf").await;
    let batch = [run, ended, run].map(|run| case.new_message(run, "x"));
    let answers = case.world.send(batch.into()).await.unwrap();
    assert_eq!((&answers[0], &answers[2]), (&Ok(sent(1)), &Ok(sent(2))));
    assert_refused!(&answers[1], Conflict);
}

/// The first claim of a run returns the messages that were sent before.
pub async fn a_message_sent_before_anyone_waits_is_kept(case: Case) {
    let run = case.start("wf").await;
    case.send_payload(run, "early").await;
    let worker = case.join("wf").await;
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.consumed, claimed.inbox.len()), (0, 1));
    let MessageBody::Hook { name, payload, to: _ } = &claimed.inbox[0].body else { panic!("{claimed:?}") };
    assert_eq!((&**name, payload.decode::<String>()), ("h", Ok("early".into())));
}

/// Messages stay unread until a commit consumes them, and are not returned again afterwards.
pub async fn a_message_is_consumed_by_the_commit_that_says_so(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    case.send_payload(run, "a").await;
    case.send_payload(run, "b").await;
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).steps(1).consuming(1).then(Then::Release)).await;
    assert_eq!(case.view(run).await.consumed, 1);
    let again = worker.claim_one().await;
    assert_eq!(again.consumed, 1);
    assert_eq!(again.inbox, claimed.inbox[1..]);
}

/// A full inbox refuses payloads, but accepts the messages of the engine.
pub async fn a_full_inbox_refuses_payloads_but_takes_a_cancel(case: Case) {
    let run = case.start("wf").await;
    let batch = (0..INBOX_MESSAGES_MAX).map(|_| case.new_message(run, "x")).collect();
    let answers = case.world.send(batch).await.unwrap();
    assert!(answers.iter().all(Result::is_ok));
    assert_refused!(case.try_send(case.new_message(run, "one too many")).await, Limit);
    assert_eq!(case.cancel(run).await, INBOX_MESSAGES_MAX + 1);
}

/// Only unread messages fill an inbox.
pub async fn a_run_that_reads_can_be_sent_more_than_an_inbox_holds(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let batch = (0..INBOX_MESSAGES_MAX).map(|_| case.new_message(run, "x")).collect();
    case.world.send(batch).await.unwrap();
    let claimed = worker.claim_one().await;
    assert_eq!(claimed.inbox.len(), outlast_core::limits::INBOX_READ_MAX, "the limit of one read");
    worker.commit_done(case.turn(&claimed).steps(1)).await;
    assert_eq!(case.send_payload(run, "one more").await, INBOX_MESSAGES_MAX + 1);
}

/// A message makes a waiting run ready.
pub async fn a_message_wakes_a_waiting_run(case: Case) {
    let worker = case.join("wf").await;
    let run = case.parked(&worker, wait()).await;
    worker.claim_nothing().await;
    case.send_payload(run, "wake up").await;
    let claimed = worker.claim_one().await;
    assert_eq!((claimed.run, claimed.inbox.len()), (run, 1));
}

/// Headers travel with a message.
pub async fn a_message_keeps_its_headers(case: Case) {
    let run = case.start("wf").await;
    let mut message = case.new_message(run, "a");
    message.headers =
        [("traceparent".to_string(), "00-ab-cd".to_string()), ("".into(), "\u{0}ü".into())].into();
    case.try_send(message.clone()).await.unwrap();
    let inbox = case.world.inbox(run, 0).await.unwrap();
    assert_eq!((&inbox[0].headers, &inbox[0].body), (&message.headers, &message.body));
    assert_eq!(case.status(run).await, Status::Pending, "a message does not change the status");
}

/// A full inbox accepts the messages of the engine, and refuses wakes, which can be sent again.
pub async fn a_full_inbox_takes_what_the_engine_needs(case: Case) {
    let run = case.start("wf").await;
    let batch = (0..INBOX_MESSAGES_MAX).map(|_| case.new_message(run, "x")).collect();
    case.world.send(batch).await.unwrap();
    let op = OpNumber(0);
    assert_refused!(case.try_send(case.new_message_of(run, MessageBody::Wake { op: None })).await, Limit);
    for (index, body) in [
        MessageBody::Terminate { reason: "enough".into() },
        MessageBody::Compensate { reason: "enough".into() },
        MessageBody::ChildStarted { op, run },
        MessageBody::ChildEnded { op, outcome: Outcome::Failed(failure()) },
        MessageBody::Refused { op, failure: failure() },
        MessageBody::Attempted { events: vec![Event::StepFailed { op, failure: failure() }] },
    ]
    .into_iter()
    .enumerate()
    {
        let position = INBOX_MESSAGES_MAX + 1 + index as u64;
        assert_eq!(
            case.try_send(case.new_message_of(run, body)).await.map(|sent| sent.position),
            Ok(position)
        );
    }
}
