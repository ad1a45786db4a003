//! Payloads that no hook has taken: counted by the run, and limited together with what is unread.

use outlast_core::limits::{HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX};
use outlast_core::{MessageBody, NewMessage};

use super::case::text;
use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

/// A claim returns the number of kept payloads that the last turn has set.
pub async fn a_turn_says_how_many_payloads_are_kept(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let turn = case.turn(&claimed).steps(1).keeping(3);
    worker.commit_done(turn.clone()).await;
    assert_eq!(case.view(claimed.run).await.kept, 3);
    worker.commit_done(case.turn_after(&turn).then(wait())).await;
    assert_eq!(case.view(claimed.run).await.kept, 3);
    case.send_payload(claimed.run, "x").await;
    let again = worker.claim_one().await;
    assert_eq!(again.columns.kept, 3);
    worker.commit_done(case.turn(&again).steps(1).keeping(0)).await;
    assert_eq!(case.view(claimed.run).await.kept, 0);
}

/// A payload is refused when unread and kept payloads together have reached the limit; the run is not affected.
pub async fn a_payload_past_the_limit_of_kept_ones_is_refused(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let limit = HOOK_BUFFER_MAX as u64;
    let turn = case.turn(&claimed).steps(1).keeping(limit - 2);
    worker.commit_done(turn.clone()).await;
    case.send_payload(claimed.run, "a").await;
    let last = case.new_message(claimed.run, "b");
    case.try_send(last.clone()).await.unwrap();
    assert_refused!(case.try_send(case.new_message(claimed.run, "c")).await, Limit);
    assert_eq!(case.try_send(last).await.unwrap().position, 2, "a repeat is not a new one");
    let wake: NewMessage = case.new_message_of(claimed.run, MessageBody::Wake { op: None });
    assert!(case.try_send(wake).await.is_ok(), "it is no payload");
    case.cancel(claimed.run).await;
    let turn = case.turn_after(&turn).steps(1).consuming(4).keeping(limit - 1);
    worker.commit_done(turn.clone()).await;
    case.send_payload(claimed.run, "d").await;
    assert_refused!(case.try_send(case.new_message(claimed.run, "e")).await, Limit);
    worker.commit_done(case.turn_after(&turn).steps(1).consuming(5).keeping(0).then(wait())).await;
    case.send_payload(claimed.run, "f").await;
}

/// A payload for a hook that the run waits for is taken, however many payloads for other hooks are kept: the run may
/// need it to take those. It is refused only when the inbox itself is full.
pub async fn a_payload_that_the_run_waits_for_is_taken_past_the_limit_of_kept_ones(case: Case) {
    let worker = case.join("wf").await;
    let claimed = case.held(&worker).await;
    let run = claimed.run;
    let turn = case.turn(&claimed).steps(1).keeping(HOOK_BUFFER_MAX as u64).then(wait());
    worker.commit_done(turn).await;
    let misspelt = || {
        let body = MessageBody::Hook { name: "\"h".into(), payload: text("x"), to: Default::default() };
        case.new_message_of(run, body)
    };
    assert_refused!(case.try_send(misspelt()).await, Limit);
    let answers = case.world.send(vec![misspelt(), case.new_message(run, "a"), misspelt()]).await.unwrap();
    let taken: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [false, true, false]);
    assert_eq!(case.send_payload(run, "b").await, 2);
    let rest = (2..INBOX_MESSAGES_MAX).map(|_| case.new_message(run, "x")).collect();
    assert!(case.world.send(rest).await.unwrap().iter().all(Result::is_ok));
    assert_refused!(case.try_send(case.new_message(run, "c")).await, Limit);
    assert_eq!(worker.claim_one().await.run, run);
}
