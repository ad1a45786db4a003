//! The directory of tokens, replies to messages, and starts that also send.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::limits::REPLY_KEPT;
use outlast_core::refusal::{TOKEN_TAKEN, token_taken};
use outlast_core::{
    FreedToken, HookAddress, MessageBody, NewMessage, NewReply, NewToken, OpNumber, Reply, RunId,
    SignatureTerms, Status, TokenHash, Turn, WebhookReply, WebhookResponse, WebhookTerms,
};

use super::case::text;
use super::turn_ext::{TurnExt, wait};
use super::{Case, assert_refused};

const TOKEN: &str = "order-42";

fn new_token(op: u64) -> NewToken {
    NewToken {
        hash: TokenHash::of(TOKEN),
        op: OpNumber(op),
        hook: "review".into(),
        metadata: None,
        webhook: None,
        keep_for: None,
        notify: true,
    }
}

fn taking(mut turn: Turn, new: NewToken) -> Turn {
    turn.outbox.get_or_insert_default().tokens.taken.push(new);
    turn
}

fn freeing(mut turn: Turn, op: u64, kept_until: Option<outlast_core::Timestamp>) -> Turn {
    let freed = FreedToken { hash: TokenHash::of(TOKEN), op: OpNumber(op), kept_until };
    turn.outbox.get_or_insert_default().tokens.freed.push(freed);
    turn
}

fn to_token(case: &Case, run: RunId, wants_reply: bool) -> NewMessage {
    let to = HookAddress { token: Some(TOKEN.into()), wants_reply };
    case.new_message_of(run, MessageBody::Hook { name: "review".into(), payload: text("yes"), to })
}

/// Whether the token is in the directory and open, and the run that has it.
async fn lookup(case: &Case) -> Option<(RunId, bool)> {
    let view = case.world.token(TokenHash::of(TOKEN)).await.unwrap();
    view.map(|view| (view.run, view.is_open))
}

/// Of two runs that take one token, the first gets it, and the other learns which run has it.
pub async fn one_run_gets_a_token_and_the_other_learns_who_has_it(case: Case) {
    let worker = case.join("wf").await;
    let (first, second) = (case.held(&worker).await, case.held(&worker).await);
    let turns = [
        taking(case.turn(&first).steps(1).then(wait()), new_token(0)),
        taking(case.turn(&second).steps(1).then(wait()), new_token(7)),
    ];
    let answers = worker.world.commit(worker.session, &turns).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    worker.settle().await;
    assert_eq!(case.inbox_bodies(first.run).await, [MessageBody::TokenTaken { op: OpNumber(0) }]);
    let bodies = case.inbox_bodies(second.run).await;
    let failure = token_taken("review", first.run);
    assert_eq!(failure.code.as_deref(), Some(TOKEN_TAKEN));
    assert_eq!(bodies, [MessageBody::Refused { op: OpNumber(7), failure }]);
    assert_eq!(lookup(&case).await, Some((first.run, true)));
    assert_eq!(worker.claim().await.len(), 2, "both are woken by their answers");
}

/// A lookup returns the metadata of the token, and does not wake its run.
pub async fn a_lookup_returns_the_metadata_and_wakes_nobody(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    let new = NewToken { metadata: Some(text("42 euros")), notify: false, ..new_token(3) };
    worker.commit_done(taking(case.turn(&held).steps(1).then(wait()), new)).await;
    let view = case.world.token(TokenHash::of(TOKEN)).await.unwrap().unwrap();
    assert_eq!((view.run, view.op, &*view.hook), (held.run, OpNumber(3), "review"));
    assert_eq!(
        (view.metadata, view.webhook, view.opened_at),
        (Some(text("42 euros")), None, case.clock.now())
    );
    assert_eq!(case.world.token(TokenHash::of("other")).await.unwrap(), None);
    // The terms of a webhook are a field of their own: metadata cannot pretend to be them.
    let other = case.held(&worker).await;
    let terms = WebhookTerms {
        methods: vec!["GET".into(), "PUT".into()],
        signature: Some(SignatureTerms { secret: "bank".into(), hmac_header: Some("x-signature".into()) }),
        response: WebhookResponse::Fixed(WebhookReply::new(200, "Zoë \0").header("x-a", "1")),
        public_url: Some("https://a.example/b".into()),
    };
    let webhook = Some(Arc::new(terms));
    let (hash, notify) = (TokenHash::of("webhook"), false);
    let new = NewToken { hash, webhook: webhook.clone(), notify, ..new_token(4) };
    worker.commit_done(taking(case.turn(&other).steps(1).then(wait()), new)).await;
    let view = case.world.token(hash).await.unwrap().unwrap();
    assert_eq!((view.run, view.metadata, view.webhook), (other.run, None, webhook));
    assert_eq!(case.inbox_bodies(held.run).await, [], "it asked for no answer");
    assert_eq!(case.status(held.run).await, Status::Waiting);
}

/// A token is free when the operation that took it frees it, and not when another operation tries to.
pub async fn a_freed_token_can_be_taken_by_another_run(case: Case) {
    let worker = case.join("wf").await;
    let (first, second) = (case.held(&worker).await, case.held(&worker).await);
    let take = taking(case.turn(&first).steps(1), new_token(0));
    worker.commit_done(take.clone()).await;
    let other = freeing(case.turn_after(&take).steps(1), 5, None);
    worker.commit_done(other.clone()).await;
    assert_eq!(lookup(&case).await, Some((first.run, true)), "operation 5 does not hold it");
    worker.commit_done(freeing(case.turn_after(&other).steps(1), 0, None)).await;
    assert_eq!(lookup(&case).await, None);
    worker.commit_done(taking(case.turn(&second).steps(1), new_token(0))).await;
    assert_eq!(lookup(&case).await, Some((second.run, true)));
}

/// A turn frees tokens before it takes others; a run that takes a token again has it under the new operation.
pub async fn a_run_takes_its_own_token_again(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    let take = taking(case.turn(&held).steps(1), new_token(0));
    worker.commit_done(take.clone()).await;
    let again = freeing(taking(case.turn_after(&take).steps(1), new_token(1)), 0, None);
    worker.commit_done(again.clone()).await;
    let view = case.world.token(TokenHash::of(TOKEN)).await.unwrap().unwrap();
    assert_eq!((view.run, view.op), (held.run, OpNumber(1)));
    worker.commit_done(taking(case.turn_after(&again).steps(1), new_token(2))).await;
    let view = case.world.token(TokenHash::of(TOKEN)).await.unwrap().unwrap();
    assert_eq!((view.run, view.op), (held.run, OpNumber(2)), "without freeing it first");
}

/// The token of a run that has ended is closed until another run takes it, or the run is deleted.
pub async fn the_token_of_an_ended_run_is_closed_and_can_be_taken(case: Case) {
    let worker = case.join("wf").await;
    for is_deleted in [false, true] {
        let (first, second) = (case.held(&worker).await, case.held(&worker).await);
        let take = taking(case.turn(&first).steps(1), new_token(0));
        worker.commit_done(take.clone()).await;
        worker.commit_done(case.turn_after(&take).completing("out")).await;
        assert_eq!(lookup(&case).await, Some((first.run, false)));
        assert_refused!(case.try_send(to_token(&case, first.run, false)).await, Conflict);
        if is_deleted {
            case.world.delete(first.run).await.unwrap();
            assert_eq!(lookup(&case).await, None);
        }
        let take = taking(case.turn(&second).steps(1), new_token(0));
        worker.commit_done(take.clone()).await;
        assert_eq!(lookup(&case).await, Some((second.run, true)));
        worker.commit_done(freeing(case.turn_after(&take), 0, None).completing("out")).await;
        assert_eq!(lookup(&case).await, None);
    }
}

/// A token that is kept cannot be taken by another run for its time, also if its run is deleted.
pub async fn a_kept_token_is_taken_for_its_time(case: Case) {
    let worker = case.join("wf").await;
    for is_closed in [true, false] {
        let (first, second) = (case.held(&worker).await, case.held(&worker).await);
        let new = NewToken { keep_for: Some(Duration::from_secs(100)), ..new_token(0) };
        let take = taking(case.turn(&first).steps(1), new);
        worker.commit_done(take.clone()).await;
        let end = case.turn_after(&take);
        let end = if is_closed { freeing(end, 0, Some(case.later(100))) } else { end };
        worker.commit_done(end.completing("out")).await;
        assert_eq!(lookup(&case).await, Some((first.run, false)));
        case.world.delete(first.run).await.unwrap();
        case.clock.advance(Duration::from_secs(99));
        assert_eq!(lookup(&case).await, Some((first.run, false)), "closed {is_closed}");
        let take = taking(case.turn(&second).steps(1), new_token(0));
        worker.commit_done(take.clone()).await;
        let bodies = case.inbox_bodies(second.run).await;
        let failure = token_taken("review", first.run);
        assert_eq!(bodies, [MessageBody::Refused { op: OpNumber(0), failure }]);
        case.clock.advance(Duration::from_secs(1));
        assert_eq!(lookup(&case).await, None);
        let take = taking(case.turn_after(&take).steps(1), new_token(1));
        worker.commit_done(take.clone()).await;
        assert_eq!(lookup(&case).await, Some((second.run, true)));
        worker.commit_done(freeing(case.turn_after(&take), 1, None).completing("out")).await;
    }
}

/// A payload is accepted for a token only while its run holds it. A repeated one keeps its answer.
pub async fn a_payload_for_a_token_is_accepted_while_its_run_holds_it(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    assert_refused!(case.try_send(to_token(&case, held.run, false)).await, Conflict);
    let new = NewToken { notify: false, ..new_token(0) };
    let take = taking(case.turn(&held).steps(1), new);
    worker.commit_done(take.clone()).await;
    let message = to_token(&case, held.run, true);
    let sent = case.try_send(message.clone()).await.unwrap();
    assert_eq!((sent.position, sent.is_repeated), (1, false));
    let bodies = case.inbox_bodies(held.run).await;
    assert_eq!(bodies, std::slice::from_ref(&message.body), "with its address");
    worker.commit_done(freeing(case.turn_after(&take).steps(1), 0, None)).await;
    assert_refused!(case.try_send(to_token(&case, held.run, false)).await, Conflict);
    let sent = case.try_send(message).await.unwrap();
    assert_eq!((sent.position, sent.is_repeated), (1, true));
    assert_refused!(case.try_send(to_token(&case, RunId::from_bits(9), false)).await, NotFound);
}

/// The first reply to a message counts, and is stored with the turn.
pub async fn the_first_reply_to_a_message_counts(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    let message = case.new_message(held.run, "?");
    assert_refused!(case.world.reply(RunId::from_bits(9), message.id).await, NotFound);
    assert_eq!(case.world.reply(held.run, message.id).await, Ok(None));
    let replying = |mut turn: Turn, reply: Reply| {
        turn.outbox.get_or_insert_default().replies.push(NewReply { message: message.id, reply });
        turn
    };
    let first = replying(case.turn(&held).steps(1), Reply::Answered(text("42")));
    worker.commit_done(first.clone()).await;
    let stored = case.world.reply(held.run, message.id).await.unwrap().unwrap();
    assert_eq!((stored.at, stored.reply), (case.clock.now(), Reply::Answered(text("42"))));
    worker.commit_done(replying(case.turn_after(&first).steps(1), Reply::NotAnswered)).await;
    let stored = case.world.reply(held.run, message.id).await.unwrap().unwrap();
    assert_eq!(stored.reply, Reply::Answered(text("42")));
}

/// Every kind of reply is read back. A watch reports that one was stored.
pub async fn every_reply_is_read_back(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    let replies =
        [Reply::Answered(text("\0 42")), Reply::Rejected("no \0 number".into()), Reply::NotAnswered];
    let messages: Vec<_> = replies.iter().map(|_| case.new_message(held.run, "?").id).collect();
    let mut watch = case.world.watch(held.run);
    let mut turn = case.turn(&held).steps(1);
    let new = messages.iter().zip(&replies);
    let new = new.map(|(message, reply)| NewReply { message: *message, reply: reply.clone() });
    turn.outbox.get_or_insert_default().replies.extend(new);
    worker.commit_done(turn).await;
    watch.changed().await;
    for (message, reply) in messages.into_iter().zip(replies) {
        assert_eq!(
            case.world.reply(held.run, message).await.unwrap().map(|stored| stored.reply),
            Some(reply)
        );
    }
}

/// Replies are kept for their time, and deleted with their run.
pub async fn replies_are_kept_for_their_time(case: Case) {
    let worker = case.join("wf").await;
    let held = case.held(&worker).await;
    let message = case.new_message(held.run, "?").id;
    let mut turn = case.turn(&held).steps(1);
    turn.outbox.get_or_insert_default().replies.push(NewReply { message, reply: Reply::NotAnswered });
    worker.commit_done(turn).await;
    case.clock.advance(REPLY_KEPT - Duration::from_secs(1));
    case.world.prune(case.clock.now(), None, 10).await.unwrap();
    assert!(case.world.reply(held.run, message).await.unwrap().is_some());
    case.clock.advance(Duration::from_secs(1));
    case.world.prune(case.clock.now(), None, 10).await.unwrap();
    assert_eq!(case.world.reply(held.run, message).await, Ok(None));
}

/// A start that also sends starts a run, or finds it by its key; the message goes to that run.
pub async fn a_start_that_sends_starts_or_finds_its_run(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_keyed_start("wf", "cart", "in");
    let message = case.new_message(RunId::from_bits(1), "first");
    let (started, sent) = case.world.start_and_send(start.clone(), message.clone()).await.unwrap();
    assert_eq!((started.run, started.is_new, sent.position), (start.run, true, 1));
    let again = case.world.start_and_send(start.clone(), message).await.unwrap();
    assert_eq!((again.0.run, again.1.position, again.1.is_repeated), (start.run, 1, true));
    let other = case.new_keyed_start("wf", "cart", "in");
    let second = case.new_message(RunId::from_bits(1), "second");
    let (found, sent) = case.world.start_and_send(other, second).await.unwrap();
    assert_eq!((found.run, found.is_new, sent.position), (start.run, false, 2));
    assert_eq!(worker.claim_one().await.inbox.len(), 2);
}

/// A start whose message is refused starts nothing.
pub async fn a_refused_message_starts_nothing(case: Case) {
    let worker = case.join("wf").await;
    let start = case.new_start("wf");
    let message = to_token(&case, start.run, false);
    assert_refused!(case.world.start_and_send(start.clone(), message).await, Invalid);
    assert_refused!(case.world.run(start.run).await, NotFound);
    let keyed = case.new_keyed_start("wf", "cart", "in");
    case.try_start(keyed.clone()).await.unwrap();
    let claimed = worker.claim_one().await;
    worker.commit_done(case.turn(&claimed).completing("out")).await;
    let message = case.new_message(keyed.run, "late");
    assert_refused!(
        case.world.start_and_send(case.new_keyed_start("wf", "cart", "in"), message.clone()).await,
        Conflict
    );
    let other = case.new_keyed_start("other", "cart", "in");
    assert_refused!(case.world.start_and_send(other, message).await, Conflict);
}
