//! Payloads: exactly the bytes that were written.

use outlast_core::{
    Event, Failure, FailureKind, FailureOrigin, Headers, Judgement, MessageBody, OpNumber, Payload, Start,
    Status, Then,
};

use super::Case;
use super::turn_ext::TurnExt;

/// JSON that databases and their drivers often change.
const TEXTS: [&str; 14] = [
    "null",
    "0",
    "\"\"",
    "false",
    "-0.0",
    "1e400",
    "[]",
    "{}",
    "\"a\\u0000b\"",
    "\"2026-02-30T25:00:00Z\"",
    "{\"b\":1,\"a\":2,\"CamelCase\":3,\"a\":4}",
    "[ 1 ,2 ]",
    "\"\\ud83d\\ude00 '\\\" \\\\ %s ? $1 --\"",
    "123456789012345678901234567890",
];

/// Payloads of starts, messages and events are read back byte for byte.
pub async fn awkward_json_survives_exactly(case: Case) {
    for text in TEXTS {
        survives(&case, Payload::from_json_text(text)).await;
    }
}

/// The output of a codec is read back byte for byte, with the codec's name.
pub async fn coded_payloads_survive_exactly(case: Case) {
    survives(&case, Payload::coded("aes-256", vec![])).await;
    survives(&case, Payload::coded("aes-256", (0..=255).collect::<Vec<u8>>())).await;
    survives(&case, Payload::coded("é", b"null".to_vec())).await;
}

/// A payload of a megabyte is read back byte for byte.
pub async fn a_large_payload_survives_exactly(case: Case) {
    survives(&case, Payload::json(&"ü\u{0}x".repeat(200_000)).unwrap()).await;
}

/// Sends the payload through every place that stores one.
async fn survives(case: &Case, payload: Payload) {
    let worker = case.join("wf").await;
    let start = Start { input: payload.clone(), ..case.new_start("wf") };
    case.try_start(start.clone()).await.unwrap();
    let mut message = case.new_message(start.run, "");
    message.body = MessageBody::Hook { name: "h".into(), payload: payload.clone(), to: Default::default() };
    case.try_send(message.clone()).await.unwrap();

    let claimed = worker.claim_one().await;
    assert_eq!(claimed.inbox[0].body, message.body);
    let history = claimed.history.clone().whole().unwrap();
    assert_eq!(history[0].events, [start.event()]);
    let mut turn = case.turn(&claimed).then(Then::End(Status::Completed));
    turn.events = vec![
        Event::HookReceived {
            name: "h".into(),
            message: message.id,
            payload: payload.clone(),
            headers: [("user".to_owned(), "ada".to_owned())].into(),
            at: Some(claimed.inbox[0].at),
            judgement: Judgement::TakenBy(OpNumber(0)),
            to: Default::default(),
        },
        Event::StepCompleted { op: OpNumber(0), output: payload.clone() },
        Event::RunCompleted { output: payload.clone() },
    ];
    worker.commit_done(turn.clone()).await;
    let history = case.world.history(start.run, 1, 10).await.unwrap();
    assert_eq!(history[0].events, turn.events);
    let ended = case.world.ended(start.run, outlast_core::Timestamp::NEVER).await.unwrap().unwrap();
    assert_eq!(ended.outcome, outlast_core::Outcome::Completed(payload));
    worker.leave().await;
}

/// The headers of a start are in its first event.
pub async fn headers_of_a_start_survive(case: Case) {
    let headers: Headers = [("user".to_string(), "ä\u{0}\"".to_string()), ("empty".into(), "".into())].into();
    let start = Start { headers, ..case.new_start("wf") };
    case.try_start(start.clone()).await.unwrap();
    let history = case.world.history(start.run, 0, 10).await.unwrap();
    assert_eq!(history[0].events, [start.event()]);
}

/// A failure is read back with all its fields.
pub async fn failures_survive_exactly(case: Case) {
    let worker = case.join("wf").await;
    let run = case.start("wf").await;
    let mut failure = Failure::new(FailureKind::Fatal, "no \u{0} money").of_step("charge", 3);
    failure.details =
        Some(Box::new(Payload::from_json_text("{\"code\":402,\"nothing\":null}").decode().unwrap()));
    failure.causes = ["the bank said no".into(), "\u{0}".into()].into();
    let mut origin = FailureOrigin::default();
    (origin.type_name, origin.backtrace) = (Some("bank::Refused".into()), Some("0: pay\n1: \u{0}".into()));
    failure.origin = Some(Box::new(origin));
    let mut turn = case.turn(&worker.claim_one().await).then(Then::End(Status::Failed));
    turn.events = vec![Event::RunFailed { failure: failure.clone() }];
    worker.commit_done(turn).await;
    let ended = case.world.ended(run, outlast_core::Timestamp::NEVER).await.unwrap().unwrap();
    assert_eq!(ended.outcome, outlast_core::Outcome::Failed(failure));
}
