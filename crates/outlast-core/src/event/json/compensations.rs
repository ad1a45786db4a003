//! The JSON of events of compensations, and of tries that failed.

use super::{EventError, Fields, Need, Object, ops, read_queued, write_queued};
use crate::event::{CompensationInput, CompensationRegistered, Event, OpNumber, RunRetrying};

/// Writes the fields of an event of a compensation.
pub(super) fn write(event: &Event, object: &mut Object<'_>) {
    match event {
        Event::CompensationRegistered(registered) => write_registered(registered, object),
        Event::CompensationsKept { of, .. } => object.numbers("ops", of),
        Event::CompensationStarted { of, queued, .. } => {
            object.number("of", of.0 as i64);
            if let Some(queued) = queued {
                write_queued(queued, object);
            }
        }
        Event::RunCompensating { ends_as, failure, actor } => {
            object.text("ends_as", ends_as.as_str());
            object.json("failure", failure);
            object.optional_text("actor", actor.as_deref());
        }
        Event::RunRetrying(retrying) => {
            object.number("attempt", i64::from(retrying.attempt));
            object.json("failure", &retrying.failure);
            object.number("retry_at", retrying.retry_at.as_micros());
            if !retrying.kept.is_empty() {
                object.json("kept", &retrying.kept);
            }
        }
        _ => {}
    }
}

fn write_registered(registered: &CompensationRegistered, object: &mut Object<'_>) {
    object.text("name", &registered.step);
    if let CompensationInput::Undo(op) = &registered.input {
        object.number("of", op.0 as i64);
    }
    if let Some(queue) = &registered.queue {
        object.text("queue", queue);
    }
    if let Some(priority) = registered.priority {
        object.number("priority", i64::from(priority));
    }
    if let Some(policy) = &registered.policy {
        object.json("policy", policy);
    }
    match &registered.input {
        CompensationInput::Undo(_) => {}
        CompensationInput::Value(Ok(input)) => object.payload("input", input),
        CompensationInput::Value(Err(failure)) => object.json("failure", failure),
    }
}

/// Reads the event of a try that failed.
pub(super) fn read_retrying(fields: Fields<'_>, need: &Need<'_>) -> Result<RunRetrying, EventError> {
    Ok(RunRetrying {
        failure: need.field("failure", fields.failure)?,
        attempt: need.field("attempt", fields.attempt)?,
        retry_at: need.field("retry_at", fields.retry_at)?,
        kept: fields.kept.unwrap_or_default(),
    })
}

/// Reads an event of a compensation.
pub(super) fn read_compensation(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op);
    Ok(match need.kind {
        "compensation_registered" => Event::CompensationRegistered(Box::new(CompensationRegistered {
            op: op?,
            step: need.field("name", fields.name)?.into(),
            input: match (fields.of, fields.failure) {
                (Some(of), _) => CompensationInput::Undo(OpNumber(of)),
                (None, Some(failure)) => CompensationInput::Value(Err(failure)),
                (None, None) => {
                    CompensationInput::Value(Ok(need.payload("input", fields.input, &fields.codec)?))
                }
            },
            policy: fields.policy,
            queue: fields.queue.map(Into::into),
            priority: fields.priority,
        })),
        "compensations_kept" => Event::CompensationsKept { op: op?, of: ops(fields.ops) },
        "compensation_started" => Event::CompensationStarted {
            op: op?,
            of: OpNumber(need.field("of", fields.of)?),
            queued: read_queued(fields.run, fields.queue, fields.priority, need)?,
        },
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}
