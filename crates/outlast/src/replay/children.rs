//! The children of one run, and the outbox of its turns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    CarriedChild, ChildStarted, EndPlan, Event, Failure, FailureKind, Headers, KeyPolicy, MessageBody,
    NewChild, NewReply, OpNumber, Parent, ParentEnd, Payload, Policy, Requester, RunId, Start, StartKey,
    Tags, Timestamp, TokenChanges, TurnId, Wait, WorkflowWrites,
};

use super::carried::ChildOptions;
use super::delivery::run_payload;
use super::operation_table::{Op, OpKind, OperationTable, Phase};

/// A child that the workflow has created.
pub(super) struct ChildOp {
    pub(super) workflow: Arc<str>,
    pub(super) version: u32,
    pub(super) queue: Arc<str>,
    pub(super) priority: u8,
    pub(super) run: RunId,
    /// The encoded input; `None` while the history is known to contain it.
    pub(super) input: Option<Result<Payload, Failure>>,
    /// The digest of the input before the codec.
    pub(super) digest: u128,
    pub(super) key: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) timeout_at: Option<Timestamp>,
    pub(super) on_parent_end: ParentEnd,
    /// Whether the run does not await its end.
    pub(super) is_detached: bool,
    /// Whether it is cancelled when the workflow drops its operation.
    pub(super) is_cancelled_on_drop: bool,
    /// What is decided about its end.
    pub(super) ending: Option<Box<EndPlan>>,
    /// What the start contains beside that; `None` for most children.
    pub(super) options: Option<Box<ChildOptions>>,
    /// Whether an earlier generation started it, which has recorded that its operation was dropped.
    pub(super) is_carried: bool,
}

/// A child that was started and has not ended; its outcome may be awaited or not.
#[derive(Clone)]
pub(super) struct OpenChild {
    pub(super) run: RunId,
    pub(super) workflow: Arc<str>,
    pub(super) on_parent_end: ParentEnd,
    /// Whether it is a queued step.
    pub(super) is_step: bool,
    /// Whether it is protected from a cancel of the run.
    pub(super) is_shielded: bool,
}

impl fmt::Debug for OpenChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, workflow, on_parent_end, is_step, is_shielded } = self;
        let mut fields = f.debug_struct("OpenChild");
        fields.field("run", run).field("workflow", workflow);
        fields.field("on_parent_end", on_parent_end).field("is_step", is_step);
        // Omitted for runs with rules 1, which have no shields, so that their summaries do not change.
        if *is_shielded {
            fields.field("is_shielded", is_shielded);
        }
        fields.finish()
    }
}

/// A child of an earlier generation, by its operation, which is not open any more.
pub(super) fn carried_child(child: &CarriedChild) -> (OpNumber, OpenChild) {
    let CarriedChild { op, run, workflow, on_parent_end, is_shielded } = child;
    let (workflow, is_step) = (workflow.clone(), false);
    let (run, on_parent_end, is_shielded) = (*run, *on_parent_end, *is_shielded);
    (*op, OpenChild { run, workflow, on_parent_end, is_step, is_shielded })
}

/// A child to start with the next commit.
pub(super) struct PendingChild {
    pub(super) started: ChildStarted,
    pub(super) key: Option<StartKey>,
    pub(super) awaits: bool,
    /// The policy of a queued step, unless it is the default.
    pub(super) policy: Option<Box<Policy>>,
    /// The run that requests a queued step.
    pub(super) requester: Option<Box<Requester>>,
    pub(super) options: Option<Box<ChildOptions>>,
    pub(super) ending: Option<Box<EndPlan>>,
}

/// The outbox of the turn that is being computed.
#[derive(Default)]
pub(super) struct PendingOutbox {
    pub(super) children: Vec<PendingChild>,
    pub(super) messages: Vec<(RunId, MessageBody)>,
    /// The number of messages that were added before the last delivery. A replay up to that delivery does not add them
    /// again.
    pub(super) settled_messages: usize,
    pub(super) tags: Tags,
    pub(super) writes: WorkflowWrites,
    pub(super) tokens: TokenChanges,
    pub(super) replies: Vec<NewReply>,
}

impl PendingChild {
    /// The start of this child of `run`.
    pub(super) fn start(self, run: RunId, root: RunId, headers: &Headers) -> NewChild {
        let Self { started: child, key, awaits, policy, requester, options, ending } = self;
        let ChildOptions { headers, tags, deadline } = match options {
            Some(options) => *options,
            None => ChildOptions { headers: headers.clone(), ..ChildOptions::default() },
        };
        // A detached child with a key may be a run that exists already: the parent must learn its id.
        let notify_parent = !awaits && key.is_some();
        let start = Start {
            run: child.run,
            turn: TurnId::from_bits(child.run.bits()),
            workflow: child.workflow,
            version: child.version,
            rules: outlast_core::event::RULES,
            queue: child.queue,
            priority: child.priority,
            key,
            input: child.input,
            headers,
            tags,
            parent: Some(Parent { run, op: child.op, root, awaits }),
            not_before: None,
            deadline,
            policy,
            requester,
            ending,
        };
        NewChild { start, notify_parent }
    }
}

impl ChildOp {
    /// The event of its request.
    pub(super) fn started(&self, op: OpNumber) -> ChildStarted {
        ChildStarted {
            op,
            run: self.run,
            workflow: self.workflow.clone(),
            version: self.version,
            queue: self.queue.clone(),
            priority: self.priority,
            key: self.key.clone(),
            input: self.input.clone().and_then(Result::ok).unwrap_or_else(Payload::null),
            timeout_at: self.timeout_at,
            on_parent_end: self.on_parent_end,
            is_detached: self.is_detached,
        }
    }

    pub(super) fn timeout_failure(&self) -> Failure {
        let Self { workflow, run, .. } = self;
        let message = format!("child `{workflow}` ({run}) did not end in time; it was told to stop");
        Failure::new(FailureKind::Timeout, message)
    }
}

impl OperationTable {
    /// Requests a child.
    pub(super) fn request_child(&mut self, op: OpNumber) -> Option<Event> {
        let now = self.now;
        let Some(Op { kind: OpKind::Child(child), is_shielded, .. }) = self.ops.get_mut(op) else {
            return None;
        };
        let is_shielded = *is_shielded;
        child.timeout_at = child.timeout.map(|timeout| now.plus(timeout));
        self.due.extend(child.timeout_at.map(|at| (at, op)));
        let input = match &child.input {
            Some(Ok(input)) => input.clone(),
            Some(Err(failure)) => {
                self.invalid_requests.push((op, failure.clone()));
                Payload::null()
            }
            None => Payload::null(),
        };
        let is_invalid = matches!(child.input, Some(Err(_)));
        let mut started = ChildStarted { input, ..child.started(op) };
        let (is_detached, digest, options) = (child.is_detached, child.digest, child.options.clone());
        let ending = child.ending.clone();
        let key =
            child.key.clone().map(|text| StartKey { text, digest, window: None, policy: KeyPolicy::Kept });
        let ends_at_once = is_detached && key.is_none() && !is_invalid;
        let adopted = match &key {
            Some(key) if !is_detached && !is_invalid && self.adoption.is_some() && !self.is_recorded(op) => {
                self.adopt(op, |child| child.is_same(&started.workflow, &key.text, digest))
            }
            _ => None,
        };
        if let Some(run) = adopted {
            started.run = run;
            if let Some(Op { kind: OpKind::Child(child), .. }) = self.ops.get_mut(op) {
                child.run = run;
            }
        }
        if !is_detached {
            let (run, workflow) = (started.run, started.workflow.clone());
            let on_parent_end = started.on_parent_end;
            let open = OpenChild { run, workflow, on_parent_end, is_step: false, is_shielded };
            self.children.insert(op, open);
        }
        if !is_invalid && !self.is_recorded(op) && adopted.is_none() {
            let (started, awaits) = (started.clone(), !is_detached);
            let pending =
                PendingChild { started, key, awaits, policy: None, requester: None, options, ending };
            self.pending_outbox().children.push(pending);
        }
        if ends_at_once {
            self.end(op, Ok(run_payload(started.run)));
        }
        Some(Event::ChildStarted(Box::new(started)))
    }

    /// Replaces the parameters of a child with the recorded ones, which are authoritative even if the code has changed.
    pub(super) fn apply_recorded_child(&mut self, recorded: &ChildStarted) {
        let op = recorded.op;
        if self.adopt(op, |child| child.run == recorded.run).is_some()
            && let Some(child) = self.children.get_mut(&op)
        {
            child.run = recorded.run;
        }
        let Some(slot) = self.ops.get_mut(op) else { return };
        let OpKind::Child(child) = &mut slot.kind else { return };
        child.input = Some(Ok(recorded.input.clone()));
        child.run = recorded.run;
        if let Some(at) = child.timeout_at.take() {
            self.due.remove(&(at, op));
        }
        child.timeout_at = recorded.timeout_at;
        match &mut slot.phase {
            Phase::Open => self.due.extend(recorded.timeout_at.map(|at| (at, op))),
            Phase::Ended(Ok(run)) => *run = run_payload(recorded.run),
            _ => {}
        }
        if let Some(open) = self.children.get_mut(&op) {
            open.run = recorded.run;
            open.on_parent_end = recorded.on_parent_end;
        }
    }

    /// Marks all messages of the outbox as older than the delivery that is applied next.
    pub(super) fn settle_messages(&mut self) {
        if let Some(pending_outbox) = &mut self.pending_outbox {
            pending_outbox.settled_messages = pending_outbox.messages.len();
        }
    }

    /// The outbox of this turn; created when it is first used.
    pub(super) fn pending_outbox(&mut self) -> &mut PendingOutbox {
        self.pending_outbox.get_or_insert_default()
    }

    /// Ends a child, or the operation of a child that could not be started. Returns false when there is no such child.
    pub(super) fn end_child(&mut self, op: OpNumber, outcome: Result<Payload, Failure>) -> bool {
        let is_recorded = self.children.remove(&op).is_some();
        let is_awaited = self.is_child(op) && self.end(op, outcome);
        is_recorded || is_awaited
    }

    /// Cancels the children with one of these policies.
    pub(super) fn cancel_children(&mut self, reason: &str, policies: &[ParentEnd]) {
        self.cancel_some_children(reason, |child| policies.contains(&child.on_parent_end));
    }

    /// Cancels the children with one of these policies that are not shielded.
    pub(super) fn cancel_unshielded_children(&mut self, reason: &str, policies: &[ParentEnd]) {
        self.cancel_some_children(reason, |child| {
            !child.is_shielded && policies.contains(&child.on_parent_end)
        });
    }

    fn cancel_some_children(&mut self, reason: &str, is_selected: impl Fn(&OpenChild) -> bool) {
        if self.is_replaying() || self.is_closed {
            return;
        }
        let selected = self.children.values().filter(|child| !child.is_step && is_selected(child));
        let runs: Vec<_> = selected.map(|child| child.run).collect();
        for run in runs {
            self.cancel_child(run, reason.into());
        }
    }

    /// Sends a cancel to a child; a replay does not send it again.
    pub(super) fn cancel_child(&mut self, run: RunId, reason: String) {
        if !self.is_replaying() {
            self.pending_outbox().messages.push((run, MessageBody::Cancel { reason }));
        }
    }

    /// Whether the run must wait for children before it ends.
    pub(super) fn has_awaited_children(&self) -> bool {
        self.children.values().any(|child| child.on_parent_end == ParentEnd::Wait)
    }

    /// The children that the run waits for before it ends.
    pub(super) fn awaited_children(&self) -> impl Iterator<Item = Wait> {
        let awaited = self.children.iter().filter(|(_, child)| child.on_parent_end == ParentEnd::Wait);
        awaited.map(|(op, OpenChild { run, workflow, .. })| {
            let (op, run, workflow) = (op.0, *run, workflow.to_string());
            Wait::Child { op, workflow, run, until: None }
        })
    }

    /// Whether an operation has a child that has not ended.
    pub(super) fn has_child(&self, op: OpNumber) -> bool {
        self.children.contains_key(&op)
    }

    pub(super) fn is_child(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Child(_), .. }))
    }

    /// Sets tags of a run with rules 2, where tags have neither number nor event. A replay sets them again without
    /// comparing them. The row has them already, unless the code of another build wrote it (see
    /// [`Machine::rewrite_tags`](super::Machine::rewrite_tags)).
    pub(super) fn set_tags_without_event(&mut self, tags: Tags) {
        self.tags_set_count += 1;
        self.tags.extend(tags.clone());
        self.pending_outbox().tags.extend(tags);
    }

    /// Rules 1: sets tags of the run and of its row, with an event.
    pub(super) fn set_tags(&mut self, op: OpNumber, tags: Tags) {
        self.tags.extend(tags.clone());
        if self.history.is_none() {
            self.pending_outbox().tags.extend(tags.clone());
        }
        self.recorded(Event::TagsSet { op, tags });
    }

    /// The children that have not ended, for the next generation.
    pub(super) fn carried_children(&self) -> Vec<CarriedChild> {
        let children = self.children.iter().filter(|(_, child)| !child.is_step);
        let carried = children.map(|(op, child)| CarriedChild {
            op: *op,
            run: child.run,
            workflow: child.workflow.clone(),
            on_parent_end: child.on_parent_end,
            is_shielded: child.is_shielded,
        });
        carried.collect()
    }

    /// The timers that were open at `at` and still are; only one of them if `only` names it.
    pub(super) fn open_timers(&self, only: Option<OpNumber>, at: Timestamp) -> Vec<OpNumber> {
        let open = self.ops.iter().filter(|(op, slot)| {
            only.is_none_or(|only| only == *op)
                && matches!((&slot.phase, &slot.kind), (Phase::Open, OpKind::Timer { started_at, .. }) if *started_at <= at)
        });
        open.map(|(op, _)| op).collect()
    }

    pub(super) fn is_timer(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Timer { .. }, .. }))
    }

    /// Ends a timer that is due, or a hook or child whose timeout is due.
    pub(super) fn fire(&mut self, op: OpNumber) -> bool {
        let outcome = match self.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(_) | OpKind::Token(_)) | None => return false,
            Some(OpKind::Timer { .. }) => Ok(Payload::null()),
            Some(OpKind::Hook { name, .. }) => {
                let message = format!("no payload arrived for hook `{name}` in time");
                Err(Failure::new(FailureKind::Timeout, message))
            }
            Some(OpKind::Child(child)) => {
                let (run, failure) = (child.run, child.timeout_failure());
                self.cancel_child(run, "its parent did not wait longer".into());
                Err(failure)
            }
        };
        self.end(op, outcome)
    }
}

/// The children of a run that have not ended, by operation.
pub(super) type Children = BTreeMap<OpNumber, OpenChild>;
