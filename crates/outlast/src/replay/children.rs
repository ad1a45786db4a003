//! The children of one run, and what else it asks of others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    ChildStarted, Event, Failure, FailureKind, Headers, MessageBody, NewChild, OpNumber, Parent, ParentEnd,
    Payload, Policy, RunId, Start, StartKey, Tags, Timestamp, TurnId, Wait,
};

use super::cell::{Cell, Op, OpKind, Phase};
use super::delivery::run_payload;

/// A child that was asked for.
pub(super) struct ChildOp {
    pub(super) workflow: Arc<str>,
    pub(super) version: u32,
    pub(super) queue: Arc<str>,
    pub(super) priority: u8,
    pub(super) run: RunId,
    /// `None` while the history is known to have it.
    pub(super) input: Option<Result<Payload, Failure>>,
    /// The digest of the plain input.
    pub(super) digest: u128,
    pub(super) key: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) timeout_at: Option<Timestamp>,
    pub(super) on_parent_end: ParentEnd,
    /// Whether nobody awaits its end.
    pub(super) is_detached: bool,
}

/// A child that was started, awaited or not, and has not ended.
#[derive(Clone)]
pub(super) struct OpenChild {
    pub(super) run: RunId,
    pub(super) workflow: Arc<str>,
    pub(super) on_parent_end: ParentEnd,
    /// Whether it is a queued step.
    pub(super) is_step: bool,
    /// Whether a cancel of the run is not passed on to it.
    pub(super) is_shielded: bool,
}

impl fmt::Debug for OpenChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, workflow, on_parent_end, is_step, is_shielded } = self;
        let mut fields = f.debug_struct("OpenChild");
        fields.field("run", run).field("workflow", workflow);
        fields.field("on_parent_end", on_parent_end).field("is_step", is_step);
        // Summaries of runs with rules 1, which have no shields, stay as they were.
        if *is_shielded {
            fields.field("is_shielded", is_shielded);
        }
        fields.finish()
    }
}

/// A child to start with the next commit.
pub(super) struct WishedChild {
    pub(super) started: ChildStarted,
    pub(super) key: Option<StartKey>,
    pub(super) awaits: bool,
    /// How the step is attempted, when it is a queued one and that is not as usual.
    pub(super) policy: Option<Box<Policy>>,
}

/// What a turn asks of others.
#[derive(Default)]
pub(super) struct Wishes {
    pub(super) children: Vec<WishedChild>,
    pub(super) messages: Vec<(RunId, MessageBody)>,
    /// How many of the messages are older than the last delivery. A replay up to that delivery does not ask for
    /// them again.
    pub(super) settled_messages: usize,
    pub(super) tags: Tags,
}

impl WishedChild {
    /// The start of the child of a run.
    pub(super) fn start(self, run: RunId, root: RunId, headers: &Headers) -> NewChild {
        let Self { started: child, key, awaits, policy } = self;
        let wants_answer = !awaits && key.is_some();
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
            headers: headers.clone(),
            tags: Tags::new(),
            parent: Some(Parent { run, op: child.op, root, awaits }),
            not_before: None,
            deadline: None,
            policy,
        };
        NewChild { start, wants_answer }
    }
}

impl ChildOp {
    pub(super) fn timeout_failure(&self) -> Failure {
        let Self { workflow, run, .. } = self;
        let message = format!("child `{workflow}` ({run}) did not end in time; it was told to stop");
        Failure::new(FailureKind::Timeout, message)
    }
}

impl Cell {
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
                self.refused.push((op, failure.clone()));
                Payload::null()
            }
            None => Payload::null(),
        };
        let is_refused = matches!(child.input, Some(Err(_)));
        let started = ChildStarted {
            op,
            run: child.run,
            workflow: child.workflow.clone(),
            version: child.version,
            queue: child.queue.clone(),
            priority: child.priority,
            key: child.key.clone(),
            input,
            timeout_at: child.timeout_at,
            on_parent_end: child.on_parent_end,
            is_detached: child.is_detached,
        };
        let (is_detached, digest) = (child.is_detached, child.digest);
        let key = child.key.clone().map(|text| StartKey { text, digest, window: None });
        let ends_at_once = is_detached && key.is_none() && !is_refused;
        if !is_detached {
            let (run, workflow) = (started.run, started.workflow.clone());
            let on_parent_end = started.on_parent_end;
            let open = OpenChild { run, workflow, on_parent_end, is_step: false, is_shielded };
            self.children.insert(op, open);
        }
        if !is_refused && !self.is_known(op) {
            let (started, awaits) = (started.clone(), !is_detached);
            let wished = WishedChild { started, key, awaits, policy: None };
            self.wishes().children.push(wished);
        }
        if ends_at_once {
            self.end(op, Ok(run_payload(started.run)));
        }
        Some(Event::ChildStarted(Box::new(started)))
    }

    /// Takes over what history has of a child: it is the truth, whatever the code says today.
    pub(super) fn adopt_child(&mut self, recorded: &ChildStarted) {
        let op = recorded.op;
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

    /// A delivery follows what was asked of others so far.
    pub(super) fn settle_wishes(&mut self) {
        if let Some(wishes) = &mut self.wishes {
            wishes.settled_messages = wishes.messages.len();
        }
    }

    pub(super) fn wishes(&mut self) -> &mut Wishes {
        self.wishes.get_or_insert_default()
    }

    /// A child has ended, or was not started: whoever awaits it learns how.
    pub(super) fn end_child(&mut self, op: OpNumber, outcome: Result<Payload, Failure>) -> bool {
        let is_known = self.children.remove(&op).is_some();
        let is_awaited = self.is_child(op) && self.end(op, outcome);
        is_known || is_awaited
    }

    /// Tells the children with one of these policies to stop.
    pub(super) fn cancel_children(&mut self, reason: &str, policies: &[ParentEnd]) {
        self.cancel_some_children(reason, |child| policies.contains(&child.on_parent_end));
    }

    /// The same, for those that are not shielded.
    pub(super) fn cancel_unshielded_children(&mut self, reason: &str, policies: &[ParentEnd]) {
        self.cancel_some_children(reason, |child| {
            !child.is_shielded && policies.contains(&child.on_parent_end)
        });
    }

    fn cancel_some_children(&mut self, reason: &str, is_told: impl Fn(&OpenChild) -> bool) {
        if self.is_replaying() || self.inert {
            return;
        }
        let told = self.children.values().filter(|child| !child.is_step && is_told(child));
        let runs: Vec<_> = told.map(|child| child.run).collect();
        for run in runs {
            self.cancel_child(run, reason.into());
        }
    }

    pub(super) fn cancel_child(&mut self, run: RunId, reason: String) {
        if !self.is_replaying() {
            self.wishes().messages.push((run, MessageBody::Cancel { reason }));
        }
    }

    /// Whether the run may not end before some of its children.
    pub(super) fn has_awaited_children(&self) -> bool {
        self.children.values().any(|child| child.on_parent_end == ParentEnd::Wait)
    }

    /// The children that keep the run from ending, as waits.
    pub(super) fn awaited_children(&self) -> impl Iterator<Item = Wait> {
        let awaited = self.children.iter().filter(|(_, child)| child.on_parent_end == ParentEnd::Wait);
        awaited.map(|(op, OpenChild { run, workflow, .. })| {
            let (op, run, workflow) = (op.0, *run, workflow.to_string());
            Wait::Child { op, workflow, run, until: None }
        })
    }

    /// Whether an operation asked for a child that has not ended.
    pub(super) fn has_child(&self, op: OpNumber) -> bool {
        self.children.contains_key(&op)
    }

    pub(super) fn is_child(&self, op: OpNumber) -> bool {
        matches!(self.ops.get(op), Some(Op { kind: OpKind::Child(_), .. }))
    }

    /// Sets tags of a run with rules 2: they have neither number nor event. A replay sets them again, and does
    /// not compare them; its row has them already, unless other code wrote it (see
    /// [`Machine::write_tags_again`](super::Machine::write_tags_again)).
    pub(super) fn set_tags_without_event(&mut self, tags: Tags) {
        self.tagged += 1;
        self.tags.extend(tags.clone());
        self.wishes().tags.extend(tags);
    }

    /// Rules 1: sets tags: those of the run, and those that its row is to get.
    pub(super) fn set_tags(&mut self, op: OpNumber, tags: Tags) {
        self.tags.extend(tags.clone());
        if self.known.is_none() {
            self.wishes().tags.extend(tags.clone());
        }
        self.recorded(Event::TagsSet { op, tags });
    }

    /// The timers that are open, and were at a moment: one, or all.
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

    /// A timer is due, or the timeout of a hook or child.
    pub(super) fn fire(&mut self, op: OpNumber) -> bool {
        let outcome = match self.ops.get(op).map(|slot| &slot.kind) {
            Some(OpKind::Step(_)) | None => return false,
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

/// The children of a run that it is not to outlive alone, by operation.
pub(super) type Children = BTreeMap<OpNumber, OpenChild>;
