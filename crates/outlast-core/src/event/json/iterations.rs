//! The JSON of the events of loops.

use super::{EventError, Fields, Need, Object};
use crate::event::{Event, OpNumber};
use crate::iteration::IterationEnded;

pub(super) fn write(ended: &IterationEnded, object: &mut Object<'_>) {
    let IterationEnded { op: _, of, iteration, state, cut } = ended;
    object.number("of", of.0 as i64);
    object.number("iteration", *iteration as i64);
    match state {
        Ok(state) => object.payload("value", state),
        Err(failure) => object.json("failure", failure),
    }
    if let Some(cut) = cut {
        object.json("cut", cut);
    }
}

pub(super) fn read(fields: Fields<'_>, need: &Need<'_>) -> Result<Event, EventError> {
    let op = need.op(fields.op)?;
    if need.kind == "loop_started" {
        return Ok(Event::LoopStarted { op, name: need.field("name", fields.name)?.into() });
    }
    Ok(Event::IterationEnded(Box::new(IterationEnded {
        op,
        of: OpNumber(need.field("of", fields.of)?),
        iteration: need.field("iteration", fields.iteration)?,
        state: match fields.failure {
            Some(failure) => Err(failure),
            None => Ok(need.payload("value", fields.value, &fields.codec)?),
        },
        cut: fields.cut.map(|cut| *cut),
    })))
}
