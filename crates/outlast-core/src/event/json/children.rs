//! The JSON of the events of children.

use super::{EventError, Fields, Need, Object, write_line};
use crate::event::{ChildStarted, Event};
use crate::queue::default_queue;

pub(super) fn write(child: &ChildStarted, object: &mut Object<'_>) {
    object.json("run", &child.run);
    object.text("workflow", &child.workflow);
    object.number("version", i64::from(child.version));
    write_line(&child.queue, child.priority, object);
    if let Some(key) = &child.key {
        object.text("key", key);
    }
    object.payload("input", &child.input);
    if let Some(at) = child.timeout_at {
        object.number("timeout_at", at.as_micros());
    }
    object.text("on_parent_end", child.on_parent_end.as_str());
    if child.is_detached {
        object.json("detached", &true);
    }
}

pub(super) fn read(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op);
    Ok(match need.kind {
        "child_started" => Event::ChildStarted(Box::new(ChildStarted {
            op: op?,
            run: need.field("run", fields.run)?,
            workflow: need.field("workflow", fields.workflow)?.into(),
            version: need.field("version", fields.version)?,
            queue: fields.queue.map_or_else(default_queue, Into::into),
            priority: fields.priority.unwrap_or_default(),
            key: fields.key,
            input: need.payload("input", fields.input, &fields.codec)?,
            timeout_at: fields.timeout_at,
            on_parent_end: need.field("on_parent_end", fields.on_parent_end)?,
            is_detached: fields.detached.unwrap_or_default(),
        })),
        "child_detached" => Event::ChildDetached { op: op?, run: need.field("run", fields.run)? },
        "child_completed" => {
            Event::ChildCompleted { op: op?, output: need.payload("output", fields.output, &fields.codec)? }
        }
        "child_failed" => Event::ChildFailed { op: op?, failure: need.field("failure", fields.failure)? },
        "child_cancelled" => {
            Event::ChildCancelled { op: op?, failure: need.field("failure", fields.failure)? }
        }
        "child_dropped" => Event::ChildDropped { op: op? },
        unknown => return Err(EventError::UnknownKind(unknown.into())),
    })
}
