//! Hooks: which open hook takes a payload, and which payloads are kept or rejected.
//!
//! Rules 1: the oldest open hook of a name takes the next payload, whether it can decode it or not. When none is open,
//! the payload is kept for the next hook that opens.
//!
//! Rules 2: a payload is offered to the open hooks of its name, oldest first, and the first that can decode it takes
//! it. If none can, the payload is rejected: it is discarded, and the waits and their timeouts do not change. If none
//! is open, it is kept. A payload is offered when it arrives, when a hook opens while payloads are kept, and when a
//! hook is dropped that had taken one. Each decision is recorded: `hook_received` has the decision at arrival,
//! `hook_taken` and `hook_rejected` have later ones. A replay applies these events and does not decide again, so that
//! another build cannot decide differently.
//!
//! Decoding a payload runs code of the user (`Deserialize`). It runs between two polls of the workflow, without the
//! lock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use outlast_core::cut::KeptEvent;
use outlast_core::limits::HOOK_BUFFER_MAX;
use outlast_core::{
    Codec, Event, EventPlace, Headers, HookAddress, Judgement, MessageId, OpNumber, Payload, PayloadError,
    Reply, Stuck, StuckReason, Timestamp,
};
use serde::de::DeserializeOwned;

use super::machine::{Machine, panicked, stuck};
use super::operation_table::{Op, OpKind, OperationTable, Phase};

/// The number of characters that are recorded of the reason for a rejection, which may quote the payload.
const REASON_CHARS_MAX: usize = 500;

/// A function that tests whether a stored payload can be decoded as the type of a hook.
pub(crate) type CanRead = fn(&Payload, &dyn Codec) -> Result<(), PayloadError>;

/// Tests whether a stored payload can be decoded as a `T`.
pub(crate) fn can_read<T: DeserializeOwned>(stored: &Payload, codec: &dyn Codec) -> Result<(), PayloadError> {
    codec.decode(stored.clone())?.decode::<T>().map(drop)
}

/// Which payloads a hook takes: those that are sent to its token, and those that are sent by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HookKey {
    Token(Arc<str>),
    Name(Arc<str>),
}

impl HookKey {
    /// The key of a payload for a hook with this name.
    pub(super) fn of(name: &Arc<str>, to: &HookAddress) -> Self {
        to.token.as_ref().map_or_else(|| Self::Name(name.clone()), |token| Self::Token(token.clone()))
    }

    /// The keys of the payloads that a hook takes.
    fn all(name: &Arc<str>, token: Option<&Arc<str>>) -> impl Iterator<Item = Self> {
        token.cloned().map(Self::Token).into_iter().chain([Self::Name(name.clone())])
    }
}

impl fmt::Display for HookKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Token(token) => write!(f, "token {token}"),
        }
    }
}

/// How a payload arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// The number of payloads that arrived before it.
    before: u64,
    pub(crate) message: MessageId,
    /// When the world accepted the message; under rules 1, the time of the turn that delivered it.
    pub(crate) at: Timestamp,
    /// The headers of the message; empty under rules 1.
    pub(crate) headers: Headers,
    /// The token to which it was sent, and whether its sender waits for a reply.
    pub(crate) to: HookAddress,
    /// Where the history has it.
    place: EventPlace,
}

impl Arrival {
    /// The number of payloads that arrived before it.
    pub(super) fn number(&self) -> u64 {
        self.before
    }

    /// It as text, without its place, which tests do not set.
    pub(super) fn summary(&self) -> String {
        let Self { before, message, at, headers, .. } = self;
        format!("{message} ({before} before it) at {at} with {headers:?}")
    }
}

/// A payload that has arrived.
#[derive(Clone, Debug)]
pub(super) struct ArrivedPayload {
    pub(super) arrival: Arrival,
    pub(super) payload: Payload,
}

/// The open hooks of a run, and the payloads that no hook has taken.
#[derive(Default)]
pub(super) struct Hooks {
    /// The kept payloads by hook name or token, in the order of their arrival.
    kept: BTreeMap<HookKey, VecDeque<ArrivedPayload>>,
    /// The number of all kept payloads.
    pub(super) kept_count: usize,
    /// The number of payloads that have arrived.
    arrived: u64,
    open: BTreeMap<HookKey, BTreeSet<OpNumber>>,
    /// Names and tokens for which a hook opened or a payload was returned, and whose kept payloads must be offered again.
    changed: BTreeSet<HookKey>,
}

impl Hooks {
    /// Removes a hook that is no longer open.
    pub(super) fn hook_closed(&mut self, op: OpNumber, name: &Arc<str>, token: Option<&Arc<str>>) {
        for key in HookKey::all(name, token) {
            if let Some(open) = self.open.get_mut(&key) {
                open.remove(&op);
            }
        }
    }

    /// Clears the names to offer again: a replay applies the recorded decisions instead.
    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    /// The kept payloads with the names or tokens of their hooks, in the order of their arrival.
    pub(super) fn take_kept_payloads(&mut self) -> Vec<(HookKey, ArrivedPayload)> {
        let kept = std::mem::take(&mut self.kept).into_iter();
        let mut kept: Vec<_> =
            kept.flat_map(|(key, kept)| kept.into_iter().map(move |kept| (key.clone(), kept))).collect();
        kept.sort_by_key(|(_, kept)| kept.arrival.before);
        kept
    }

    /// Where the kept payloads are in the history, in the order of their arrival.
    pub(super) fn kept_places(&self) -> Vec<EventPlace> {
        let mut kept: Vec<_> = self.kept.values().flatten().map(|kept| &kept.arrival).collect();
        kept.sort_by_key(|arrival| arrival.before);
        kept.into_iter().map(|arrival| arrival.place).collect()
    }

    /// Keeps the payloads that earlier generations have received, in the order of their arrival.
    pub(super) fn carry(&mut self, kept: Vec<(HookKey, ArrivedPayload)>) {
        for (key, mut payload) in kept {
            payload.arrival.before = self.arrived;
            self.arrived += 1;
            self.keep(&key, payload);
        }
    }

    /// Forgets how many payloads have arrived, and which hooks were open, except that `arrived` payloads have.
    pub(super) fn forget_arrivals(&mut self, arrived: u64) {
        (self.arrived, self.kept_count) = (arrived, 0);
        self.kept.clear();
        self.open.retain(|_, open| !open.is_empty());
    }

    fn first_open(&self, key: &HookKey) -> Option<OpNumber> {
        self.open.get(key)?.first().copied()
    }

    /// Keeps a payload, in the order of arrival.
    fn keep(&mut self, key: &HookKey, arrived: ArrivedPayload) {
        let kept = self.kept.entry(key.clone()).or_default();
        let index = kept.partition_point(|other| other.arrival.before < arrived.arrival.before);
        kept.insert(index, arrived);
        self.kept_count += 1;
    }

    /// Removes the kept payload of a message.
    fn remove_kept(&mut self, key: &HookKey, message: MessageId) -> Option<ArrivedPayload> {
        let kept = self.kept.get_mut(key)?;
        let index = kept.iter().position(|kept| kept.arrival.message == message)?;
        self.kept_count -= 1;
        kept.remove(index)
    }

    /// Removes the kept payload of a message that was sent by this name, or to a token.
    fn remove_kept_of(&mut self, name: &Arc<str>, message: MessageId) -> Option<ArrivedPayload> {
        let by_name = self.remove_kept(&HookKey::Name(name.clone()), message);
        let tokens = || self.kept.keys().filter(|key| matches!(key, HookKey::Token(_))).cloned();
        match by_name {
            Some(kept) => Some(kept),
            None => tokens().collect::<Vec<_>>().iter().find_map(|key| self.remove_kept(key, message)),
        }
    }

    /// The oldest kept payload for whose name or token a hook is open.
    fn next_to_offer(&mut self) -> Option<(HookKey, ArrivedPayload)> {
        loop {
            let key = self.changed.first()?.clone();
            let oldest = self.kept.get(&key).and_then(VecDeque::front);
            match oldest.filter(|_| self.first_open(&key).is_some()) {
                Some(oldest) => return Some((key, oldest.clone())),
                None => drop(self.changed.pop_first()),
            }
        }
    }

    /// Adds the kept payloads to a summary.
    pub(super) fn summarize(&self, text: &mut String) {
        for (key, kept) in self.kept.iter().filter(|(_, kept)| !kept.is_empty()) {
            let payloads: Vec<_> = kept.iter().map(|kept| &kept.payload).collect();
            let _ = writeln!(text, "buffer {key}: {payloads:?}");
        }
    }
}

impl ArrivedPayload {
    /// Where the history has it.
    pub(super) fn place(&self) -> EventPlace {
        self.arrival.place
    }
}

/// The name or token of the hook and the payload of an event of an earlier generation.
pub(super) fn carried_payload(kept: KeptEvent) -> Option<(HookKey, ArrivedPayload)> {
    let KeptEvent { place, at: turn_at, event } = kept;
    let Event::HookReceived { name, message, payload, headers, at, to, .. } = event else { return None };
    let key = HookKey::of(&name, &to);
    let arrival = Arrival { before: 0, message, at: at.unwrap_or(turn_at), headers, to, place };
    Some((key, ArrivedPayload { arrival, payload }))
}

/// The result of [`OperationTable::receive`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveResult {
    /// A hook has taken the payload, or it is kept.
    Done,
    /// The payload was rejected: nothing changes for the workflow.
    Rejected,
    /// The run already keeps as many payloads as the limit allows.
    Overflow,
    /// The recorded hook is not open.
    Unknown,
}

impl OperationTable {
    /// Adds a hook that has opened. Under rules 1 it takes the next kept payload immediately.
    pub(super) fn hook_opened(&mut self, op: OpNumber, name: &Arc<str>, token: Option<&Arc<str>>) {
        for key in HookKey::all(name, token) {
            self.hooks.open.entry(key.clone()).or_default().insert(op);
            if self.rules >= 2 {
                self.hooks.changed.insert(key);
            }
        }
        let by_name = HookKey::Name(name.clone());
        if self.rules < 2
            && let Some(kept) = self.hooks.kept.get_mut(&by_name).and_then(VecDeque::pop_front)
        {
            self.hooks.kept_count -= 1;
            self.complete_hook(op, kept);
        }
    }

    /// Applies the arrival of a payload with its recorded decision.
    pub(super) fn receive(
        &mut self,
        key: &HookKey,
        (message, headers, at, to): (MessageId, Headers, Option<Timestamp>, HookAddress),
        payload: Payload,
        judgement: &Judgement,
    ) -> ReceiveResult {
        let (before, at) = (self.hooks.arrived, at.unwrap_or(self.now));
        self.hooks.arrived += 1;
        let arrival = Arrival { before, message, at, headers, to, place: self.place };
        let arrived = ArrivedPayload { arrival, payload };
        let taker = match judgement {
            _ if self.rules < 2 => self.hooks.first_open(key),
            Judgement::Kept => None,
            Judgement::TakenBy(op) if self.is_open_hook(*op, key) => Some(*op),
            Judgement::TakenBy(_) => return ReceiveResult::Unknown,
            Judgement::Rejected(reason) => {
                self.reject_ask(&arrived.arrival, reason);
                return ReceiveResult::Rejected;
            }
        };
        match taker {
            Some(op) => self.complete_hook(op, arrived),
            // The run has closed the token since the world accepted the payload.
            None if matches!(key, HookKey::Token(token) if !self.holds_token(token)) => {
                self.leave_unanswered(&arrived.arrival);
            }
            // From rules 2 on the world refuses the send instead, and the run does not fail.
            None if self.rules < 2 && self.hooks.kept_count >= HOOK_BUFFER_MAX => {
                return ReceiveResult::Overflow;
            }
            None => self.hooks.keep(key, arrived),
        }
        ReceiveResult::Done
    }

    /// Gives a kept payload to an open hook. Returns false when there is no such hook or payload.
    pub(super) fn take_kept(&mut self, op: OpNumber, message: MessageId) -> bool {
        let mut keys = match self.ops.get(op) {
            Some(Op { phase: Phase::Open, kind: OpKind::Hook { name, token, .. }, .. }) => {
                HookKey::all(name, token.as_ref()).collect::<Vec<_>>().into_iter()
            }
            _ => return false,
        };
        let Some(arrived) = keys.find_map(|key| self.hooks.remove_kept(&key, message)) else { return false };
        self.complete_hook(op, arrived);
        true
    }

    /// Discards a kept payload that no open hook can decode. Returns false when there is no such payload.
    pub(super) fn reject_kept(&mut self, name: &Arc<str>, message: MessageId, reason: &str) -> bool {
        let rejected = self.hooks.remove_kept_of(name, message);
        if let Some(rejected) = &rejected {
            self.reject_ask(&rejected.arrival, reason);
        }
        rejected.is_some()
    }

    /// Tells the sender of a rejected payload why nobody replies, if it waits for a reply.
    fn reject_ask(&mut self, arrival: &Arrival, reason: &str) {
        if arrival.to.wants_reply {
            self.put_reply(arrival.message, Reply::Rejected(reason.into()));
        }
    }

    /// Discards the kept payloads that were sent to a token. Senders that wait for a reply learn that nobody answers.
    pub(super) fn discard_payloads_of(&mut self, token: &Arc<str>) {
        let discarded = self.hooks.kept.remove(&HookKey::Token(token.clone())).unwrap_or_default();
        self.hooks.kept_count -= discarded.len();
        discarded.iter().for_each(|kept| self.leave_unanswered(&kept.arrival));
    }

    /// Tells the sender of a discarded payload that nobody answers, if it waits for a reply.
    fn leave_unanswered(&mut self, arrival: &Arrival) {
        if arrival.to.wants_reply {
            self.put_reply(arrival.message, Reply::NotAnswered);
        }
    }

    /// Returns the payload of a hook that was dropped before the workflow received it, as if it had not been taken.
    pub(super) fn return_payload(&mut self, name: &Arc<str>, arrived: ArrivedPayload) {
        let key = HookKey::of(name, &arrived.arrival.to);
        match self.hooks.first_open(&key) {
            Some(op) if self.rules < 2 => self.complete_hook(op, arrived),
            _ => {
                self.hooks.keep(&key, arrived);
                if self.rules >= 2 {
                    self.hooks.changed.insert(key);
                }
            }
        }
    }

    /// Ends an open hook with a payload.
    ///
    /// The hook keeps the payload from now on, even if the workflow has not polled it: a payload that arrived in time
    /// wins over a later timeout or cancel.
    fn complete_hook(&mut self, op: OpNumber, ArrivedPayload { arrival, payload }: ArrivedPayload) {
        if let Some(Op { kind: OpKind::Hook { taken, .. }, .. }) = self.ops.get_mut(op) {
            *taken = Some(Box::new(arrival));
        }
        self.end(op, Ok(payload));
    }

    fn is_open_hook(&self, op: OpNumber, key: &HookKey) -> bool {
        self.hooks.open.get(key).is_some_and(|open| open.contains(&op))
    }

    /// The first open hook of a name or token after the operation `after`.
    fn next_open_hook(&self, key: &HookKey, after: Option<OpNumber>) -> Option<(OpNumber, CanRead)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let op = *self.hooks.open.get(key)?.range((from, Bound::Unbounded)).next()?;
        match &self.ops.get(op)?.kind {
            OpKind::Hook { can_read, .. } => Some((op, *can_read)),
            _ => None,
        }
    }
}

/// A payload that was sent to a hook.
#[derive(Debug)]
pub(crate) struct SentPayload {
    pub(crate) name: Arc<str>,
    pub(crate) message: MessageId,
    pub(crate) payload: Payload,
    /// The headers that the sender added.
    pub(crate) headers: Headers,
    /// When the world accepted it.
    pub(crate) at: Timestamp,
    /// The token to which it was sent, and whether its sender waits for a reply.
    pub(crate) to: HookAddress,
}

impl Machine {
    /// The event of a payload that arrives now, with the decision which hook takes it.
    pub(super) fn received(&self, sent: SentPayload) -> Result<Event, Stuck> {
        let SentPayload { name, message, payload, headers, at, to } = sent;
        if self.state.rules() < 2 {
            let (headers, at, judgement) = (Headers::new(), None, Judgement::Kept);
            return Ok(Event::HookReceived { name, message, payload, headers, at, judgement, to });
        }
        let judgement = self.offer_to_hooks(&name, &HookKey::of(&name, &to), message, &payload)?;
        Ok(Event::HookReceived { name, message, payload, headers, at: Some(at), judgement, to })
    }

    /// Offers kept payloads to the hooks that have opened since, and appends the events. Returns whether the run was
    /// polled.
    pub(super) fn offer_kept(&mut self, events: &mut Vec<Event>) -> Result<bool, Stuck> {
        while self.ended.is_none() {
            let next = self.state.table.lock().hooks.next_to_offer();
            let Some((key, ArrivedPayload { arrival, payload })) = next else { return Ok(false) };
            let message = arrival.message;
            let name = self.name_of_hooks(&key);
            let event = match self.offer_to_hooks(&name, &key, message, &payload)? {
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

    /// The name of the open hooks with this key.
    fn name_of_hooks(&self, key: &HookKey) -> Arc<str> {
        let table = self.state.table.lock();
        let first = table.hooks.first_open(key).and_then(|op| table.ops.get(op));
        match (first.map(|slot| &slot.kind), key) {
            (Some(OpKind::Hook { name, .. }), _) => name.clone(),
            (_, HookKey::Name(name) | HookKey::Token(name)) => name.clone(),
        }
    }

    /// Decides which open hook of a name or token takes a payload: the first that can decode it.
    fn offer_to_hooks(
        &self,
        name: &Arc<str>,
        key: &HookKey,
        message: MessageId,
        payload: &Payload,
    ) -> Result<Judgement, Stuck> {
        let mut tried: Vec<CanRead> = Vec::new();
        let mut reasons: Vec<String> = Vec::new();
        let mut last = None;
        loop {
            let next = self.state.table.lock().next_open_hook(key, last);
            let Some((op, can_read)) = next else { break };
            last = Some(op);
            // Hooks of one name usually have one type: test each type once.
            if tried.iter().any(|other| std::ptr::fn_addr_eq(*other, can_read)) {
                continue;
            }
            let codec = &**self.state.codec();
            let read = catch_unwind(AssertUnwindSafe(|| can_read(payload, codec)));
            match read.map_err(|panic| panicked(&*panic))? {
                Ok(()) => return Ok(Judgement::TakenBy(op)),
                // A missing codec is a problem of the worker: do not reject the payload.
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
