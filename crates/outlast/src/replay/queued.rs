//! Queued steps: steps that other workers execute, each as a run of its own.
//!
//! For the workflow a queued step is an operation like any other step. Its run is a child that is started with the
//! commit of the request, is terminated when the workflow no longer waits for it, and reports its outcome once.

use outlast_core::queue::{default_queue, workflow_of_step};
use outlast_core::{
    ChildStarted, Event, Failure, FailureKind, MessageBody, OpNumber, ParentEnd, Payload, Policy, Queued,
    Requester, RunId, Wait,
};

use super::children::{OpenChild, PendingChild};
use super::operation_table::{Op, OpKind, OperationTable, Phase, StepOp};
use super::state::NewStep;

pub(crate) use outlast_core::strategy::QUEUED_VERSION;

impl StepOp {
    /// A step that was not requested yet.
    pub(super) fn new(new: NewStep, input: Option<Result<Payload, Failure>>) -> Self {
        Self {
            new,
            input,
            failed: 0,
            details: None,
            retry_at: None,
            paused_until: None,
            attempting: false,
            queued: None,
            compensates: None,
            reopened_by: None,
        }
    }

    /// The event of its request, if it is not queued.
    pub(super) fn started(&self, op: OpNumber, input: Payload, rules: u32) -> Event {
        match self.compensates {
            Some(of) => Event::CompensationStarted { op, of, queued: None },
            None => {
                let (name, policy) = (self.new.name.clone(), &self.new.policy);
                let (is_once, is_transactional) = (records_once(policy, rules), policy.is_transactional);
                Event::StepStarted { op, name, input, queued: None, is_once, is_transactional }
            }
        }
    }

    /// The wait of the step, if it is queued or paused between two attempts.
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

impl OperationTable {
    /// Requests a queued step. Its run is started with the commit.
    pub(super) fn request_queued(&mut self, op: OpNumber, input: Payload) -> Option<Event> {
        let Some(Op { kind: OpKind::Step(step), is_shielded, .. }) = self.ops.get_mut(op) else {
            return None;
        };
        let is_shielded = *is_shielded;
        let (name, policy) = (step.new.name.clone(), step.new.policy);
        let compensates = step.compensates;
        let queue = step.new.queue.clone().or_else(|| policy.queue.map(Into::into));
        if queue.is_none() {
            self.invalid_requests.push((op, without_queue(&name)));
        }
        let queued = Queued {
            run: RunId::of_child(self.run, op.0, self.now, self.rules),
            queue: queue.unwrap_or_else(default_queue),
            priority: policy.priority.unwrap_or(self.priority),
        };
        let is_invalid = self.invalid_requests.iter().any(|(invalid_requests, _)| *invalid_requests == op);
        step.queued = Some(Box::new(queued.clone()));
        self.children.insert(op, open_child(&queued, &name, is_shielded));
        if !is_invalid && !self.is_recorded(op) {
            self.start_queued(child_started(op, &queued, &name, input.clone()), policy);
        }
        let queued = Some(Box::new(queued));
        Some(match compensates {
            Some(of) => Event::CompensationStarted { op, of, queued },
            None => {
                let (is_once, is_transactional) =
                    (records_once(&policy, self.rules), policy.is_transactional);
                Event::StepStarted { op, name, input, queued, is_once, is_transactional }
            }
        })
    }

    /// Starts the run of a queued step with the next commit.
    fn start_queued(&mut self, started: ChildStarted, policy: Policy) {
        let requester = Requester { workflow: self.workflow.clone(), tags: self.tags.clone() };
        let (policy, requester) = (queued_policy(policy), Some(Box::new(requester)));
        let (key, options, ending) = (None, None, None);
        let pending = PendingChild { started, key, awaits: true, policy, requester, options, ending };
        self.pending_outbox().children.push(pending);
    }

    /// Starts the runs of open operations again. If the workflow has cancelled an operation, its new run learns it. These
    /// messages are settled: a replay of the event that starts the runs does not send them again.
    pub(super) fn start_runs_again(&mut self, ops: &[OpNumber]) {
        if ops.is_empty() {
            return;
        }
        let pending_outbox = self.pending_outbox();
        let later = pending_outbox.messages.split_off(pending_outbox.settled_messages);
        for op in ops {
            self.start_again(*op);
            let run = self.children.get(op).map(|child| child.run).filter(|_| self.is_cancelled(*op));
            if let Some(run) = run {
                self.cancel_child(run, "its parent has cancelled it".into());
            }
        }
        self.settle_messages();
        self.pending_outbox().messages.extend(later);
    }

    /// Starts the run of an open operation again, under the id that it has now: with the next commit, without its key,
    /// which may name the earlier run.
    fn start_again(&mut self, op: OpNumber) {
        match self.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(step)) => {
                let Some(queued) = step.queued.as_deref() else { return };
                let input = step.input.clone().and_then(Result::ok).unwrap_or_else(Payload::null);
                let (started, policy) = (child_started(op, queued, &step.new.name, input), step.new.policy);
                self.start_queued(started, policy);
            }
            Some(OpKind::Child(child)) => {
                let (options, ending) = (child.options.clone(), child.ending.clone());
                let (started, key) = (child.started(op), None);
                let pending = PendingChild {
                    started,
                    key,
                    awaits: true,
                    policy: None,
                    requester: None,
                    options,
                    ending,
                };
                self.pending_outbox().children.push(pending);
            }
            _ => {}
        }
    }

    /// Replaces the input and the queue of a step, and whether it is transactional, with what is recorded, which is
    /// authoritative even if the code has changed. Only the queue of a compensation is recorded.
    pub(super) fn apply_recorded_step(
        &mut self,
        op: OpNumber,
        started: Option<(&Payload, bool)>,
        recorded: Option<&Queued>,
    ) {
        let Some(Op { phase, kind: OpKind::Step(step), is_shielded, .. }) = self.ops.get_mut(op) else {
            return;
        };
        if let Some((input, is_transactional)) = started {
            step.input = Some(Ok(input.clone()));
            step.new.policy.is_transactional = is_transactional;
        }
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
            self.children.insert(op, open_child(recorded, &step.new.name, *is_shielded));
        }
    }

    /// Whether an operation is a queued step that has not ended.
    pub(super) fn is_queued(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { phase: Phase::Open, kind: OpKind::Step(step), .. })
            if step.queued.is_some())
    }

    /// The event of a failed queued step. The failure of a step that was never attempted lacks the name of the step.
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

    /// Cancels the queued steps that are not shielded. A step that has not begun ends. A step that is being attempted
    /// receives the cancel, and its outcome is awaited.
    pub(super) fn cancel_queued(&mut self, reason: &str) {
        for run in self.queued_runs(|step| !step.is_shielded) {
            self.cancel_child(run, reason.into());
        }
    }

    /// Terminates all queued steps, because the run has ended.
    pub(super) fn terminate_queued_runs(&mut self, reason: &str) {
        for run in self.queued_runs(|_| true) {
            self.terminate_queued_run(run, reason.into());
        }
    }

    /// Terminates a queued step that the workflow no longer waits for. An attempt in progress is asked to stop.
    pub(super) fn terminate_queued_run(&mut self, run: RunId, reason: String) {
        if !self.is_replaying() {
            self.pending_outbox().messages.push((run, MessageBody::Terminate { reason }));
        }
    }

    fn queued_runs(&self, is_selected: impl Fn(&OpenChild) -> bool) -> Vec<RunId> {
        if self.is_closed {
            return Vec::new();
        }
        let selected = self.children.values().filter(|child| child.is_step && is_selected(child));
        selected.map(|child| child.run).collect()
    }
}

pub(super) fn open_child(queued: &Queued, step: &str, is_shielded: bool) -> OpenChild {
    let (run, workflow) = (queued.run, workflow_of_step(step));
    OpenChild { run, workflow, on_parent_end: ParentEnd::Cancel, is_step: true, is_shielded }
}

fn child_started(op: OpNumber, queued: &Queued, step: &str, input: Payload) -> ChildStarted {
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

/// The part of a policy that is sent with a queued step: retries and timeouts. The worker that attempts the step
/// applies its own limits and threads.
fn queued_policy(mut policy: Policy) -> Option<Box<Policy>> {
    policy.is_blocking = Policy::DEFAULT.is_blocking;
    policy.limit = Policy::DEFAULT.limit;
    policy.queue = Policy::DEFAULT.queue;
    policy.priority = Policy::DEFAULT.priority;
    (policy != Policy::DEFAULT).then(|| Box::new(policy))
}

/// Whether the request of a step records that it is attempted at most once. Runs with rules 1 do not.
fn records_once(policy: &Policy, rules: u32) -> bool {
    rules >= 2 && policy.is_at_most_once
}

fn without_queue(step: &str) -> Failure {
    let message = format!(
        "step `{step}` has a priority but no queue; a priority applies only within a queue: \
         add `.queue(…)`, or remove the priority"
    );
    Failure::new(FailureKind::Invalid, message)
}
