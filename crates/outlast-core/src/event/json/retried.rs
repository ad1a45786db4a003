//! The JSON of the events with which a run that had ended is open again, and with which the copied events of a fork end.

use super::{EventError, Fields, Need, Object};
use crate::event::OpNumber;
use crate::forked::RunForked;
use crate::retried::RunRetried;

pub(super) fn write(retried: &RunRetried, object: &mut Object<'_>) {
    let RunRetried { from, reopens, next_op, restarts, renews, adoptable, deadline, message, reason, actor } =
        retried;
    object.number("from", *from as i64);
    object.number("reopens", reopens.0 as i64);
    object.number("next_op", next_op.0 as i64);
    if !restarts.is_empty() {
        object.json("restarts", restarts);
    }
    if !renews.is_empty() {
        object.json("renews", renews);
    }
    if !adoptable.is_empty() {
        object.json("adoptable", adoptable);
    }
    if let Some(deadline) = deadline {
        object.number("deadline", deadline.as_micros());
    }
    object.json("message", message);
    if !reason.is_empty() {
        object.text("reason", reason);
    }
    object.optional_text("actor", actor.as_deref());
}

pub(super) fn read(fields: Fields<'_>, need: &Need<'_>) -> Result<RunRetried, EventError> {
    Ok(RunRetried {
        from: need.field("from", fields.from)?,
        reopens: OpNumber(need.field("reopens", fields.reopens)?),
        next_op: OpNumber(need.field("next_op", fields.next_op)?),
        restarts: fields.restarts.unwrap_or_default(),
        renews: fields.renews.unwrap_or_default(),
        adoptable: fields.adoptable.unwrap_or_default(),
        deadline: fields.deadline,
        message: need.field("message", fields.message)?,
        reason: fields.reason.map(Into::into).unwrap_or_default(),
        actor: fields.actor,
    })
}

pub(super) fn write_forked(forked: &RunForked, object: &mut Object<'_>) {
    let RunForked { of, next_op, restarts, renews } = forked;
    object.json("run", of);
    object.number("next_op", next_op.0 as i64);
    if !restarts.is_empty() {
        object.json("restarts", restarts);
    }
    if !renews.is_empty() {
        object.json("renews", renews);
    }
}

pub(super) fn read_forked(fields: Fields<'_>, need: &Need<'_>) -> Result<RunForked, EventError> {
    Ok(RunForked {
        of: need.field("run", fields.run)?,
        next_op: OpNumber(need.field("next_op", fields.next_op)?),
        restarts: fields.restarts.unwrap_or_default(),
        renews: fields.renews.unwrap_or_default(),
    })
}
