//! The JSON of the event with which a generation of a run begins.

use super::{EventError, Fields, Need, Object, read_run_started, write_start};
use crate::cut::RunContinued;
use crate::event::OpNumber;

pub(super) fn write(continued: &RunContinued, object: &mut Object<'_>) {
    let RunContinued {
        skips_from,
        generation,
        next_op,
        started,
        children,
        kept,
        failed_tries,
        previous,
        tokens,
    } = continued;
    object.number("skips_from", *skips_from as i64);
    object.number("generation", *generation as i64);
    object.number("next_op", next_op.0 as i64);
    object.text("workflow", &started.workflow);
    object.number("version", i64::from(started.version));
    write_start(started, object);
    if !children.is_empty() {
        object.json("children", children);
    }
    if !kept.is_empty() {
        object.json("kept", kept);
    }
    if *failed_tries > 0 {
        object.number("failed_tries", i64::from(*failed_tries));
    }
    if !previous.is_empty() {
        object.json("previous", previous);
    }
    if !tokens.is_empty() {
        object.json("tokens", tokens);
    }
}

pub(super) fn read(mut fields: Fields<'_>, need: &Need<'_>) -> Result<RunContinued, EventError> {
    Ok(RunContinued {
        skips_from: need.field("skips_from", fields.skips_from)?,
        generation: need.field("generation", fields.generation)?,
        next_op: OpNumber(need.field("next_op", fields.next_op)?),
        children: fields.children.take().unwrap_or_default(),
        kept: fields.kept.take().unwrap_or_default(),
        failed_tries: fields.failed_tries.unwrap_or_default(),
        previous: fields.previous.take().unwrap_or_default(),
        tokens: fields.tokens.take().unwrap_or_default(),
        started: read_run_started(fields, need)?,
    })
}
