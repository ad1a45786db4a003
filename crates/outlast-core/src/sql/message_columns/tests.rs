use std::sync::Arc;

use super::*;
use crate::failure::{Failure, FailureKind};
use crate::id::{MessageId, RunId};
use crate::payload::Payload;
use crate::retried::RetryRequest;

fn message(body: MessageBody) -> NewMessage {
    let headers = [("actor".to_owned(), "Ada".to_owned())].into();
    NewMessage { id: MessageId::from_bits(1), run: RunId::from_bits(2), body, headers }
}

fn hook(payload: Payload, to: HookAddress) -> MessageBody {
    MessageBody::Hook { name: "review".into(), payload, to }
}

/// One message of each kind, and the kind under which it is stored.
fn every_kind() -> Vec<(&'static str, MessageBody)> {
    let (op, failure) = (OpNumber(7), Failure::new(FailureKind::Error, "out of stock"));
    let reason = || "a \0 and \u{E000}".to_owned();
    let to = HookAddress { token: Some(Arc::from("secret")), wants_reply: true };
    let retry: RetryRequest = serde_json::from_str(r#"{"from":3,"reopens":1}"#).unwrap();
    let child = |outcome| MessageBody::ChildEnded { op, outcome };
    let events = vec![Event::StepFailed { op, failure: failure.clone() }];
    vec![
        ("hook", hook(Payload::from_json_text("[1,2]"), HookAddress::default())),
        ("hook", hook(Payload::coded("aes", &b"\0\xff"[..]), to)),
        ("cancel", MessageBody::Cancel { reason: reason() }),
        ("terminate", MessageBody::Terminate { reason: reason() }),
        ("terminate", MessageBody::Compensate { reason: reason() }),
        ("wake", MessageBody::Wake { op: None }),
        ("wake", MessageBody::Wake { op: Some(op) }),
        ("child_started", MessageBody::ChildStarted { op, run: RunId::from_bits(9) }),
        ("child_ended", child(Outcome::Completed(Payload::null()))),
        ("child_ended", child(Outcome::Completed(Payload::coded("aes", &b"x"[..])))),
        ("child_ended", child(Outcome::Failed(failure.clone()))),
        ("child_ended", child(Outcome::Cancelled(failure.clone()))),
        ("refused", MessageBody::Refused { op, failure }),
        ("attempted", MessageBody::Attempted { events }),
        ("pause", MessageBody::Pause { reason: reason() }),
        ("resume", MessageBody::Resume),
        ("retry", MessageBody::Retry(Box::new(retry))),
        ("token_taken", MessageBody::TokenTaken { op }),
    ]
}

#[test]
fn every_message_is_read_from_its_columns() {
    for (kind, body) in every_kind() {
        let message = message(body);
        let columns = MessageColumns::of(&message).unwrap();
        assert_eq!(columns.kind, kind);
        assert_eq!(columns.into_parts(), Ok((message.body, message.headers)), "{kind}");
    }
}

#[test]
fn only_chosen_texts_contain_characters_that_a_database_may_refuse() {
    for (kind, body) in every_kind() {
        let columns = MessageColumns::of(&message(body)).unwrap();
        let has_nul = matches!(&columns.body, Some(ColumnValue::Text(text)) if text.contains('\0'));
        assert_eq!(has_nul, MessageColumns::is_body_chosen(kind), "{kind}");
    }
}

#[test]
fn a_column_that_is_damaged_or_newer_is_named() {
    let error = |columns: MessageColumns<'_>| columns.into_parts().unwrap_err().to_string();
    let of_kind = |kind: &'static str| MessageColumns { kind: kind.into(), ..MessageColumns::default() };
    assert_eq!(
        error(of_kind("postcard")),
        "column `kind`: unknown kind of message `postcard`; run a newer build"
    );
    assert_eq!(error(of_kind("cancel")), "column `body`: it is missing");
    assert_eq!(error(of_kind("refused")), "column `op`: it is missing");
    let ended =
        MessageColumns { op: Some(OpNumber(1)), outcome: Some("waiting".into()), ..of_kind("child_ended") };
    assert_eq!(error(ended), "column `outcome`: `waiting` is not the status of a run that has ended");
    let bytes = Some(ColumnValue::Bytes(b"x"[..].into()));
    assert_eq!(
        error(MessageColumns { body: bytes, ..of_kind("pause") }),
        "column `body`: it contains bytes instead of a text"
    );
    let headers = Some("not JSON".into());
    assert!(error(MessageColumns { headers, ..of_kind("resume") }).starts_with("column `headers`: "));
}
