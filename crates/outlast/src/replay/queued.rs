//! Queued steps: steps that travel to other workers, each as a run of its own.
//!
//! To its parent such a step is an operation like any other step, and its run is a child that nobody else
//! knows of: started with the commit that announces it, told when nobody waits any more, and heard once.

use outlast_core::queue::{default_queue, workflow_of_step};
use outlast_core::{
    ChildStarted, Event, Failure, FailureKind, MessageBody, OpNumber, ParentEnd, Payload, Policy, Queued,
    RunId, Wait,
};

use super::cell::{Cell, Op, OpKind, Phase, StepOp};
use super::children::{OpenChild, WishedChild};

/// The version of the workflows whose runs are queued steps.
pub(crate) const QUEUED_VERSION: u32 = 1;

impl StepOp {
    /// What it waits for, when it does.
    pub(super) fn wait(&self, op: u64) -> Option<Wait> {
        let name = || self.new.name.to_string();
        match (&self.queued, self.retry_at) {
            (Some(queued), _) => {
                Some(Wait::Step { op, name: name(), queue: queued.queue.to_string(), run: queued.run })
            }
            (None, Some(until)) => Some(Wait::Retry { op, name: name(), until }),
            (None, None) => None,
        }
    }
}

impl Cell {
    /// Requests a queued step: a run that is started with the commit.
    pub(super) fn request_queued(&mut self, op: OpNumber, input: Payload) -> Option<Event> {
        let Some(Op { kind: OpKind::Step(step), is_shielded, .. }) = self.ops.get_mut(op) else {
            return None;
        };
        let is_shielded = *is_shielded;
        let (name, policy) = (step.new.name.clone(), step.new.policy);
        let queue = step.new.queue.clone().or_else(|| policy.queue.map(Into::into));
        if queue.is_none() {
            self.refused.push((op, without_queue(&name)));
        }
        let queued = Queued {
            run: RunId::of_child(self.run, op.0, self.now, self.rules),
            queue: queue.unwrap_or_else(default_queue),
            priority: policy.priority.unwrap_or(self.priority),
        };
        let is_refused = self.refused.iter().any(|(refused, _)| *refused == op);
        step.queued = Some(Box::new(queued.clone()));
        self.children.insert(op, open(&queued, &name, is_shielded));
        if !is_refused && !self.is_known(op) {
            let started = started(op, &queued, &name, input.clone());
            let wished = WishedChild { started, key: None, awaits: true, policy: travelling(policy) };
            self.wishes().children.push(wished);
        }
        Some(Event::StepStarted { op, name, input, queued: Some(Box::new(queued)) })
    }

    /// Takes over what history has of a step: whether it was queued and where to, whatever the code says
    /// today.
    pub(super) fn adopt_step(&mut self, op: OpNumber, input: &Payload, recorded: Option<&Queued>) {
        let Some(Op { phase, kind: OpKind::Step(step), is_shielded, .. }) = self.ops.get_mut(op) else {
            return;
        };
        step.input = Some(Ok(input.clone()));
        if step.queued.is_none() && recorded.is_none() || !matches!(phase, Phase::Open) {
            return;
        }
        match (step.queued.take(), recorded) {
            (None, Some(_)) => {
                self.active -= 1;
                self.startable.retain(|startable| *startable != op);
            }
            (Some(_), None) => {
                self.children.remove(&op);
                self.active += 1;
                self.startable.push(op);
            }
            _ => {}
        }
        if let Some(recorded) = recorded {
            step.queued = Some(Box::new(recorded.clone()));
            self.children.insert(op, open(recorded, &step.new.name, *is_shielded));
        }
    }

    /// Whether an operation is a queued step that has not ended.
    pub(super) fn is_queued(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
            if step.queued.is_some())
    }

    /// The failure of a queued step. One that was never attempted does not know which step it is.
    pub(super) fn queued_failed(&self, op: OpNumber, failure: Failure) -> Event {
        let failure = match self.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) if failure.step.is_none() => {
                let attempts = failure.attempts;
                failure.of_step(&*step.new.name, attempts)
            }
            _ => failure,
        };
        Event::StepFailed { op, failure }
    }

    /// Tells the queued steps that are not shielded that the run is to stop. One that has not begun ends; one
    /// that is being attempted is told, and its real outcome is awaited.
    pub(super) fn cancel_queued(&mut self, reason: &str) {
        for run in self.queued_runs(|step| !step.is_shielded) {
            self.cancel_child(run, reason.into());
        }
    }

    /// Nobody waits for the queued steps any more.
    pub(super) fn withdraw_queued(&mut self, reason: &str) {
        for run in self.queued_runs(|_| true) {
            self.withdraw(run, reason.into());
        }
    }

    /// Nobody waits for a queued step any more: it ends, and an attempt that is under way is told.
    pub(super) fn withdraw(&mut self, run: RunId, reason: String) {
        if !self.is_replaying() {
            self.wishes().messages.push((run, MessageBody::Terminate { reason }));
        }
    }

    fn queued_runs(&self, is_meant: impl Fn(&OpenChild) -> bool) -> Vec<RunId> {
        if self.inert {
            return Vec::new();
        }
        let meant = self.children.values().filter(|child| child.is_step && is_meant(child));
        meant.map(|child| child.run).collect()
    }
}

fn open(queued: &Queued, step: &str, is_shielded: bool) -> OpenChild {
    let (run, workflow) = (queued.run, workflow_of_step(step));
    OpenChild { run, workflow, on_parent_end: ParentEnd::Cancel, is_step: true, is_shielded }
}

fn started(op: OpNumber, queued: &Queued, step: &str, input: Payload) -> ChildStarted {
    ChildStarted {
        op,
        run: queued.run,
        workflow: workflow_of_step(step),
        version: QUEUED_VERSION,
        queue: queued.queue.clone(),
        priority: queued.priority,
        key: None,
        input,
        timeout_at: None,
        on_parent_end: ParentEnd::Cancel,
        is_detached: false,
    }
}

/// What travels of a policy: how often and how long. Where and with how many others is for the worker that
/// attempts the step.
fn travelling(policy: Policy) -> Option<Box<Policy>> {
    let Policy { is_blocking, limit, queue, priority, .. } = Policy::DEFAULT;
    let policy = Policy { is_blocking, limit, queue, priority, ..policy };
    (policy != Policy::DEFAULT).then(|| Box::new(policy))
}

fn without_queue(step: &str) -> Failure {
    let message = format!(
        "step `{step}` has a priority and no queue, so that there is no line for it to stand in; \
         add `.queue(…)`, or leave the priority out"
    );
    Failure::new(FailureKind::Invalid, message)
}
