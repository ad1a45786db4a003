//! Forks in which operations get other outcomes: where the earliest of them was recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ForkRefusal, PlannedOutput};
use crate::event::{Event, Judgement, OpNumber, TurnRecord};
use crate::id::MessageId;
use crate::retried::PlannedOperation;
use crate::retried::plan::{EffectiveEvents, apply, ends};
use crate::run::Status;
use crate::view::OperationKind;

/// The cut for other outcomes of operations, and what is known of each, in the order of the recorded outcomes.
pub(super) fn replaced_outcomes(
    history: &[TurnRecord],
    events: u64,
    ops: &[OpNumber],
) -> Result<(u64, Vec<PlannedOutput>), ForkRefusal> {
    let reader = EffectiveEvents::of(history);
    let ops: BTreeSet<_> = ops.iter().copied().collect();
    let mut outputs = Vec::new();
    for op in &ops {
        outputs.push(replaced_outcome(&reader, events, *op)?);
    }
    outputs.sort_by_key(|(output, _)| (output.from, output.op));
    let Some(((first, _), others)) = outputs.split_first() else { return Err(ForkRefusal::Nothing) };
    // A recorded value is replaced where it is.
    let at = if first.kind.is_none() { first.from + 1 } else { first.from };
    for (output, needed) in others {
        if *needed >= at {
            return Err(ForkRefusal::RequestedLater { op: output.op, first: first.op });
        }
    }
    Ok((at, outputs.into_iter().map(|(output, _)| output).collect()))
}

/// Where the outcome of an operation was recorded, or where the run went on without it; and the event that must be before
/// the cut, so that another outcome can arrive.
fn replaced_outcome(
    reader: &EffectiveEvents<'_>,
    events: u64,
    op: OpNumber,
) -> Result<(PlannedOutput, u64), ForkRefusal> {
    let is_request = |(_, event): &&(u64, &Event)| event.is_decision() && event.op() == Some(op);
    let request = reader.events.iter().find(is_request);
    let (requested, request) = request.ok_or(ForkRefusal::NoSuchOperation(op))?;
    let (kind, name) = replaceable(op, request)?;
    let mut output = PlannedOutput { op, kind, name, from: *requested };
    if kind.is_none() {
        return Ok((output, *requested));
    }
    let (mut delivery, mut ended) = (None, None);
    for (number, event) in reader.events.iter().filter(|(number, _)| number > requested) {
        if !event.is_decision() {
            delivery = Some(*number);
        }
        if ends(event, op) || Status::of_final(event).is_some() {
            if let Event::HookTaken { message, .. } = event {
                // The payload arrived before the hook was opened: another one arrives in its place.
                output.from = reader.arrival_of(*message).ok_or(ForkRefusal::NoSuchOperation(op))?;
                return Ok((output, 0));
            }
            ended = delivery.or(Some(*number));
            break;
        }
    }
    output.from = ended.unwrap_or(events);
    if kind == Some(OperationKind::Hook) {
        check_oldest_hook(reader, &output)?;
    }
    Ok((output, *requested))
}

/// The kind and name of an operation whose outcome can be replaced.
fn replaceable(op: OpNumber, request: &Event) -> Result<(Option<OperationKind>, Arc<str>), ForkRefusal> {
    let not = |why| Err(ForkRefusal::NotReplaceable(op, why));
    match request {
        Event::StepStarted { name, .. } => Ok((Some(OperationKind::Step), name.clone())),
        Event::HookOpened { of: Some(_), .. } => not("its hook has a token, which the fork does not hold"),
        Event::HookOpened { name, .. } => Ok((Some(OperationKind::Hook), name.clone())),
        Event::ChildStarted(child) if child.is_detached => {
            not("it started a child that the run does not await")
        }
        Event::ChildStarted(child) => Ok((Some(OperationKind::Child), child.workflow.clone())),
        Event::ValueRecorded { name, .. } => Ok((None, name.clone())),
        Event::TimerStarted { .. } => not("a timer has none; fork before it fires, and wake it"),
        _ => not("it is not a step, hook, child or recorded value"),
    }
}

/// Refuses an outcome of a hook that an older hook of the same name would take.
fn check_oldest_hook(reader: &EffectiveEvents<'_>, output: &PlannedOutput) -> Result<(), ForkRefusal> {
    let mut open = BTreeMap::new();
    let before = reader.events.iter().filter(|(number, _)| *number < output.from);
    before.for_each(|(_, event)| apply(&mut open, event));
    let is_older = |other: &PlannedOperation| {
        other.kind == OperationKind::Hook && other.name == output.name && other.op < output.op
    };
    let why = "an older hook of the same name is open there, and would take it; \
               fork at that event, and send payloads in order";
    match open.values().any(is_older) {
        true => Err(ForkRefusal::NotReplaceable(output.op, why)),
        false => Ok(()),
    }
}

impl EffectiveEvents<'_> {
    /// The event with which a payload arrived that was kept.
    fn arrival_of(&self, message: MessageId) -> Option<u64> {
        self.events.iter().find_map(|(number, event)| match event {
            Event::HookReceived { message: arrived, judgement: Judgement::Kept, .. }
                if *arrived == message =>
            {
                Some(*number)
            }
            _ => None,
        })
    }
}
