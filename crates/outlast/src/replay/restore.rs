//! The state of a run from its history alone, without the code of its workflow: for runs that compensate, and for those
//! that end without their code and must compensate first.

use std::sync::Arc;

use outlast_core::cut::is_skipped;
use outlast_core::{
    Codec, Event, OpNumber, Payload, Policy, Queued, ReplayHistory, RunId, Status, Stuck, StuckReason,
    TurnRecord,
};

use super::children::{OpenChild, carried_child};
use super::code::ReplayCode;
use super::machine::{Machine, stuck};
use super::operation_table::{Op, OpKind, OperationTable, Phase, StepOp};
use super::queued::open_child;
use super::saga::compensating_step;
use super::state::{NewStep, RunState};
use super::strategy::{ArrivedEvents, arrived_events};

/// Whether a history records that the run compensates, or is about to begin again.
pub(super) fn is_compensating(history: &[TurnRecord]) -> bool {
    let events = history.iter().rev().flat_map(|turn| turn.events.iter().rev());
    // Turns of earlier generations may be among them, because of payloads that no hook has taken.
    let mut of_generation = events.take_while(|event| !matches!(event, Event::RunContinued(_)));
    of_generation.any(|event| matches!(event, Event::RunCompensating { .. } | Event::RunRetrying(_)))
}

impl Machine {
    /// A machine in the state after a whole history, without the future of the workflow.
    pub(crate) fn restore(
        run: RunId,
        history: Vec<TurnRecord>,
        code: Arc<dyn ReplayCode>,
        codec: &Arc<dyn Codec>,
    ) -> Result<Self, Stuck> {
        let history = ReplayHistory::of(history).map_err(|problem| {
            let message = format!("the history of run {run} cannot be read: {problem}");
            stuck(StuckReason::Unreadable, message)
        })?;
        let state = RunState::new(run, &history.begin, codec.clone(), history.begun_at);
        let mut table = state.table.lock();
        table.compensations = Some(Box::default());
        table.begin_turn = history.turns.first().map_or(0, |turn| turn.seq);
        drop(table);
        let mut machine = Self::without_future(Arc::new(state), code);
        let arrived = arrived_events(&history);
        for turn in &history.turns {
            machine.set_time(turn.at);
            machine.set_first_event(turn.seq);
            let numbered = (turn.seq..).zip(&turn.events);
            for (number, event) in numbered.filter(|(number, _)| !is_skipped(&history.skips, *number)) {
                machine.state.table.lock().place.event = number;
                machine.restore_event(event, &arrived)?;
            }
        }
        // What it would send was sent.
        machine.state.table.lock().pending_outbox = None;
        Ok(machine)
    }

    fn restore_event(&mut self, event: &Event, arrived: &ArrivedEvents) -> Result<(), Stuck> {
        match event {
            Event::RunCompensating { ends_as, failure, .. } => {
                self.begin_compensating(*ends_as, failure.clone());
                return Ok(());
            }
            Event::RunRetrying(retrying) => {
                self.restore_retrying(retrying, arrived);
                return Ok(());
            }
            Event::CancelRequested { reason, .. } if self.is_retrying() => {
                self.cancel_retry(reason);
                return Ok(());
            }
            Event::HookReceived { .. } => self.restore_arrival(event),
            Event::CompensationStarted { op, of, queued } => {
                self.restore_compensation(*op, *of, queued.as_deref())?;
            }
            _ => {}
        }
        let mut table = self.state.table.lock();
        table.note_event(event);
        table.note_number(event);
        table.next_op = table.next_op.max(table.numbered);
        table.restore_event(event);
        drop(table);
        if let Some(status) = Status::of_final(event) {
            self.ended = Some(status);
            if let Some(compensating) = &mut self.compensating {
                compensating.is_done = !matches!(event, Event::RunTerminated { .. });
            }
            self.state.close();
        }
        Ok(())
    }

    fn restore_compensation(
        &mut self,
        op: OpNumber,
        of: OpNumber,
        queued: Option<&Queued>,
    ) -> Result<(), Stuck> {
        let table = self.state.table.lock();
        let ledger = table.compensations.as_ref();
        let compensation = ledger.and_then(|ledger| ledger.compensations.get(of).cloned());
        drop(table);
        let Some(compensation) = compensation else {
            let message = format!("the history has no registration {of} of the compensation that began");
            return Err(stuck(StuckReason::Unreadable, message));
        };
        let input = self.state.compensation_input(&compensation).map_err(|stuck| *stuck)?;
        let step = compensating_step(&compensation, Some(input));
        self.state.table.lock().restore_step(op, step, queued);
        Ok(())
    }
}

impl OperationTable {
    fn restore_event(&mut self, event: &Event) {
        match event {
            Event::RunRetried(retried) => self.reopen(retried),
            Event::RunForked(forked) => self.fork(forked),
            Event::StepStarted { op, name, input, queued, is_transactional, .. } => {
                let mut step = restored_step(name, input);
                step.new.policy.is_transactional = *is_transactional;
                self.restore_step(*op, step, queued.as_deref());
            }
            Event::StepCompleted { op, output } => drop(self.end(*op, Ok(output.clone()))),
            Event::StepFailed { op, failure } => drop(self.end(*op, Err(failure.clone()))),
            Event::StepRetried { op, attempt, retry_at, details, .. } => {
                self.pause(*op, *attempt, *retry_at, details.as_deref());
            }
            Event::StepDropped { op } => {
                if self.is_open(*op) {
                    self.remove_from_indexes(*op);
                }
                self.ops.remove(*op);
            }
            Event::OperationCancelled { op } => {
                if let Some(slot) = self.ops.get_mut(*op) {
                    slot.is_cancelled = true;
                }
            }
            Event::ChildStarted(child) if !child.is_detached => {
                let (run, workflow) = (child.run, child.workflow.clone());
                let (on_parent_end, is_step, is_shielded) = (child.on_parent_end, false, false);
                let open = OpenChild { run, workflow, on_parent_end, is_step, is_shielded };
                self.children.insert(child.op, open);
            }
            Event::ChildCompleted { op, .. }
            | Event::ChildFailed { op, .. }
            | Event::ChildCancelled { op, .. } => drop(self.children.remove(op)),
            Event::CancelRequested { pauses, ends, .. } => {
                self.cancelled_at.get_or_insert(self.next_op);
                for op in pauses.iter().chain(ends) {
                    self.end(*op, Ok(Payload::null()));
                }
            }
            Event::TagsSet { tags, .. } => self.tags.extend(tags.clone()),
            Event::IterationEnded(ended) => {
                if let Some(cut) = &ended.cut {
                    self.tags = cut.tags.clone();
                    self.children = cut.children.iter().map(carried_child).collect();
                }
            }
            _ => {}
        }
    }

    /// Adds a step that was requested and has not ended. Only compensations are attempted.
    fn restore_step(&mut self, op: OpNumber, step: StepOp, queued: Option<&Queued>) {
        let is_compensation = step.compensates.is_some();
        let name = step.new.name.clone();
        self.insert_without_handle(op, step);
        let Some(Op { phase, kind: OpKind::Step(step), is_shielded, .. }) = self.ops.get_mut(op) else {
            return;
        };
        *phase = Phase::Open;
        *is_shielded = is_compensation;
        self.open += 1;
        match queued {
            Some(queued) => {
                step.queued = Some(Box::new(queued.clone()));
                self.children.insert(op, open_child(queued, &name, is_compensation));
            }
            None => {
                self.active += 1;
                if is_compensation {
                    self.startable.push(op);
                }
            }
        }
    }
}

/// A step of the run's own that has not ended.
fn restored_step(name: &Arc<str>, input: &Payload) -> StepOp {
    let new = NewStep { name: name.clone(), was: &[], policy: Policy::DEFAULT, call: None, queue: None };
    StepOp::new(new, Some(Ok(input.clone())))
}
