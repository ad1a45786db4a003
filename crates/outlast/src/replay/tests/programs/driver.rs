//! Drives a random run without a worker or a world: its deliveries are generated from a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use outlast_core::{
    Event, Failure, FailureKind, Judgement, MessageId, NewChild, OpNumber, Outbox, Payload, RunId, Status,
    Timestamp, TurnRecord, Wait,
};

use super::{Case, history};
use crate::replay::Machine;
use crate::replay::tests::{START, turn};

/// The maximum number of turns of a run.
const TURNS_MAX: usize = 30;

/// A run that was driven live, with everything that is needed to repeat it.
pub(super) struct RecordedRun {
    /// The start, when it was a turn of its own.
    fresh: Option<TurnRecord>,
    pub(super) turns: Vec<TurnRecord>,
    /// The deliveries of each turn after the first.
    deliveries: Vec<TurnDeliveries>,
    /// The state after each turn.
    after: Vec<StateAfterTurn>,
}

/// The deliveries of a turn, so that they can be repeated.
struct TurnDeliveries {
    at: Timestamp,
    /// The timers that were due, if the driver checked the clock before the turn.
    due: Option<Vec<(Timestamp, OpNumber)>>,
    /// The deliveries as events.
    events: Vec<Event>,
}

/// The state that two machines of one run must agree on.
#[derive(Clone, Debug, PartialEq)]
struct MachineState {
    summary: String,
    ended: Option<Status>,
    waits: Vec<Wait>,
    next_due: Option<Timestamp>,
    is_active: bool,
}

impl MachineState {
    fn of(machine: &Machine) -> Self {
        let ended = machine.ended();
        Self {
            summary: machine.summary(),
            ended,
            // The waits of a run that has ended are not used.
            waits: if ended.is_some() { Vec::new() } else { machine.waits() },
            next_due: machine.next_due().filter(|_| ended.is_none()),
            is_active: machine.is_active() && ended.is_none(),
        }
    }
}

/// The state after a turn.
struct StateAfterTurn {
    state: MachineState,
    /// The steps that were being attempted.
    attempting: BTreeSet<OpNumber>,
    /// The time up to which pauses and timers were checked.
    checked_until: Timestamp,
    /// The attempts that began after the turn: operation and number.
    started: Vec<(OpNumber, u32)>,
    /// The outbox of the turn.
    outbox: Option<Box<Outbox>>,
    /// The number of its messages that are older than the last delivery.
    settled_messages: usize,
}

struct Driver {
    rng: fastrand::Rng,
    machine: Machine,
    now: Timestamp,
    checked_until: Timestamp,
    attempting: BTreeSet<OpNumber>,
    /// The attempts in progress, including those of dropped operations.
    attempts: Vec<(OpNumber, u32)>,
    /// Children that have not ended, and those whose start is to be answered.
    children: Vec<(OpNumber, bool)>,
    messages: u128,
    recorded: RecordedRun,
}

/// Drives a run of the case's workflow with a seed.
pub(super) fn record_run(case: &Case, seed: u64) -> RecordedRun {
    let rng = fastrand::Rng::with_seed(seed);
    let (machine, first) = case.fresh().unwrap();
    let recorded = RecordedRun { fresh: None, turns: vec![first], deliveries: Vec::new(), after: Vec::new() };
    let mut driver = Driver {
        rng,
        machine,
        now: START,
        checked_until: START,
        attempting: BTreeSet::new(),
        attempts: Vec::new(),
        children: Vec::new(),
        messages: 0,
        recorded,
    };
    driver.begin();
    while driver.machine.ended().is_none() && driver.recorded.turns.len() < TURNS_MAX {
        driver.turn();
    }
    driver.recorded
}

impl Driver {
    fn begin(&mut self) {
        // The run may have been started before a worker had it.
        let wait = Duration::from_micros(self.rng.u64(0..3));
        self.now = self.now.plus(wait);
        self.machine.set_time(self.now);
        let mut events = Vec::new();
        self.machine.begin(&mut events).unwrap();
        if wait.is_zero() {
            self.recorded.turns[0].events.append(&mut events);
        } else {
            self.recorded.fresh = Some(self.recorded.turns.remove(0));
            self.recorded.turns.push(turn(self.now, events));
        }
        self.end_turn();
    }

    fn turn(&mut self) {
        self.now = self.now.plus(Duration::from_micros(self.rng.u64(0..3_000_000)));
        let mut events = Vec::new();
        for _ in 0..self.rng.usize(0..4) {
            events.extend(self.attempt_end());
            events.extend(self.child_end());
        }
        for _ in 0..self.rng.usize(0..3) {
            events.push(self.message());
        }
        let is_idle = events.is_empty();
        if is_idle {
            self.now = self.machine.next_due().unwrap_or(self.now).max(self.now);
        }
        let due = (is_idle || self.rng.bool()).then(|| self.look_at_the_clock());
        events.extend(due.iter().flatten().map(|(_, op)| Event::TimerFired { op: *op }));
        self.rng.shuffle(&mut events);
        let deliveries = TurnDeliveries { at: self.now, due, events };
        let added = deliver_turn(&mut self.machine, &deliveries);
        self.recorded.turns.push(turn(self.now, added));
        self.recorded.deliveries.push(deliveries);
        self.end_turn();
    }

    /// Looks at what was decided, and begins the attempts it asks for.
    fn end_turn(&mut self) {
        let state = MachineState::of(&self.machine);
        let attempting = self.attempting.clone();
        let ended = self.machine.ended().is_some();
        let steps = if ended { Vec::new() } else { self.machine.take_startable() };
        let mut started: Vec<_> = steps.iter().map(|step| (step.op, step.attempt)).collect();
        started.sort();
        self.attempting.extend(started.iter().map(|(op, _)| *op));
        self.attempts.extend(&started);
        let settled_messages = self.machine.settled_messages();
        let outbox = self.machine.take_outbox(no_id);
        for NewChild { start, notify_parent } in outbox.iter().flat_map(|outbox| &outbox.children) {
            let parent = start.parent.unwrap();
            if parent.awaits || *notify_parent {
                self.children.push((parent.op, *notify_parent));
            }
        }
        let checked_until = self.checked_until;
        let after = StateAfterTurn { state, attempting, checked_until, started, outbox, settled_messages };
        self.recorded.after.push(after);
    }

    fn look_at_the_clock(&mut self) -> Vec<(Timestamp, OpNumber)> {
        self.checked_until = self.now;
        self.machine.take_due(self.now)
    }

    fn attempt_end(&mut self) -> Option<Event> {
        if self.attempts.is_empty() {
            return None;
        }
        let (op, attempt) = self.attempts.swap_remove(self.rng.usize(..self.attempts.len()));
        self.attempting.remove(&op);
        let failure = Failure::new(FailureKind::Error, "out of luck").of_step("work", attempt);
        Some(match self.rng.u32(..4) {
            0 if self.machine.may_retry(op, self.now) => {
                let retry_at = self.now.plus(Duration::from_millis(self.rng.u64(1..5_000)));
                Event::StepRetried { op, attempt, failure, retry_at, details: None }
            }
            1 => Event::StepFailed { op, failure },
            // Not always the type that the workflow asks for: since rules 2 that would be the run's last turn.
            2 if self.machine.rules() < 2 && self.rng.u32(..8) == 0 => {
                Event::StepCompleted { op, output: Payload::json("x").unwrap() }
            }
            _ => Event::StepCompleted { op, output: Payload::json(&self.rng.u32(..100)).unwrap() },
        })
    }

    fn child_end(&mut self) -> Option<Event> {
        if self.children.is_empty() {
            return None;
        }
        let (op, is_answer) = self.children.swap_remove(self.rng.usize(..self.children.len()));
        let failure = |kind| Failure::new(kind, "the child had no luck");
        Some(match self.rng.u32(..5) {
            0 => Event::ChildFailed { op, failure: failure(FailureKind::Error) },
            _ if is_answer => Event::ChildDetached { op, run: RunId::from_bits(self.rng.u128(..)) },
            1 => Event::ChildCancelled { op, failure: failure(FailureKind::Cancelled) },
            _ => Event::ChildCompleted { op, output: Payload::json(&self.rng.u32(..100)).unwrap() },
        })
    }

    fn message(&mut self) -> Event {
        self.messages += 1;
        let message = MessageId::from_bits(self.messages);
        if self.rng.u32(..12) == 0 {
            let message = Some(message).filter(|_| self.rng.bool());
            // What it ends is found out when it is delivered.
            let (pauses, ends, maybe_attempted) = (Vec::new(), Vec::new(), Vec::new());
            return Event::CancelRequested {
                message,
                reason: "enough".into(),
                actor: None,
                pauses,
                ends,
                maybe_attempted,
            };
        }
        if self.rng.u32(..10) == 0 {
            return Event::TimerWoken { message, ops: Vec::new(), actor: None };
        }
        if self.rng.u32(..80) == 0 {
            return terminated();
        }
        let name = format!("hook-{}", self.rng.u32(..3)).into();
        // Some can be read by no hook.
        let payload = match self.rng.u32(..3) {
            0 => Payload::json("seven"),
            _ => Payload::json(&self.messages),
        };
        Event::HookReceived {
            name,
            message,
            payload: payload.unwrap(),
            headers: [("number".to_owned(), self.messages.to_string())].into(),
            at: None,
            judgement: Judgement::Kept,
            to: Default::default(),
        }
    }
}

fn no_id() -> MessageId {
    MessageId::from_bits(0)
}

/// Delivers the deliveries of a turn to a machine, and returns the events of the turn.
fn deliver_turn(machine: &mut Machine, deliveries: &TurnDeliveries) -> Vec<Event> {
    let mut added = Vec::new();
    machine.set_time(deliveries.at);
    for event in &deliveries.events {
        machine.deliver(history::delivery(event.clone()), &mut added).unwrap_or_else(|stuck| {
            panic!("{}", stuck.message);
        });
    }
    added
}

impl RecordedRun {
    /// Replays the first `turns` turns, compares the state, and continues from there to the end.
    pub(super) fn replay_and_continue(&self, case: &Case, turns: usize) {
        let index = turns - 1;
        self.crash(case, turns);
        let mut machine = self.replayed(case, turns);
        machine.set_attempting(&self.after[index].attempting);
        machine.take_due(self.after[index].checked_until);
        self.continue_with(machine, turns);
    }

    /// Compares a machine after `turns` turns with the recorded state, and continues from there to the end.
    fn continue_with(&self, mut machine: Machine, turns: usize) {
        let index = turns - 1;
        self.compare(&mut machine, index);
        for later in turns..self.turns.len() {
            let deliveries = &self.deliveries[later - 1];
            if let Some(due) = &deliveries.due {
                assert_eq!(&machine.take_due(deliveries.at), due);
            }
            assert_eq!(
                deliver_turn(&mut machine, deliveries),
                self.turns[later].events,
                "turn {later} from turn {index}"
            );
            assert_eq!(
                machine.take_outbox(no_id),
                self.after[later].outbox,
                "turn {later} from turn {index}"
            );
            self.compare(&mut machine, later);
        }
    }

    /// Replays the first `turns` turns, of the last one only a part, for every possible cut. The replay must request
    /// the rest again, and the run must continue as recorded.
    pub(super) fn replay_parts(&self, case: &Case, turns: usize) -> usize {
        let index = turns - 1;
        let mut last = self.turns[index].clone();
        let deliveries =
            last.events.iter().rposition(|event| !event.is_decision()).map_or(0, |index| index + 1);
        let is_patch = |event: &Event| matches!(event, Event::VersionChosen { .. });
        last.events[deliveries..].sort_by_key(|event| !is_patch(event));
        let first = deliveries + last.events[deliveries..].iter().filter(|event| is_patch(event)).count();
        for cut in first.max(1)..last.events.len() {
            let mut part = turn(last.at, last.events[..cut].to_vec());
            part.id = part.id.continued();
            let before = self.fresh.iter().chain(&self.turns[..index]).cloned();
            let mut machine = case
                .replay(before.chain([part]).collect())
                .unwrap_or_else(|stuck| panic!("event {cut} of turn {index}: {}", stuck.message));
            self.check_early_end(case, index, &last.events[..cut]);
            self.check_unannounced(&machine, &last.events[cut..]);
            // A cancelled step that is being attempted continues.
            machine.set_attempting(&self.after[index].attempting);
            let mut rest = Vec::new();
            machine.record_unrecorded_requests(&mut rest).unwrap_or_else(|stuck| panic!("{}", stuck.message));
            assert_eq!(rest, last.events[cut..], "the rest of turn {index}");
            self.check_rest_of_outbox(&mut machine, index, &rest);
            machine.take_due(self.after[index].checked_until);
            self.continue_with(machine, turns);
        }
        last.events.len().saturating_sub(first.max(1))
    }

    /// A run may be ended without its code when only a part of a turn is there.
    fn check_early_end(&self, case: &Case, index: usize, events: &[Event]) {
        let mut part = turn(self.turns[index].at, events.to_vec());
        part.id = part.id.continued();
        let end = turn(part.at, vec![terminated()]);
        let before = self.fresh.iter().chain(&self.turns[..index]).cloned();
        let replayed = case.replay(before.chain([part, end]).collect());
        let mut machine = replayed.unwrap_or_else(|stuck| panic!("{}", stuck.message));
        assert_eq!((machine.ended(), machine.has_unrecorded()), (Some(Status::Cancelled), false));
        assert_eq!(machine.take_outbox(no_id), None);
    }

    /// Nobody can have attempted a step that is not announced.
    fn check_unannounced(&self, machine: &Machine, rest: &[Event]) {
        let startable = machine.startable();
        let maybe_attempted = machine.maybe_attempted(Timestamp::NEVER);
        for event in rest.iter().filter(|event| matches!(event, Event::StepStarted { .. })) {
            let op = event.op().unwrap();
            assert!(!startable.contains(&op) && !maybe_attempted.contains(&op), "step {op}");
        }
    }

    /// What the rest of a turn asks of others: the children that it starts, and all messages since the last delivery.
    fn check_rest_of_outbox(&self, machine: &mut Machine, index: usize, rest: &[Event]) {
        let StateAfterTurn { outbox, settled_messages, .. } = &self.after[index];
        let whole = outbox.as_deref().cloned().unwrap_or_default();
        let starts = |event: &&Event| matches!(event, Event::ChildStarted(_) | Event::StepStarted { .. });
        let started: Vec<_> = rest.iter().filter(starts).filter_map(Event::op).collect();
        let is_in = |child: &&NewChild| started.contains(&child.start.parent.unwrap().op);
        let children = whole.children.iter().filter(is_in).cloned().collect::<Vec<_>>();
        let messages = whole.messages[*settled_messages..].to_vec();
        let again = machine.take_outbox(no_id).map(|outbox| *outbox).unwrap_or_default();
        assert_eq!((again.children, again.messages), (children, messages), "outbox of turn {index}");
    }

    /// After a crash nothing is being attempted: all that was begins anew, and nothing else.
    fn crash(&self, case: &Case, turns: usize) {
        let StateAfterTurn { state, attempting, checked_until, started, .. } = &self.after[turns - 1];
        if state.ended.is_some() {
            return;
        }
        let mut machine = self.replayed(case, turns);
        machine.take_due(*checked_until);
        let again: BTreeSet<_> = machine.take_startable().iter().map(|step| step.op).collect();
        let open = |op: &&OpNumber| {
            let line = format!("{op} step ");
            state.summary.lines().any(|known| known.starts_with(&line) && known.ends_with(": open"))
        };
        let before: BTreeSet<_> = attempting.iter().filter(open).copied().collect();
        let before = before.into_iter().chain(started.iter().map(|(op, _)| *op)).collect();
        assert_eq!(again, before, "attempts after a crash at turn {}", turns - 1);
    }

    /// The machine after a replay of the first turns, as a world returns them.
    fn replayed(&self, case: &Case, turns: usize) -> Machine {
        let read = |turn: &TurnRecord| {
            let mut text = String::new();
            Event::write_all(&turn.events, &mut text);
            TurnRecord { events: Event::read_all(&text).unwrap(), ..turn.clone() }
        };
        let history = self.fresh.iter().chain(&self.turns[..turns]).map(read).collect();
        case.replay(history).unwrap_or_else(|stuck| panic!("at turn {}: {}", turns - 1, stuck.message))
    }

    fn compare(&self, machine: &mut Machine, index: usize) {
        let StateAfterTurn { state, started, .. } = &self.after[index];
        assert_eq!(&MachineState::of(machine), state, "after turn {index}");
        if state.ended.is_none() {
            let steps = machine.take_startable();
            let mut steps: Vec<_> = steps.iter().map(|step| (step.op, step.attempt)).collect();
            steps.sort();
            assert_eq!(&steps, started, "attempts after turn {index}");
        }
    }
}

fn terminated() -> Event {
    Event::RunTerminated { failure: outlast_core::Failure::terminated("no more"), actor: None }
}
