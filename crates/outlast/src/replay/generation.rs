//! Generations: a workflow that continues with another input, without the history of its past.
//!
//! The workflow returns the error of `ctx.continue_as`. Its open operations are dropped, then `run_continued` records
//! everything that outlives the generation, and the workflow is called again with the next input. All of this, and the
//! first poll of the new generation, is one turn. A replay begins with the last `run_continued`, so it never continues a
//! run itself: code that does is diverged.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::limits::POLLS_PER_DELIVERY_MAX;
use outlast_core::{Event, Failure, OpNumber, Payload, RunContinued, RunStarted, Stuck, StuckReason};

use super::code::{InputError, ReplayCode, WorkflowFuture};
use super::machine::{Machine, panicked, stuck};
use super::misuse::misused;
use super::operation_table::OperationTable;
use super::polling;
use super::state::RunState;
use crate::error::{Error, NextInput, stuck_on_unreadable};

impl Machine {
    /// The generation of the run, from 1.
    pub(crate) fn generation(&self) -> u64 {
        self.state.generation()
    }

    /// Handles the result of the workflow. Returns whether a new generation has begun, which must be polled.
    pub(super) fn returned(
        &mut self,
        result: Result<Payload, Error>,
        requested: &mut Vec<Event>,
    ) -> Result<bool, Stuck> {
        let Some(result) = self.withhold(result) else {
            self.take_withheld_decisions(requested);
            return Ok(false);
        };
        match self.next_input(result) {
            Ok(next) => self.continue_as(next, requested),
            Err(result) => {
                self.workflow_returned(result, requested);
                Ok(false)
            }
        }
    }

    /// The input of the next generation, if the workflow continues with one; otherwise its result. A run that was
    /// cancelled ends instead, and one whose compensations are not settled fails.
    fn next_input(&self, mut result: Result<Payload, Error>) -> Result<NextInput, Result<Payload, Error>> {
        let Some(input) = result.as_mut().err().and_then(Error::take_next_input) else { return Err(result) };
        let table = self.state.table.lock();
        if table.cancelled_at.is_none() {
            return if table.has_unsettled_compensations() { Err(Err(unsettled())) } else { Ok(input) };
        }
        let reason = table.cancel_reason().unwrap_or("the run was cancelled");
        Err(Err(Error::of_failure(Failure::cancelled(reason))))
    }

    /// Begins the next generation, and appends the events that end this one. Returns whether it has begun: a replay only
    /// appends the event, which does not match its history.
    fn continue_as(&mut self, next: NextInput, requested: &mut Vec<Event>) -> Result<bool, Stuck> {
        let is_replay = self.state.table.lock().history.is_some();
        if is_replay {
            self.state.table.lock().take_final_decisions(requested);
            requested.push(Event::RunContinued(Box::new(self.end_generation(next))));
            return Ok(false);
        }
        self.state.table.lock().keep_tokens();
        self.drop_operations(requested);
        self.next_generation(next, 0, requested)?;
        Ok(true)
    }

    /// Begins the next generation, without polling it, and appends its event. The same input has failed `failed_tries`
    /// times before.
    pub(super) fn next_generation(
        &mut self,
        next: NextInput,
        failed_tries: u32,
        requested: &mut Vec<Event>,
    ) -> Result<(), Stuck> {
        let mut continued = RunContinued { failed_tries, ..self.end_generation(next) };
        let mut old = self.state.table.lock();
        let kept = old.hooks.take_kept_payloads();
        continued.kept = kept.iter().map(|(_, payload)| payload.place()).collect();
        let (now, place, pending_outbox) = (old.now, old.place, old.pending_outbox.take());
        drop(old);
        self.state.close();
        let state = RunState::new(self.state.run(), &continued, self.state.codec().clone(), now);
        let mut table = state.table.lock();
        (table.place, table.begin_turn) = (place, place.turn);
        table.hooks.carry(kept);
        table.pending_outbox = pending_outbox;
        // A replay, which begins here, does not send them again.
        table.settle_messages();
        drop(table);
        self.begin_generation(Arc::new(state), &continued.started)?;
        requested.push(Event::RunContinued(Box::new(continued)));
        Ok(())
    }

    /// Drops the future and all operations that it leaves behind, and appends the events.
    fn drop_operations(&mut self, requested: &mut Vec<Event>) {
        self.state.waker.enter();
        let state = self.state.clone();
        let _ = polling::workflow(&state, || self.drop_future());
        self.state.waker.leave();
        self.state.waker.take_woken();
        let mut table = self.state.table.lock();
        table.take_decisions(requested);
        // The handles of these operations are not part of the future, and are of no use any more.
        let left: Vec<OpNumber> = table.ops.iter().map(|(op, _)| op).collect();
        let left: Vec<_> = left.into_iter().map(|op| table.drop_operation(op)).collect();
        table.take_decisions(requested);
        let wakers = std::mem::take(&mut table.wakers);
        drop(table);
        // Outside the lock: they may contain values of the user.
        drop((left, wakers));
    }

    /// What outlives the generation, except for payloads.
    fn end_generation(&self, next: NextInput) -> RunContinued {
        let NextInput { input, is_pinned } = next;
        let newest = || self.code.newest_version(self.state.workflow());
        let started = self.state.next_start(input, if is_pinned { None } else { newest() });
        let table = self.state.table.lock();
        RunContinued {
            skips_from: 0,
            generation: self.state.generation() + 1,
            next_op: OpNumber(table.next_op),
            started,
            children: table.carried_children(),
            kept: Vec::new(),
            failed_tries: 0,
            previous: table.previous_generations(self.code.kept_generations()),
            tokens: table.carried_tokens(),
        }
    }

    /// Why a run is stuck that is woken again and again, or continues again and again, without waiting for anything.
    pub(super) fn polled_too_often(&self, generations: usize) -> Stuck {
        if generations <= 1 {
            return self.foreign_await(&format!("it woke itself {POLLS_PER_DELIVERY_MAX} times in a row"));
        }
        let message = format!(
            "run {} has continued as a new generation {generations} times in one turn, and was polled \
             {POLLS_PER_DELIVERY_MAX} times, which is the limit; let each generation await something before it \
             continues",
            self.state.run()
        );
        stuck(StuckReason::Hung, message)
    }
}

impl OperationTable {
    /// The turns with which this and earlier generations began, of which the next generation keeps the last `kept`.
    fn previous_generations(&self, kept: usize) -> Vec<u64> {
        let mut previous = self.previous.clone();
        previous.push(self.begin_turn);
        previous.drain(..previous.len().saturating_sub(kept));
        previous
    }
}

/// Calls the function of the workflow, and returns its future without polling it.
pub(super) fn call_workflow(
    state: &Arc<RunState>,
    started: &RunStarted,
    code: &dyn ReplayCode,
) -> Result<WorkflowFuture, Stuck> {
    let call = AssertUnwindSafe(|| code.call_workflow(state, started, &**state.codec()));
    let (called, misuse) = polling::workflow(state, || catch_unwind(call));
    if let Some(misuse) = misuse {
        return Err(misused(misuse));
    }
    let Some(called) = called.map_err(|panic| panicked(&*panic))? else {
        let RunStarted { workflow, version, .. } = started;
        let message = format!("this worker does not have version {version} of workflow `{workflow}`");
        return Err(stuck(StuckReason::Unreadable, message));
    };
    match called {
        Ok(future) => Ok(future),
        // A missing codec is a problem of the worker: the run must not fail because of it.
        Err(InputError { is_coded, stuck_message, .. }) if is_coded || started.rules >= 2 => {
            Err(stuck_on_unreadable(is_coded, stuck_message))
        }
        Err(InputError { error, .. }) => Ok(Box::pin(std::future::ready(Err(error)))),
    }
}

/// The error of a workflow that continues although its compensations could still be needed.
fn unsettled() -> Error {
    Error::invalid(
        "the run cannot continue as a new generation while compensations are registered; call `ctx.keep()` before \
         `ctx.continue_as(…)` when they are not needed any more",
    )
}
