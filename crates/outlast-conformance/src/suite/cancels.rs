//! The mark `is_cancel_requested` of a run, and what a sender learns of it.

use outlast_core::{MessageBody, Sent};

use super::Case;
use super::turn_ext::{TurnExt, wait};

/// The first cancel sets the mark. The answer to a second one reports that a cancel was requested before.
pub async fn a_second_cancel_is_told_of_the_first(case: Case) {
    let run = case.start("wf").await;
    assert!(!case.view(run).await.is_cancel_requested);
    case.send_payload(run, "x").await;
    assert!(!case.view(run).await.is_cancel_requested, "a payload asks for nothing");
    let (first, second) = (case.new_cancel(run), case.new_cancel(run));
    let sent =
        |position, cancel_was_requested| Ok(Sent { position, cancel_was_requested, is_repeated: false });
    assert_eq!(case.try_send(first.clone()).await, sent(2, false));
    assert!(case.view(run).await.is_cancel_requested);
    assert_eq!(case.try_send(second.clone()).await, sent(3, true));
    assert_eq!(case.try_send(first).await, sent(2, false), "a repeat is answered as the first time");
    assert_eq!(case.try_send(second).await, sent(3, true));
}

/// A message that was sent before the cancel is answered as the first time when it is sent again after it.
pub async fn a_message_repeated_after_a_cancel_is_answered_as_before(case: Case) {
    let run = case.start("wf").await;
    let wake = case.new_message_of(run, MessageBody::Wake { op: None });
    let messages = [wake, case.new_message(run, "x"), case.new_message_of(run, MessageBody::Resume)];
    let mut before = Vec::new();
    for message in &messages {
        before.push(case.try_send(message.clone()).await);
    }
    case.try_send(case.new_cancel(run)).await.unwrap();
    for (message, before) in messages.into_iter().zip(before) {
        assert!(!before.as_ref().unwrap().cancel_was_requested);
        assert_eq!(case.try_send(message).await, before);
    }
}

/// Two cancels in one call get different answers.
pub async fn of_two_cancels_in_one_call_the_second_is_told(case: Case) {
    let run = case.start("wf").await;
    let answers = case.world.send(vec![case.new_cancel(run), case.new_cancel(run)]).await.unwrap();
    let were_requested: Vec<bool> =
        answers.iter().map(|sent| sent.as_ref().unwrap().cancel_was_requested).collect();
    assert_eq!(were_requested, [false, true]);
}

/// A turn that records a request to stop sets the mark as well, by its deadline say; and nothing clears it.
pub async fn a_turn_that_was_asked_to_stop_sets_the_mark(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let turn = case.turn(&worker.claim_one().await).with_cancel_requested();
    worker.commit_done(turn.clone()).await;
    assert!(case.view(run).await.is_cancel_requested);
    worker.commit_done(case.turn_after(&turn).steps(1).then(wait())).await;
    assert!(case.view(run).await.is_cancel_requested);
    assert!(case.try_send(case.new_cancel(run)).await.unwrap().cancel_was_requested);
}

/// The mark survives the end of the run and of the worker, and a repeat after the end is answered as before.
pub async fn a_cancel_repeated_after_the_end_is_answered_as_before(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let cancel = case.new_cancel(claimed.run);
    let sent = case.try_send(cancel.clone()).await;
    worker.commit_done(case.turn(&claimed).consuming(1).with_cancel_requested().cancelling()).await;
    assert_eq!(case.try_send(cancel).await, sent);
    assert_eq!(sent, Ok(Sent { position: 1, cancel_was_requested: false, is_repeated: false }));
    assert!(case.view(claimed.run).await.is_cancel_requested);
}

/// A cancel that a turn sends sets the mark of its receiver.
pub async fn a_cancel_of_a_turn_sets_the_mark(case: Case) {
    let worker = case.join("wf").await;
    let target = case.start("other").await;
    let claimed = case.held(&worker).await;
    worker.commit_done(case.turn(&claimed).steps(1).sending(case.new_cancel(target))).await;
    assert!(case.view(target).await.is_cancel_requested);
}
