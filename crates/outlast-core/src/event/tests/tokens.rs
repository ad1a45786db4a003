//! Events of hooks, tokens and replies: examples, and random ones.

use super::*;
use crate::token::{CarriedToken, SignatureTerms, WebhookReply, WebhookResponse};

/// Payloads that arrive, and what becomes of them.
pub(super) fn hook_examples(rules: u32, message: MessageId, op: OpNumber) -> Vec<Event> {
    let at = Some(moment()).filter(|_| rules > 1);
    let received = |payload, headers: &[(&str, &str)], judgement| {
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Event::HookReceived {
            name: "review".into(),
            message,
            payload,
            headers,
            at,
            judgement,
            to: HookAddress::default(),
        }
    };
    let mut examples = vec![
        received(plain(json!({"ok": true})), &[], Judgement::Kept),
        received(Payload::null(), &[], Judgement::Kept),
        received(Payload::coded("aes-1", vec![7]), &[], Judgement::Kept),
    ];
    if rules > 1 {
        let reason = || "the payload is not a `Review`: missing field `ok`".to_owned();
        examples.extend([
            received(plain(json!({"ok": true})), &[("user", "Zoë \"z\"")], Judgement::TakenBy(op)),
            received(Payload::coded("aes-1", vec![7]), &[("user", "ada")], Judgement::TakenBy(OpNumber(0))),
            received(plain(json!({"no": 1})), &[], Judgement::Rejected(reason())),
            Event::HookTaken { op, message },
            Event::HookRejected { name: "review".into(), message, reason: reason() },
        ]);
    }
    examples
}

pub(super) fn token_examples() -> Vec<Event> {
    let op = OpNumber(4);
    let message = MessageId::from_bits(0x0190_0000_0000_0000_0000_0000_0000_002a);
    let plain_request = TokenRequested {
        op,
        name: "review".into(),
        token: "order-42".into(),
        is_generated: false,
        metadata: None,
        webhook: None,
        keep_for: None,
    };
    let webhook = |terms: WebhookTerms| TokenRequested {
        is_generated: true,
        webhook: Some(Arc::new(terms)),
        ..plain_request.clone()
    };
    let signature = |hmac_header: Option<&str>| {
        Some(SignatureTerms { secret: "stripe".into(), hmac_header: hmac_header.map(Into::into) })
    };
    let fixed = WebhookReply { status: 200, headers: vec![("x".into(), "1".into())], body: "ok".into() };
    let requests = [
        TokenRequested {
            metadata: Some(plain(json!({"cents": 4200}))),
            keep_for: Some(Duration::from_secs(86_400)),
            ..plain_request.clone()
        },
        TokenRequested { metadata: Some(Payload::coded("aes-1", vec![7])), ..plain_request.clone() },
        webhook(WebhookTerms::default()),
        webhook(WebhookTerms {
            methods: vec!["GET".into(), "POST".into()],
            signature: signature(None),
            response: WebhookResponse::ByWorkflow,
            public_url: None,
        }),
        webhook(WebhookTerms {
            methods: Vec::new(),
            signature: signature(Some("x-signature")),
            response: WebhookResponse::Fixed(fixed),
            public_url: None,
        }),
        plain_request,
    ];
    let received = |token: Option<&str>, wants_reply| Event::HookReceived {
        name: "review".into(),
        message,
        payload: plain(json!({"ok": true})),
        headers: Headers::new(),
        at: Some(moment()),
        judgement: Judgement::TakenBy(op),
        to: HookAddress { token: token.map(Into::into), wants_reply },
    };
    let carried =
        |keep_for| CarriedToken { op, hook: "review".into(), token: "order \"42\"".into(), keep_for };
    let continued = RunContinued {
        generation: 2,
        tokens: vec![carried(None), carried(Some(Duration::from_secs(60)))],
        ..RunContinued::of_start(plain_start(2))
    };
    let mut examples: Vec<_> =
        requests.into_iter().map(|request| Event::TokenRequested(Box::new(request))).collect();
    examples.extend([
        Event::TokenTaken { op },
        Event::TokenRefused { op, failure: Failure::new(FailureKind::Conflict, "taken") },
        Event::TokenClosed { op },
        Event::HookOpened { op: OpNumber(5), name: "review".into(), timeout_at: None, of: Some(op) },
        received(Some("order \"42\""), false),
        received(Some("order-42"), true),
        received(None, true),
        Event::ReplySent { op, message, payload: plain(json!({"cents": 7})) },
        Event::ReplySent { op, message, payload: Payload::coded("aes-1", vec![7]) },
        Event::ReplyDropped { message },
        Event::RunContinued(Box::new(continued)),
    ]);
    examples
}

pub(super) fn file_name(event: &Event) -> &'static str {
    match event {
        Event::TokenRequested(_) => "token_requested",
        Event::TokenTaken { .. } => "token_taken",
        Event::TokenRefused { .. } => "token_refused",
        Event::TokenClosed { .. } => "token_closed",
        Event::ReplySent { .. } => "reply_sent",
        Event::ReplyDropped { .. } => "reply_dropped",
        other => iterations::file_name(other),
    }
}

pub(super) fn redrawn(example: &Event) -> BoxedStrategy<Event> {
    let op = (0..=i64::MAX as u64).prop_map(OpNumber);
    let message = any::<u128>().prop_map(MessageId::from_bits);
    match example.clone() {
        Event::TokenRequested(example) => {
            (op, any_text(), any_text(), any::<bool>(), prop::option::of(any_payload()))
                .prop_map(move |(op, name, token, is_generated, metadata)| {
                    let (name, token) = (name.into(), token.into());
                    let requested =
                        TokenRequested { op, name, token, is_generated, metadata, ..(*example).clone() };
                    Event::TokenRequested(Box::new(requested))
                })
                .boxed()
        }
        Event::TokenTaken { .. } => op.prop_map(|op| Event::TokenTaken { op }).boxed(),
        Event::TokenRefused { .. } => {
            (op, any_failure()).prop_map(|(op, failure)| Event::TokenRefused { op, failure }).boxed()
        }
        Event::TokenClosed { .. } => op.prop_map(|op| Event::TokenClosed { op }).boxed(),
        Event::ReplySent { .. } => (op, message, any_payload())
            .prop_map(|(op, message, payload)| Event::ReplySent { op, message, payload })
            .boxed(),
        Event::ReplyDropped { .. } => message.prop_map(|message| Event::ReplyDropped { message }).boxed(),
        other => iterations::redrawn(&other),
    }
}
