//! The checks of hooks: each payload is recorded once and in order, the first open hook that can decode it takes it,
//! and a payload that none can decode closes no hook.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{Event, Headers, Judgement, MessageBody, MessageId, OpNumber, Payload, RunId};

use super::check::{FinalRun, FinalRuns};
use super::coverage::{Coverage, Situation};
use super::effective::Counting;
use super::environment::Environment;
use super::observer::ObservedRun;
use super::values::{PayloadType, payload_type_of};
use super::workers::Build;

/// Compares the hooks of a run with the messages sent to it, and with a model.
pub(super) fn check_hooks(
    env: &Environment,
    final_run: &FinalRun,
    final_runs: &FinalRuns,
    violations: &mut Vec<String>,
    coverage: &mut Coverage,
) {
    let observer = env.observer.lock();
    let Some(observed) = observer.runs.get(&final_run.view.id) else { return };
    if final_run.view.is_built_in() {
        // Its hooks are those of the engine.
        return;
    }
    check_order(observed, final_run, violations);
    check_payloads(env, observed, final_run, violations);
    if final_run.rules() < 2 {
        return;
    }
    let mut model = HookModel::new(final_run.view.id);
    for Counting { number, turn, event } in final_run.effective() {
        model.is_older = env.profile.has_older_build && *turn.build == *Build::Partial.to_string();
        // A fork that skips copied iterations does not request their hooks.
        model.copied_from = final_run.recorder_of(number, final_runs);
        if let Err(violation) = model.apply(event, coverage) {
            return violations.push(format!("run {}: {event:?}: {violation}", final_run.view.id));
        }
    }
    let kept: usize = model.kept.values().map(Vec::len).sum();
    // The kept payloads of an ended run do not matter.
    if !final_run.view.status.is_final() && kept as u64 != final_run.view.kept {
        let (run, counted) = (final_run.view.id, final_run.view.kept);
        violations.push(format!("run {run} keeps {kept} payloads, but its row counts {counted}"));
    }
}

/// Every consumed payload is in the history, once and in order.
fn check_order(observed: &ObservedRun, final_run: &FinalRun, violations: &mut Vec<String>) {
    let run = final_run.view.id;
    let received: Vec<_> = final_run
        .effective()
        .into_iter()
        .filter(|counting| counting.number >= final_run.copied())
        .filter_map(|counting| match counting.event {
            Event::HookReceived { message, .. } => Some(*message),
            _ => None,
        })
        .collect();
    let up_to = |limit: u64| {
        let read = observed.messages.iter().filter(move |(position, _)| **position <= limit);
        let hooks = read.filter(|(_, sent)| matches!(sent.body, MessageBody::Hook { .. }));
        hooks.map(|(_, sent)| sent.id).collect::<Vec<_>>()
    };
    // A run that ends in the middle of a turn does not record the payloads after its end.
    let (may, mut must) = (up_to(observed.consumed), up_to(observed.consumed_before));
    // Nor does a run that compensates, or that was cancelled while it was about to begin again.
    if ends_after_decision(final_run) {
        must.retain(|message| received.contains(message));
    }
    if final_run.is_retried() {
        check_order_of_retried(observed, final_run, &received, &may, violations);
    } else if !may.starts_with(&received) || !received.starts_with(&must) {
        violations
            .push(format!("run {run} consumed {must:?}, at most {may:?}, but its history has {received:?}"));
    }
    if observed.consumed != final_run.view.consumed {
        violations
            .push(format!("run {run} has consumed {}, not {}", final_run.view.consumed, observed.consumed));
    }
}

/// As [`check_order`], for a run that was retried: what a reopened hook had taken is forgotten, and nothing else.
fn check_order_of_retried(
    observed: &ObservedRun,
    final_run: &FinalRun,
    received: &[MessageId],
    may: &[MessageId],
    violations: &mut Vec<String>,
) {
    let run = final_run.view.id;
    let mut left = may.iter();
    if !received.iter().all(|message| left.any(|sent| sent == message)) {
        violations.push(format!("run {run} consumed at most {may:?}, but its history has {received:?}"));
    }
    let recorded: BTreeSet<_> = final_run
        .events()
        .filter_map(|event| match event {
            Event::HookReceived { message, .. } => Some(*message),
            _ => None,
        })
        .collect();
    let hooks = observed.messages.iter().filter(|(position, sent)| {
        **position <= observed.consumed && matches!(sent.body, MessageBody::Hook { .. })
    });
    for (_, sent) in hooks {
        if !recorded.contains(&sent.id) && !ends_after_decision(final_run) {
            violations.push(format!("run {run} has consumed {}, but its history does not have it", sent.id));
        }
    }
}

/// Whether a run has decided to end before it ended: from then on it records no payloads.
fn ends_after_decision(final_run: &FinalRun) -> bool {
    let mut is_retrying = false;
    final_run.events().any(|event| {
        match event {
            Event::RunRetrying(_) => is_retrying = true,
            Event::RunContinued(_) => is_retrying = false,
            _ => {}
        }
        matches!(event, Event::RunCompensating { .. })
            || is_retrying && matches!(event, Event::CancelRequested { .. })
    })
}

/// A recorded payload is the one sent, with the sender's headers and the time of its acceptance.
fn check_payloads(
    env: &Environment,
    observed: &ObservedRun,
    final_run: &FinalRun,
    violations: &mut Vec<String>,
) {
    let has_headers = final_run.rules() >= 2;
    for event in final_run.events() {
        let Event::HookReceived { name, message, payload, headers, at, to, .. } = event else { continue };
        let Some(sent) = observed.messages.values().find(|sent| sent.id == *message) else { continue };
        let body = MessageBody::Hook { name: name.clone(), payload: payload.clone(), to: to.clone() };
        let expected = if has_headers { sent.headers.clone() } else { Headers::new() };
        // A world whose clock was moved back keeps the times of messages ascending.
        let is_same_time = *at == has_headers.then_some(sent.at) || env.profile.has_clock_jumps;
        if sent.body != body || *headers != expected || !is_same_time {
            violations
                .push(format!("run {} was sent {sent:?}, but its history has {event:?}", final_run.view.id));
        }
    }
}

/// A payload that arrived.
#[derive(Clone, Debug)]
struct ArrivedPayload {
    message: MessageId,
    payload: Payload,
    /// The number of payloads that arrived before it.
    before: usize,
    /// The token to which it was sent.
    token: Option<Arc<str>>,
}

/// Which payloads a hook takes: those that are sent to its token, and those that are sent by its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Address {
    Token(Arc<str>),
    Name(Arc<str>),
}

impl Address {
    fn of(name: &Arc<str>, token: Option<&Arc<str>>) -> Self {
        token.map_or_else(|| Self::Name(name.clone()), |token| Self::Token(token.clone()))
    }
}

/// A model of the hooks of a run with rules 2, computed from its events.
struct HookModel {
    run: RunId,
    /// The run that has requested the hook of the event that is applied: another one, if the event is a copy.
    copied_from: RunId,
    /// The names of hooks, and the tokens of those that have one.
    names: BTreeMap<OpNumber, (Arc<str>, Option<Arc<str>>)>,
    /// The token that each operation has requested.
    tokens: BTreeMap<OpNumber, Arc<str>>,
    /// The operations that hold tokens.
    held: BTreeMap<Arc<str>, OpNumber>,
    open: BTreeMap<Address, BTreeSet<OpNumber>>,
    /// The payloads that hooks have taken.
    taken: BTreeMap<OpNumber, ArrivedPayload>,
    /// The kept payloads, in the order of arrival.
    kept: BTreeMap<Address, Vec<ArrivedPayload>>,
    arrived: usize,
    /// Whether the older build made the turn.
    is_older: bool,
}

/// The decision about a payload.
#[derive(Debug, PartialEq)]
enum HookDecision {
    NoneOpen,
    TakenBy(OpNumber),
    Rejected,
}

impl HookModel {
    fn new(run: RunId) -> Self {
        let (names, tokens, held, open, taken, kept) = Default::default();
        Self { run, copied_from: run, names, tokens, held, open, taken, kept, arrived: 0, is_older: false }
    }

    /// Applies an event. Fails when the event contradicts the model.
    fn apply(&mut self, event: &Event, coverage: &mut Coverage) -> Result<(), String> {
        match event {
            Event::HookOpened { op, name, of, .. } => {
                let token = match of {
                    Some(of) => Some(self.tokens.get(of).cloned().ok_or("its token was never requested")?),
                    None => None,
                };
                self.names.insert(*op, (name.clone(), token));
                self.addresses(*op).into_iter().for_each(|address| {
                    self.open.entry(address).or_default().insert(*op);
                });
            }
            Event::HookReceived { name, message, payload, judgement, to, .. } => {
                let (payload, token) = (payload.clone(), to.token.clone());
                let arrived = ArrivedPayload { message: *message, payload, before: self.arrived, token };
                self.arrived += 1;
                self.received(name, arrived, judgement, coverage)?;
            }
            Event::HookTaken { op, message } => {
                let addresses = self.addresses(*op);
                let (address, arrived) = self.take_kept(addresses, *message)?;
                self.expect(&address, &arrived, &HookDecision::TakenBy(*op), coverage)?;
                self.take(*op, arrived, coverage);
                coverage.record(Situation::TakenWhenKept);
            }
            Event::HookRejected { name, message, .. } => {
                let tokens = self.kept.keys().filter(|address| matches!(address, Address::Token(_))).cloned();
                let addresses = [Address::Name(name.clone())].into_iter().chain(tokens).collect();
                let (address, arrived) = self.take_kept(addresses, *message)?;
                self.expect(&address, &arrived, &HookDecision::Rejected, coverage)?;
                coverage.record(Situation::RejectedWhenKept);
            }
            Event::HookClosed { op } => {
                self.close(*op);
                if let (Some(arrived), Some((name, _))) = (self.taken.remove(op), self.names.get(op)) {
                    let kept = self.kept.entry(Address::of(name, arrived.token.as_ref())).or_default();
                    kept.push(arrived);
                    kept.sort_by_key(|kept| kept.before);
                    coverage.record(Situation::GivenBack);
                }
            }
            Event::TokenRequested(_)
            | Event::TokenTaken { .. }
            | Event::TokenClosed { .. }
            | Event::RunContinued(_) => self.apply_token(event, coverage),
            Event::TimerFired { op } | Event::OperationCancelled { op } => self.close(*op),
            Event::CancelRequested { ends, .. } => ends.iter().for_each(|op| self.close(*op)),
            _ => {}
        }
        Ok(())
    }

    fn received(
        &mut self,
        name: &Arc<str>,
        arrived: ArrivedPayload,
        judgement: &Judgement,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let decision = match judgement {
            Judgement::Kept => HookDecision::NoneOpen,
            Judgement::TakenBy(op) => HookDecision::TakenBy(*op),
            Judgement::Rejected(_) => HookDecision::Rejected,
        };
        let address = Address::of(name, arrived.token.as_ref());
        self.expect(&address, &arrived, &decision, coverage)?;
        match decision {
            // The run has closed the token since the payload was accepted.
            HookDecision::NoneOpen if !self.may_keep(&address) => {}
            HookDecision::NoneOpen => self.kept.entry(address).or_default().push(arrived),
            HookDecision::TakenBy(op) => self.take(op, arrived, coverage),
            HookDecision::Rejected => coverage.record(Situation::RejectedOnArrival),
        }
        Ok(())
    }

    fn may_keep(&self, address: &Address) -> bool {
        match address {
            Address::Token(token) => self.held.contains_key(token),
            Address::Name(_) => true,
        }
    }

    /// Compares the decision about a payload with the open hooks.
    fn expect(
        &self,
        address: &Address,
        arrived: &ArrivedPayload,
        decision: &HookDecision,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let none = BTreeSet::new();
        let open = self.open.get(address).unwrap_or(&none);
        let mut payload_types = Vec::new();
        for op in open {
            let payload_type =
                payload_type_of(self.run, *op).or_else(|| payload_type_of(self.copied_from, *op));
            payload_types.push((*op, payload_type.ok_or("no workflow requested this hook")?));
        }
        let reads = |payload_type: PayloadType, is_older| payload_type.can_read(&arrived.payload, is_older);
        let taker = payload_types.iter().find(|(_, payload_type)| reads(*payload_type, self.is_older));
        let right = match taker {
            _ if payload_types.is_empty() => HookDecision::NoneOpen,
            Some((op, _)) => HookDecision::TakenBy(*op),
            None => HookDecision::Rejected,
        };
        if *decision != right {
            return Err(format!("the open hooks are {payload_types:?}, so it should be {right:?}"));
        }
        if matches!(right, HookDecision::TakenBy(op) if Some(&op) != open.first()) {
            coverage.record(Situation::PassedOver);
        }
        if right == HookDecision::Rejected
            && payload_types.iter().any(|(_, other)| *other != payload_types[0].1)
        {
            coverage.record(Situation::RejectedByDifferentHooks);
        }
        if right == HookDecision::Rejected
            && payload_types.iter().any(|(_, payload_type)| reads(*payload_type, false))
        {
            coverage.record(Situation::RejectedByOlderBuild);
        }
        Ok(())
    }

    fn take(&mut self, op: OpNumber, arrived: ArrivedPayload, coverage: &mut Coverage) {
        self.close(op);
        if arrived.token.is_some() {
            coverage.record(Situation::TakenByToken);
        }
        self.taken.insert(op, arrived);
    }

    /// Removes a payload from the kept ones: it must be the oldest of its name or token.
    fn take_kept(
        &mut self,
        addresses: Vec<Address>,
        message: MessageId,
    ) -> Result<(Address, ArrivedPayload), String> {
        for address in addresses {
            let kept = self.kept.entry(address.clone()).or_default();
            match kept.first() {
                Some(oldest) if oldest.message == message => return Ok((address, kept.remove(0))),
                _ => {}
            }
        }
        Err(format!("it is not the oldest payload that is kept: {:?}", self.kept))
    }

    fn close(&mut self, op: OpNumber) {
        for address in self.addresses(op) {
            if let Some(open) = self.open.get_mut(&address) {
                open.remove(&op);
            }
        }
    }

    /// The addresses of the payloads that a hook takes.
    fn addresses(&self, op: OpNumber) -> Vec<Address> {
        let Some((name, token)) = self.names.get(&op) else { return Vec::new() };
        let by_token = token.clone().map(Address::Token);
        by_token.into_iter().chain([Address::Name(name.clone())]).collect()
    }

    /// Applies an event of a token: what was sent to it is discarded when it is closed, unless another operation of the
    /// run has taken it over.
    fn apply_token(&mut self, event: &Event, coverage: &mut Coverage) {
        match event {
            Event::TokenRequested(requested) => {
                self.tokens.insert(requested.op, requested.token.clone());
                if requested.is_generated {
                    self.held.insert(requested.token.clone(), requested.op);
                }
            }
            Event::TokenTaken { op } => {
                let Some(token) = self.tokens.get(op) else { return };
                if self.held.insert(token.clone(), *op).is_some() {
                    coverage.record(Situation::TokenTakenOver);
                }
            }
            Event::TokenClosed { op } => {
                let Some(token) = self.tokens.get(op) else { return };
                if self.held.get(token).is_none_or(|holder| holder == op) {
                    self.held.remove(token);
                    self.kept.remove(&Address::Token(token.clone()));
                }
            }
            Event::RunContinued(continued) => {
                let carried = continued.tokens.iter().map(|carried| (carried.token.clone(), carried.op));
                self.held = carried.collect();
                let held = &self.held;
                self.kept.retain(|address, _| match address {
                    Address::Token(token) => held.contains_key(token),
                    Address::Name(_) => true,
                });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::values::{clear_hooks, register_hook};

    const RUN: RunId = RunId::from_bits(1);

    fn opened(op: u64, payload_types: PayloadType) -> Event {
        register_hook(RUN, &format_args!("operation {op} of a run"), payload_types);
        Event::HookOpened { op: OpNumber(op), name: "x".into(), timeout_at: None, of: None }
    }

    fn received(payload: &'static str, judgement: Judgement) -> Event {
        Event::HookReceived {
            name: "x".into(),
            message: MessageId::from_bits(7),
            payload: Payload::from_json_text(payload.to_owned()),
            headers: Headers::new(),
            at: None,
            judgement,
            to: Default::default(),
        }
    }

    fn taken_by(op: u64) -> Judgement {
        Judgement::TakenBy(OpNumber(op))
    }

    /// Applies events after a hook for a text and one for a number have opened.
    fn check(events: &[Event]) -> Result<(), String> {
        clear_hooks();
        let (mut model, mut coverage) = (HookModel::new(RUN), Coverage::default());
        let open = [opened(0, PayloadType::Text), opened(1, PayloadType::Number)];
        open.iter().chain(events).try_for_each(|event| model.apply(event, &mut coverage))
    }

    #[test]
    fn the_first_open_hook_that_can_read_a_payload_takes_it() {
        assert_eq!(check(&[received("5", taken_by(1))]), Ok(()));
        let violation = check(&[received("\"5\"", taken_by(1))]).unwrap_err();
        assert!(violation.contains("should be TakenBy(OpNumber(0))"), "{violation}");
        check(&[received("5", taken_by(0))]).unwrap_err();
        check(&[received("5", Judgement::Kept)]).unwrap_err();
    }

    #[test]
    fn a_payload_is_rejected_when_no_open_hook_can_read_it() {
        let rejected = || Judgement::Rejected("no".into());
        assert_eq!(check(&[received("{}", rejected()), received("5", taken_by(1))]), Ok(()));
        check(&[received("5", rejected())]).unwrap_err();
        check(&[received("5", taken_by(1)), received("5", taken_by(1))]).unwrap_err();
    }

    #[test]
    fn a_payload_that_is_given_back_is_offered_again() {
        let closed = |op| Event::HookClosed { op: OpNumber(op) };
        let taken = |op| Event::HookTaken { op: OpNumber(op), message: MessageId::from_bits(7) };
        let first = [received("\"5\"", taken_by(0)), closed(0)];
        let then = |event| first.iter().cloned().chain([event]).collect::<Vec<_>>();
        let rejected =
            Event::HookRejected { name: "x".into(), message: MessageId::from_bits(7), reason: "no".into() };
        assert_eq!(check(&then(rejected)), Ok(()));
        check(&then(taken(1))).unwrap_err();
        check(&[taken(1)]).unwrap_err();
    }
}
