//! Hooks: which open hook takes a payload, and which payloads are kept or rejected.
//!
//! Rules 1: the oldest open hook of a name takes the next payload, whether it can read it or not; when none
//! is open, the payload is kept for the next hook that opens.
//!
//! Rules 2: a payload is offered to the open hooks of its name, oldest first, and the first that can read it
//! takes it. If none can, it is rejected: it is discarded, and the waits and their timeouts stay as they are.
//! If none is open, it is kept. A payload is offered when it arrives, when a hook opens while payloads are
//! kept, and when a hook is dropped that had taken one. Each decision is an event: `hook_received` has the
//! one at arrival, `hook_taken` and `hook_rejected` have the later ones. A replay applies these events and
//! never decides again, so that another build cannot decide otherwise.
//!
//! Reading a payload runs code of the user (`Deserialize`). It runs here, between two polls of the workflow
//! and without the lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::limits::HOOK_BUFFER_MAX;
use outlast_core::{
    Codec, Event, Headers, Judgement, MessageId, OpNumber, Payload, PayloadError, Stuck, StuckReason,
    Timestamp,
};
use serde::de::DeserializeOwned;

use super::cell::{Cell, Op, OpKind, Phase};
use super::machine::{Machine, panicked, stuck};

/// How much of the reason for a rejection is recorded: it may quote the payload.
const REASON_CHARS_MAX: usize = 500;

/// Whether a stored payload can be read as the type that a hook has.
pub(crate) type CanRead = fn(&Payload, &dyn Codec) -> Result<(), PayloadError>;

/// Whether a stored payload can be read as a `T`.
pub(crate) fn can_read<T: DeserializeOwned>(stored: &Payload, codec: &dyn Codec) -> Result<(), PayloadError> {
    codec.decode(stored.clone())?.decode::<T>().map(drop)
}

/// How a payload came to the run.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// How many payloads had arrived before it.
    before: u64,
    pub(crate) message: MessageId,
    /// When the world accepted the message; under rules 1, when the run was told.
    pub(crate) at: Timestamp,
    /// What the sender gave it; nothing under rules 1.
    pub(crate) headers: Headers,
}

/// A payload that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) arrival: Arrival,
    pub(super) payload: Payload,
}

/// The hooks of a run that are open, and the payloads that nobody has taken.
#[derive(Default)]
pub(super) struct Hooks {
    /// Payloads that are kept, by the hook's name, in the order of their arrival.
    kept: BTreeMap<Arc<str>, VecDeque<Arrived>>,
    /// How many payloads are kept for all names.
    kept_count: usize,
    /// How many payloads have arrived.
    arrived: u64,
    open: BTreeMap<Arc<str>, BTreeSet<OpNumber>>,
    /// Names for which a hook opened, or a payload was given back, since the engine last looked.
    changed: BTreeSet<Arc<str>>,
}

impl Hooks {
    /// A hook is not open any more.
    pub(super) fn closed(&mut self, op: OpNumber, name: &Arc<str>) {
        if let Some(open) = self.open.get_mut(name) {
            open.remove(&op);
        }
    }

    /// A replay has applied what was decided: nothing is left to decide.
    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    fn first_open(&self, name: &Arc<str>) -> Option<OpNumber> {
        self.open.get(name)?.first().copied()
    }

    /// Keeps a payload in its place: what arrived first is taken first.
    fn keep(&mut self, name: &Arc<str>, arrived: Arrived) {
        let kept = self.kept.entry(name.clone()).or_default();
        let place = kept.partition_point(|other| other.arrival.before < arrived.arrival.before);
        kept.insert(place, arrived);
        self.kept_count += 1;
    }

    /// Takes the payload that a message brought out of those that are kept.
    fn unkeep(&mut self, name: &Arc<str>, message: MessageId) -> Option<Arrived> {
        let kept = self.kept.get_mut(name)?;
        let place = kept.iter().position(|kept| kept.arrival.message == message)?;
        self.kept_count -= 1;
        kept.remove(place)
    }

    /// The oldest payload that is kept though a hook of its name is open.
    fn next_to_offer(&mut self) -> Option<(Arc<str>, Arrived)> {
        loop {
            let name = self.changed.first()?.clone();
            let oldest = self.kept.get(&name).and_then(VecDeque::front);
            match oldest.filter(|_| self.first_open(&name).is_some()) {
                Some(oldest) => return Some((name, oldest.clone())),
                None => drop(self.changed.pop_first()),
            }
        }
    }

    /// Adds the payloads that are kept to a summary.
    pub(super) fn summarize(&self, text: &mut String) {
        for (name, kept) in self.kept.iter().filter(|(_, kept)| !kept.is_empty()) {
            let payloads: Vec<_> = kept.iter().map(|kept| &kept.payload).collect();
            let _ = writeln!(text, "buffer {name}: {payloads:?}");
        }
    }
}

/// What became of a payload that arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reception {
    /// A hook has it, or it is kept.
    Done,
    /// It was rejected: nothing changed for the workflow.
    Rejected,
    /// The run keeps too many already.
    Overflow,
    /// The hook that took it is not open.
    Unknown,
}

impl Cell {
    /// A hook opened. Under rules 1 it has the next payload that is kept at once.
    pub(super) fn opened(&mut self, op: OpNumber, name: &Arc<str>) {
        self.hooks.open.entry(name.clone()).or_default().insert(op);
        if self.rules >= 2 {
            self.hooks.changed.insert(name.clone());
        } else if let Some(kept) = self.hooks.kept.get_mut(name).and_then(VecDeque::pop_front) {
            self.hooks.kept_count -= 1;
            self.give(op, kept);
        }
    }

    /// A payload arrived for a hook, and this became of it.
    pub(super) fn receive(
        &mut self,
        name: &Arc<str>,
        (message, headers, at): (MessageId, Headers, Option<Timestamp>),
        payload: Payload,
        judgement: &Judgement,
    ) -> Reception {
        let (before, at) = (self.hooks.arrived, at.unwrap_or(self.now));
        self.hooks.arrived += 1;
        let arrived = Arrived { arrival: Arrival { before, message, at, headers }, payload };
        let taker = match judgement {
            _ if self.rules < 2 => self.hooks.first_open(name),
            Judgement::Kept => None,
            Judgement::TakenBy(op) if self.is_open_hook(*op, name) => Some(*op),
            Judgement::TakenBy(_) => return Reception::Unknown,
            Judgement::Rejected(_) => return Reception::Rejected,
        };
        match taker {
            Some(op) => self.give(op, arrived),
            // Since rules 2 the world refuses the send instead, and the run is unharmed.
            None if self.rules < 2 && self.hooks.kept_count >= HOOK_BUFFER_MAX => return Reception::Overflow,
            None => self.hooks.keep(name, arrived),
        }
        Reception::Done
    }

    /// An open hook took a payload that was kept. False when there is no such hook or payload.
    pub(super) fn take_kept(&mut self, op: OpNumber, message: MessageId) -> bool {
        let name = match self.ops.get(op) {
            Some(Op { phase: Phase::Open, kind: OpKind::Hook { name, .. }, .. }) => name.clone(),
            _ => return false,
        };
        let Some(arrived) = self.hooks.unkeep(&name, message) else { return false };
        self.give(op, arrived);
        true
    }

    /// No open hook can read a payload that was kept. False when there is no such payload.
    pub(super) fn reject_kept(&mut self, name: &Arc<str>, message: MessageId) -> bool {
        self.hooks.unkeep(name, message).is_some()
    }

    /// A hook was dropped that had taken a payload and not returned it: it is as if it had not been taken.
    pub(super) fn give_back(&mut self, name: &Arc<str>, arrived: Arrived) {
        match self.hooks.first_open(name) {
            Some(op) if self.rules < 2 => self.give(op, arrived),
            _ => {
                self.hooks.keep(name, arrived);
                if self.rules >= 2 {
                    self.hooks.changed.insert(name.clone());
                }
            }
        }
    }

    /// Ends an open hook with a payload.
    ///
    /// The operation has it from now on, polled or not: an answer given in time does not lose against a
    /// timeout or a cancel because the workflow was looking elsewhere.
    fn give(&mut self, op: OpNumber, Arrived { arrival, payload }: Arrived) {
        if let Some(Op { kind: OpKind::Hook { taken, .. }, .. }) = self.ops.get_mut(op) {
            *taken = Some(Box::new(arrival));
        }
        self.end(op, Ok(payload));
    }

    fn is_open_hook(&self, op: OpNumber, name: &Arc<str>) -> bool {
        self.hooks.open.get(name).is_some_and(|open| open.contains(&op))
    }

    /// The first open hook of a name after another one.
    fn next_open_hook(&self, name: &Arc<str>, after: Option<OpNumber>) -> Option<(OpNumber, CanRead)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let op = *self.hooks.open.get(name)?.range((from, Bound::Unbounded)).next()?;
        match &self.ops.get(op)?.kind {
            OpKind::Hook { can_read, .. } => Some((op, *can_read)),
            _ => None,
        }
    }
}

/// A payload that was sent to a hook, as the worker knows it.
#[derive(Debug)]
pub(crate) struct SentPayload {
    pub(crate) name: Arc<str>,
    pub(crate) message: MessageId,
    pub(crate) payload: Payload,
    /// What the sender gave it.
    pub(crate) headers: Headers,
    /// When the world accepted it.
    pub(crate) at: Timestamp,
}

impl Machine {
    /// The event of a payload that arrives now.
    pub(super) fn received(&self, sent: SentPayload) -> Result<Event, Stuck> {
        let SentPayload { name, message, payload, headers, at } = sent;
        if self.state.rules() < 2 {
            let (headers, at, judgement) = (Headers::new(), None, Judgement::Kept);
            return Ok(Event::HookReceived { name, message, payload, headers, at, judgement });
        }
        let judgement = self.judge(&name, message, &payload)?;
        Ok(Event::HookReceived { name, message, payload, headers, at: Some(at), judgement })
    }

    /// Offers kept payloads to the hooks that have opened since, and adds what came of it. Tells whether the
    /// run was polled.
    pub(super) fn offer_kept(&mut self, events: &mut Vec<Event>) -> Result<bool, Stuck> {
        while self.ended.is_none() {
            let next = self.state.cell.lock().hooks.next_to_offer();
            let Some((name, Arrived { arrival, payload })) = next else { return Ok(false) };
            let message = arrival.message;
            let event = match self.judge(&name, message, &payload)? {
                Judgement::TakenBy(op) => Event::HookTaken { op, message },
                Judgement::Rejected(reason) => Event::HookRejected { name, message, reason },
                Judgement::Kept => return Ok(false),
            };
            events.push(event.clone());
            self.apply(&event, events)?;
            if matches!(event, Event::HookTaken { .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Offers a payload to the open hooks of its name, in order.
    fn judge(&self, name: &Arc<str>, message: MessageId, payload: &Payload) -> Result<Judgement, Stuck> {
        let mut tried: Vec<CanRead> = Vec::new();
        let mut reasons: Vec<String> = Vec::new();
        let mut last = None;
        loop {
            let next = self.state.cell.lock().next_open_hook(name, last);
            let Some((op, can_read)) = next else { break };
            last = Some(op);
            // Many hooks of one name usually have one type.
            if tried.iter().any(|other| std::ptr::fn_addr_eq(*other, can_read)) {
                continue;
            }
            let codec = &**self.state.codec();
            let read = catch_unwind(AssertUnwindSafe(|| can_read(payload, codec)));
            match read.map_err(|panic| panicked(&*panic))? {
                Ok(()) => return Ok(Judgement::TakenBy(op)),
                // The worker lacks a codec: that is no fault of the sender.
                Err(error @ PayloadError::Coded(_)) => {
                    let message = format!("the payload of message {message} for hook `{name}`: {error}");
                    return Err(stuck(StuckReason::Unreadable, message));
                }
                Err(error) => reasons.push(error.to_string()),
            }
            tried.push(can_read);
        }
        if last.is_none() {
            return Ok(Judgement::Kept);
        }
        let reason = reasons.join("; ");
        Ok(Judgement::Rejected(reason.chars().take(REASON_CHARS_MAX).collect()))
    }
}
