//! The checks of hooks: each payload is recorded once and in order, the first open hook that can decode it takes it,
//! and a payload that none can decode closes no hook.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{Event, Headers, Judgement, MessageBody, MessageId, OpNumber, Payload, RunId};

use super::check::FinalRun;
use super::coverage::{Coverage, Situation};
use super::environment::Environment;
use super::observer::ObservedRun;
use super::values::{PayloadType, payload_type_of};
use super::workers::Build;

/// Compares the hooks of a run with the messages sent to it, and with a model.
pub(super) fn check_hooks(
    env: &Environment,
    final_run: &FinalRun,
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
    for turn in &final_run.turns {
        model.is_older = env.profile.has_older_build && *turn.build == *Build::Partial.to_string();
        for event in &turn.events {
            if let Err(violation) = model.apply(event, coverage) {
                return violations.push(format!("run {}: {event:?}: {violation}", final_run.view.id));
            }
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
        .events()
        .filter_map(|event| match event {
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
    if !may.starts_with(&received) || !received.starts_with(&must) {
        violations
            .push(format!("run {run} consumed {must:?}, at most {may:?}, but its history has {received:?}"));
    }
    if observed.consumed != final_run.view.consumed {
        violations
            .push(format!("run {run} has consumed {}, not {}", final_run.view.consumed, observed.consumed));
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
        let Event::HookReceived { name, message, payload, headers, at, .. } = event else { continue };
        let Some(sent) = observed.messages.values().find(|sent| sent.id == *message) else { continue };
        let body = MessageBody::Hook { name: name.clone(), payload: payload.clone(), to: Default::default() };
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
}

/// A model of the hooks of a run with rules 2, computed from its events.
struct HookModel {
    run: RunId,
    names: BTreeMap<OpNumber, Arc<str>>,
    open: BTreeMap<Arc<str>, BTreeSet<OpNumber>>,
    /// The payloads that hooks have taken.
    taken: BTreeMap<OpNumber, ArrivedPayload>,
    /// The kept payloads, in the order of arrival.
    kept: BTreeMap<Arc<str>, Vec<ArrivedPayload>>,
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
        let (names, open, taken, kept) = Default::default();
        Self { run, names, open, taken, kept, arrived: 0, is_older: false }
    }

    /// Applies an event. Fails when the event contradicts the model.
    fn apply(&mut self, event: &Event, coverage: &mut Coverage) -> Result<(), String> {
        match event {
            Event::HookOpened { op, name, .. } => {
                self.names.insert(*op, name.clone());
                self.open.entry(name.clone()).or_default().insert(*op);
            }
            Event::HookReceived { name, message, payload, judgement, .. } => {
                let arrived =
                    ArrivedPayload { message: *message, payload: payload.clone(), before: self.arrived };
                self.arrived += 1;
                self.received(name, arrived, judgement, coverage)?;
            }
            Event::HookTaken { op, message } => {
                let name = self.names.get(op).cloned().ok_or("there is no such hook")?;
                let arrived = self.take_kept(&name, *message)?;
                self.expect(&name, &arrived, &HookDecision::TakenBy(*op), coverage)?;
                self.take(*op, &name, arrived);
                coverage.record(Situation::TakenWhenKept);
            }
            Event::HookRejected { name, message, .. } => {
                let arrived = self.take_kept(name, *message)?;
                self.expect(name, &arrived, &HookDecision::Rejected, coverage)?;
                coverage.record(Situation::RejectedWhenKept);
            }
            Event::HookClosed { op } => {
                self.close(*op);
                if let (Some(arrived), Some(name)) = (self.taken.remove(op), self.names.get(op)) {
                    let kept = self.kept.entry(name.clone()).or_default();
                    kept.push(arrived);
                    kept.sort_by_key(|kept| kept.before);
                    coverage.record(Situation::GivenBack);
                }
            }
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
        self.expect(name, &arrived, &decision, coverage)?;
        match decision {
            HookDecision::NoneOpen => self.kept.entry(name.clone()).or_default().push(arrived),
            HookDecision::TakenBy(op) => self.take(op, name, arrived),
            HookDecision::Rejected => coverage.record(Situation::RejectedOnArrival),
        }
        Ok(())
    }

    /// Compares the decision about a payload with the open hooks.
    fn expect(
        &self,
        name: &Arc<str>,
        arrived: &ArrivedPayload,
        decision: &HookDecision,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let none = BTreeSet::new();
        let open = self.open.get(name).unwrap_or(&none);
        let mut payload_types = Vec::new();
        for op in open {
            payload_types
                .push((*op, payload_type_of(self.run, *op).ok_or("no workflow requested this hook")?));
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

    fn take(&mut self, op: OpNumber, name: &Arc<str>, arrived: ArrivedPayload) {
        self.open.entry(name.clone()).or_default().remove(&op);
        self.taken.insert(op, arrived);
    }

    /// Removes a payload from the kept ones: it must be the oldest of its name.
    fn take_kept(&mut self, name: &Arc<str>, message: MessageId) -> Result<ArrivedPayload, String> {
        let kept = self.kept.entry(name.clone()).or_default();
        match kept.first() {
            Some(oldest) if oldest.message == message => Ok(kept.remove(0)),
            oldest => Err(format!("the oldest payload that is kept is {oldest:?}")),
        }
    }

    fn close(&mut self, op: OpNumber) {
        if let Some(open) = self.names.get(&op).and_then(|name| self.open.get_mut(name)) {
            open.remove(&op);
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
