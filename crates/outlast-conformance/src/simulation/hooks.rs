//! What must be true of hooks in the end: each payload is recorded once and in order, the first open hook that can
//! read it takes it, and one that none can read changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use outlast_core::{Event, Headers, Judgement, MessageBody, MessageId, OpNumber, Payload, RunId};

use super::check::Life;
use super::coverage::{Coverage, Situation};
use super::crew::Build;
use super::stage::Stage;
use super::values::{Wanted, wanted_by};
use super::witness::Seen;

/// Compares the hooks of a run with what it was sent, and with a model of them.
pub(super) fn check_hooks(stage: &Stage, life: &Life, wrongs: &mut Vec<String>, coverage: &mut Coverage) {
    let witness = stage.witness.lock();
    let Some(seen) = witness.runs.get(&life.view.id) else { return };
    check_order(seen, life, wrongs);
    check_payloads(stage, seen, life, wrongs);
    if life.rules() < 2 {
        return;
    }
    let mut model = Model::new(life.view.id);
    for turn in &life.turns {
        model.is_older = stage.profile.has_older_build && *turn.build == *Build::Some.to_string();
        for event in &turn.events {
            if let Err(wrong) = model.apply(event, coverage) {
                return wrongs.push(format!("run {}: {event:?}: {wrong}", life.view.id));
            }
        }
    }
    let kept: usize = model.kept.values().map(Vec::len).sum();
    // A run that has ended keeps nothing that anybody could take.
    if !life.view.status.is_final() && kept as u64 != life.view.kept {
        let (run, counted) = (life.view.id, life.view.kept);
        wrongs.push(format!("run {run} keeps {kept} payloads, and its row counts {counted}"));
    }
}

/// What was sent and consumed was told, once and in order.
fn check_order(seen: &Seen, life: &Life, wrongs: &mut Vec<String>) {
    let run = life.view.id;
    let told: Vec<_> = life
        .events()
        .filter_map(|event| match event {
            Event::HookReceived { message, .. } => Some(*message),
            _ => None,
        })
        .collect();
    let up_to = |limit: u64| {
        let read = seen.messages.iter().filter(move |(position, _)| **position <= limit);
        let hooks = read.filter(|(_, sent)| matches!(sent.body, MessageBody::Hook { .. }));
        hooks.map(|(_, sent)| sent.id).collect::<Vec<_>>()
    };
    // A run that ends in the middle of a turn has no use for what the rest of it brings.
    let (may, must) = (up_to(seen.consumed), up_to(seen.consumed_before));
    if !may.starts_with(&told) || !told.starts_with(&must) {
        wrongs.push(format!("run {run} consumed {must:?}, at most {may:?}, and was told {told:?}"));
    }
    if seen.consumed != life.view.consumed {
        wrongs.push(format!("run {run} has consumed {}, not {}", life.view.consumed, seen.consumed));
    }
}

/// What is recorded of a payload is what was sent, with the sender's headers and the time of its acceptance.
fn check_payloads(stage: &Stage, seen: &Seen, life: &Life, wrongs: &mut Vec<String>) {
    let has_headers = life.rules() >= 2;
    for event in life.events() {
        let Event::HookReceived { name, message, payload, headers, at, .. } = event else { continue };
        let Some(sent) = seen.messages.values().find(|sent| sent.id == *message) else { continue };
        let body = MessageBody::Hook { name: name.clone(), payload: payload.clone() };
        let expected = if has_headers { sent.headers.clone() } else { Headers::new() };
        // A world whose clock is set back accepts nothing before what it accepted last.
        let is_same_time = *at == has_headers.then_some(sent.at) || stage.profile.has_jumps;
        if sent.body != body || *headers != expected || !is_same_time {
            wrongs.push(format!("run {} was sent {sent:?}, and history has {event:?}", life.view.id));
        }
    }
}

/// A payload that arrived.
#[derive(Clone, Debug)]
struct Arrived {
    message: MessageId,
    payload: Payload,
    /// How many arrived before it.
    before: usize,
}

/// The hooks of a run with rules 2, as its events say.
struct Model {
    run: RunId,
    names: BTreeMap<OpNumber, Arc<str>>,
    open: BTreeMap<Arc<str>, BTreeSet<OpNumber>>,
    /// What hooks took.
    taken: BTreeMap<OpNumber, Arrived>,
    /// What nobody has taken, in the order of its arrival.
    kept: BTreeMap<Arc<str>, Vec<Arrived>>,
    arrived: usize,
    /// Whether the older build made the turn.
    is_older: bool,
}

/// What the open hooks make of a payload.
#[derive(Debug, PartialEq)]
enum Fate {
    NoneOpen,
    TakenBy(OpNumber),
    Rejected,
}

impl Model {
    fn new(run: RunId) -> Self {
        let (names, open, taken, kept) = Default::default();
        Self { run, names, open, taken, kept, arrived: 0, is_older: false }
    }

    /// Applies an event; says what is wrong with it.
    fn apply(&mut self, event: &Event, coverage: &mut Coverage) -> Result<(), String> {
        match event {
            Event::HookOpened { op, name, .. } => {
                self.names.insert(*op, name.clone());
                self.open.entry(name.clone()).or_default().insert(*op);
            }
            Event::HookReceived { name, message, payload, judgement, .. } => {
                let arrived = Arrived { message: *message, payload: payload.clone(), before: self.arrived };
                self.arrived += 1;
                self.received(name, arrived, judgement, coverage)?;
            }
            Event::HookTaken { op, message } => {
                let name = self.names.get(op).cloned().ok_or("there is no such hook")?;
                let arrived = self.unkeep(&name, *message)?;
                self.expect(&name, &arrived, &Fate::TakenBy(*op), coverage)?;
                self.take(*op, &name, arrived);
                coverage.saw(Situation::TakenWhenKept);
            }
            Event::HookRejected { name, message, .. } => {
                let arrived = self.unkeep(name, *message)?;
                self.expect(name, &arrived, &Fate::Rejected, coverage)?;
                coverage.saw(Situation::RejectedWhenKept);
            }
            Event::HookClosed { op } => {
                self.close(*op);
                if let (Some(arrived), Some(name)) = (self.taken.remove(op), self.names.get(op)) {
                    let kept = self.kept.entry(name.clone()).or_default();
                    kept.push(arrived);
                    kept.sort_by_key(|kept| kept.before);
                    coverage.saw(Situation::GivenBack);
                }
            }
            Event::TimerFired { op } => self.close(*op),
            Event::CancelRequested { ends, .. } => ends.iter().for_each(|op| self.close(*op)),
            _ => {}
        }
        Ok(())
    }

    fn received(
        &mut self,
        name: &Arc<str>,
        arrived: Arrived,
        judgement: &Judgement,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let fate = match judgement {
            Judgement::Kept => Fate::NoneOpen,
            Judgement::TakenBy(op) => Fate::TakenBy(*op),
            Judgement::Rejected(_) => Fate::Rejected,
        };
        self.expect(name, &arrived, &fate, coverage)?;
        match fate {
            Fate::NoneOpen => self.kept.entry(name.clone()).or_default().push(arrived),
            Fate::TakenBy(op) => self.take(op, name, arrived),
            Fate::Rejected => coverage.saw(Situation::RejectedOnArrival),
        }
        Ok(())
    }

    /// Compares what became of a payload with what the open hooks are like.
    fn expect(
        &self,
        name: &Arc<str>,
        arrived: &Arrived,
        fate: &Fate,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let none = BTreeSet::new();
        let open = self.open.get(name).unwrap_or(&none);
        let mut wanted = Vec::new();
        for op in open {
            wanted.push((*op, wanted_by(self.run, *op).ok_or("no workflow asked for this hook")?));
        }
        let reads = |wanted: Wanted, is_older| wanted.can_read(&arrived.payload, is_older);
        let taker = wanted.iter().find(|(_, wanted)| reads(*wanted, self.is_older));
        let right = match taker {
            _ if wanted.is_empty() => Fate::NoneOpen,
            Some((op, _)) => Fate::TakenBy(*op),
            None => Fate::Rejected,
        };
        if *fate != right {
            return Err(format!("the open hooks are {wanted:?}, so it should be {right:?}"));
        }
        if matches!(right, Fate::TakenBy(op) if Some(&op) != open.first()) {
            coverage.saw(Situation::PassedOver);
        }
        if right == Fate::Rejected && wanted.iter().any(|(_, other)| *other != wanted[0].1) {
            coverage.saw(Situation::RejectedByDifferentHooks);
        }
        if right == Fate::Rejected && wanted.iter().any(|(_, wanted)| reads(*wanted, false)) {
            coverage.saw(Situation::RejectedByOlderBuild);
        }
        Ok(())
    }

    fn take(&mut self, op: OpNumber, name: &Arc<str>, arrived: Arrived) {
        self.open.entry(name.clone()).or_default().remove(&op);
        self.taken.insert(op, arrived);
    }

    /// Takes a payload out of those that are kept: the oldest of its name.
    fn unkeep(&mut self, name: &Arc<str>, message: MessageId) -> Result<Arrived, String> {
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
    use crate::simulation::values::{forget_hooks, note_hook};

    const RUN: RunId = RunId::from_bits(1);

    fn opened(op: u64, wanted: Wanted) -> Event {
        note_hook(RUN, &format_args!("operation {op} of a run"), wanted);
        Event::HookOpened { op: OpNumber(op), name: "x".into(), timeout_at: None }
    }

    fn received(payload: &'static str, judgement: Judgement) -> Event {
        Event::HookReceived {
            name: "x".into(),
            message: MessageId::from_bits(7),
            payload: Payload::from_json_text(payload.to_owned()),
            headers: Headers::new(),
            at: None,
            judgement,
        }
    }

    fn taken_by(op: u64) -> Judgement {
        Judgement::TakenBy(OpNumber(op))
    }

    /// Applies events after a hook for a text and one for a number have opened.
    fn check(events: &[Event]) -> Result<(), String> {
        forget_hooks();
        let (mut model, mut coverage) = (Model::new(RUN), Coverage::default());
        let open = [opened(0, Wanted::Text), opened(1, Wanted::Number)];
        open.iter().chain(events).try_for_each(|event| model.apply(event, &mut coverage))
    }

    #[test]
    fn the_first_open_hook_that_can_read_a_payload_takes_it() {
        assert_eq!(check(&[received("5", taken_by(1))]), Ok(()));
        let wrong = check(&[received("\"5\"", taken_by(1))]).unwrap_err();
        assert!(wrong.contains("should be TakenBy(OpNumber(0))"), "{wrong}");
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
