//! From views of the library to JSON.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use outlast::{Client, Explanation};
use outlast_core::{Payload, RunFailure, RunView, Timestamp, Wait, without_secrets};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::explanation::ExplanationJson;
use crate::failure::name_of;
use crate::payload::{PAYLOAD_PREVIEW_BYTES, PayloadAmount, PayloadJson};
use crate::problem::{Problem, ProblemCode};
use crate::rfc3339::Rfc3339;
use crate::run::{InboxJson, ParentJson, RunFailureJson, RunJson, StuckJson, WaitJson};

pub(super) fn run(view: &RunView) -> RunJson {
    RunJson {
        id: view.id,
        workflow: view.workflow.to_string(),
        version: view.version,
        queue: view.queue.to_string(),
        priority: view.priority,
        key: view.key.clone(),
        status: view.status.as_str().into(),
        marks: view.marks.names().map(Into::into).collect(),
        flags: view.flags().map(Into::into).collect(),
        created_at: view.created_at.into(),
        updated_at: view.updated_at.into(),
        ended_at: view.ended_at.map(Into::into),
        wake_at: view.wake_at.filter(|at| *at != Timestamp::NEVER).map(Into::into),
        deadline: view.deadline.map(Into::into),
        waits: view.waits.iter().map(wait).collect(),
        stuck: view.stuck.as_ref().map(|stuck| StuckJson {
            reason: name_of(&stuck.reason),
            message: stuck.message.clone(),
            build: stuck.build.clone(),
        }),
        failure: view.failure.as_deref().map(failure),
        parent: view.parent.map(|of| ParentJson { run: of.run, op: of.op.0, root: of.root }),
        restarted_from: view.restarted_from(),
        forked_from: view.forked_from(),
        tags: view.tags.clone(),
        owner: view.owner,
        inbox: InboxJson { sent: view.sent, read: view.consumed, kept: view.kept },
        crashes: view.crashes,
        failed_builds: view.failed_builds.builds().iter().map(ToString::to_string).collect(),
        generation: view.generation,
        is_queued_step: view.is_queued_step(),
    }
}

fn failure(failure: &RunFailure) -> RunFailureJson {
    RunFailureJson {
        kind: name_of(&failure.kind),
        code: failure.code.as_deref().map(Into::into),
        step: failure.step.as_deref().map(Into::into),
        message: failure.message.to_string(),
        fingerprint: format!("{:016x}", failure.fingerprint),
    }
}

fn wait(wait: &Wait) -> WaitJson {
    let (on, name, queue, run) = match wait {
        Wait::Timer { .. } => ("timer", None, None, None),
        Wait::Hook { name, .. } => ("hook", Some(name), None, None),
        Wait::Child { workflow, run, .. } => ("child", Some(workflow), None, Some(*run)),
        Wait::Step { name, queue, run, .. } => ("step", Some(name), Some(queue), Some(*run)),
        Wait::Retry { name, .. } => ("retry", Some(name), None, None),
        _ => ("other", None, None, None),
    };
    let until = wait.until().map(Into::into);
    WaitJson { on: on.into(), op: wait.op().0, name: name.cloned(), queue: queue.cloned(), run, until }
}

/// A stored payload, as much of it as is wanted, without secrets. A value that the client's codec cannot decode stays sealed.
pub(super) fn payload(client: &Client, stored: &Payload, amount: PayloadAmount) -> PayloadJson {
    match client.decode(stored.clone()) {
        Ok(plain) if plain.codec().is_none() => plain_payload(&plain, amount),
        _ => sealed_payload(stored, amount),
    }
}

fn plain_payload(plain: &Payload, amount: PayloadAmount) -> PayloadJson {
    let text = String::from_utf8_lossy(plain.bytes());
    let text = without_secrets(&text);
    let mut shown = PayloadJson {
        codec: "json".into(),
        bytes: plain.bytes().len() as u64,
        json: None,
        base64: None,
        preview: None,
        omitted: true,
    };
    match amount {
        PayloadAmount::None => {}
        PayloadAmount::Preview if text.len() > PAYLOAD_PREVIEW_BYTES => {
            let end = (0..=PAYLOAD_PREVIEW_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            shown.preview = Some(text[..end].to_owned());
        }
        PayloadAmount::Preview | PayloadAmount::Full => {
            shown.json = RawValue::from_string(text.into_owned()).ok();
            shown.omitted = shown.json.is_none();
        }
    }
    shown
}

fn sealed_payload(stored: &Payload, amount: PayloadAmount) -> PayloadJson {
    let is_shown = amount == PayloadAmount::Full;
    PayloadJson {
        codec: stored.codec().unwrap_or("json").into(),
        bytes: stored.bytes().len() as u64,
        json: None,
        base64: is_shown.then(|| STANDARD.encode(stored.bytes())),
        preview: None,
        omitted: !is_shown,
    }
}

/// A JSON value as it may be shown: without secrets.
pub(super) fn shown_json(json: Box<RawValue>) -> Box<RawValue> {
    match without_secrets(json.get()) {
        Cow::Borrowed(_) => json,
        Cow::Owned(shown) => RawValue::from_string(shown).unwrap_or_else(|_| RawValue::NULL.to_owned()),
    }
}

/// The fields of explanations that are times.
const TIMES: [&str; 7] = ["at", "deadline", "expired_at", "overdue_at", "retry_at", "since", "until"];

pub(super) fn explanation(
    explanation: &Explanation,
    hides_payloads: bool,
) -> Result<ExplanationJson, Problem> {
    let written = serde_json::to_string(explanation).and_then(|text| {
        let mut value = serde_json::from_str(&without_secrets(&text))?;
        write_times(&mut value, hides_payloads);
        serde_json::from_value(value)
    });
    written.map_err(|error| {
        tracing::error!(%error, "an explanation cannot be written");
        Problem::new(
            ProblemCode::Internal,
            "the explanation cannot be written; the log of the server says why",
        )
    })
}

/// Replaces microseconds by RFC 3339, except in details, which belong to the program. They are payloads.
fn write_times(value: &mut Value, hides_payloads: bool) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().for_each(|element| write_times(element, hides_payloads))
        }
        Value::Object(fields) => {
            if hides_payloads {
                fields.remove("details");
            }
            for (name, field) in fields.iter_mut().filter(|(name, _)| *name != "details") {
                match field.as_i64().filter(|_| TIMES.contains(&name.as_str())) {
                    Some(micros) => *field = Rfc3339(Timestamp::from_micros(micros)).to_string().into(),
                    None => write_times(field, hides_payloads),
                }
            }
        }
        _ => {}
    }
}
