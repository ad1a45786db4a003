//! The JSON of events of hooks.

use super::{EventError, Fields, Need, Object};
use crate::event::{Event, Judgement, OpNumber};
use crate::message::HookAddress;

/// Writes the fields of an event of a hook.
pub(super) fn write(event: &Event, object: &mut Object<'_>) {
    match event {
        Event::HookOpened { name, timeout_at, of, .. } => {
            object.text("name", name);
            if let Some(of) = of {
                object.number("of", of.0 as i64);
            }
            if let Some(at) = timeout_at {
                object.number("timeout_at", at.as_micros());
            }
        }
        Event::HookReceived { name, message, payload, headers, at, judgement, to } => {
            object.text("name", name);
            if let Some(token) = &to.token {
                object.text("token", token);
            }
            if to.wants_reply {
                object.json("reply", &true);
            }
            object.json("message", message);
            if let Some(at) = at {
                object.number("at", at.as_micros());
            }
            match judgement {
                Judgement::Kept => {}
                Judgement::TakenBy(op) => object.number("taken_by", op.0 as i64),
                Judgement::Rejected(reason) => object.text("rejected", reason),
            }
            if !headers.is_empty() {
                object.json("headers", headers);
            }
            object.payload("payload", payload);
        }
        Event::HookTaken { message, .. } => object.json("message", message),
        Event::HookRejected { name, message, reason } => {
            object.text("name", name);
            object.json("message", message);
            object.text("reason", reason);
        }
        _ => {}
    }
}

/// Reads an event of a hook.
pub(super) fn read(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op);
    Ok(match need.kind {
        "hook_opened" => Event::HookOpened {
            op: op?,
            name: need.field("name", fields.name)?.into(),
            timeout_at: fields.timeout_at,
            of: fields.of.map(OpNumber),
        },
        "hook_received" => Event::HookReceived {
            name: need.field("name", fields.name)?.into(),
            message: need.field("message", fields.message)?,
            payload: need.payload("payload", fields.payload, &fields.codec)?,
            headers: fields.headers.unwrap_or_default(),
            at: fields.at,
            judgement: match (fields.taken_by, fields.rejected) {
                (Some(op), _) => Judgement::TakenBy(OpNumber(op)),
                (None, Some(reason)) => Judgement::Rejected(reason),
                (None, None) => Judgement::Kept,
            },
            to: HookAddress {
                token: fields.token.map(Into::into),
                wants_reply: fields.reply.unwrap_or_default(),
            },
        },
        "hook_taken" => Event::HookTaken { op: op?, message: need.field("message", fields.message)? },
        "hook_rejected" => Event::HookRejected {
            name: need.field("name", fields.name)?.into(),
            message: need.field("message", fields.message)?,
            reason: need.field("reason", fields.reason)?.into_owned(),
        },
        "hook_closed" => Event::HookClosed { op: op? },
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}
