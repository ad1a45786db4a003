//! The JSON of events of tokens and replies.

use std::time::Duration;

use super::{EventError, Fields, Need, Object};
use crate::event::{Event, TokenRequested};

/// Writes the fields of an event of a token or reply.
pub(super) fn write(event: &Event, object: &mut Object<'_>) {
    match event {
        Event::TokenRequested(requested) => write_requested(requested, object),
        Event::TokenRefused { failure, .. } => object.json("failure", failure),
        Event::ReplySent { message, payload, .. } => {
            object.json("message", message);
            object.payload("payload", payload);
        }
        Event::ReplyDropped { message } => object.json("message", message),
        _ => {}
    }
}

fn write_requested(requested: &TokenRequested, object: &mut Object<'_>) {
    let TokenRequested { op: _, name, token, is_generated, metadata, webhook, keep_for } = requested;
    object.text("name", name);
    object.text("token", token);
    if *is_generated {
        object.json("generated", &true);
    }
    if let Some(keep_for) = keep_for {
        object.number("keep_for_us", i64::try_from(keep_for.as_micros()).unwrap_or(i64::MAX));
    }
    if let Some(webhook) = webhook {
        object.json("webhook", &**webhook);
    }
    if let Some(metadata) = metadata {
        object.payload("value", metadata);
    }
}

/// Reads an event of a token or reply.
pub(super) fn read(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op);
    Ok(match need.kind {
        "token_requested" => Event::TokenRequested(Box::new(TokenRequested {
            op: op?,
            name: need.field("name", fields.name)?.into(),
            token: need.field("token", fields.token)?.into(),
            is_generated: fields.generated.unwrap_or_default(),
            metadata: match fields.value {
                None => None,
                value => Some(need.payload("value", value, &fields.codec)?),
            },
            webhook: fields.webhook.map(Into::into),
            keep_for: fields.keep_for_us.map(Duration::from_micros),
        })),
        "token_taken" => Event::TokenTaken { op: op? },
        "token_refused" => Event::TokenRefused { op: op?, failure: need.field("failure", fields.failure)? },
        "token_closed" => Event::TokenClosed { op: op? },
        "reply_sent" => Event::ReplySent {
            op: op?,
            message: need.field("message", fields.message)?,
            payload: need.payload("payload", fields.payload, &fields.codec)?,
        },
        "reply_dropped" => Event::ReplyDropped { message: need.field("message", fields.message)? },
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}
