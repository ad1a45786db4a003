//! Clients that send to tokens, ask, and retry, restart and fork runs. Seeds from
//! [`CONTROLLED_SEEDS`](super::CONTROLLED_SEEDS) on have them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use outlast::TokenDelivery;
use outlast_core::queue::{BUILT_IN_PREFIX, STEP_PREFIX};
use outlast_core::{Event, Fork, MessageId, OpNumber, Payload, RetryPlan, RunId, TurnRecord};
use serde_json::{Value, json};

use super::asks::{Ask, AskOutcome};
use super::client::SimulatedClient;
use super::clock::sleep;
use super::coverage::Situation;
use super::effective::{Counting, effective};
use super::environment::short_run;
use super::exchange::{TOKENS, token_name};
use super::generate::any_program;
use super::observer::ObservedRun;
use super::retries::Reopened;
use super::tokens::Directory;
use super::values::{PayloadType, payload_type_of, unreadable_payload};

/// What is known of the calls of clients that control runs.
#[derive(Debug, Default)]
pub(super) struct Controlled {
    /// The tokens, as the world has shown them.
    pub(super) directory: Directory,
    /// What clients have asked, by message.
    pub(super) asks: BTreeMap<MessageId, Ask>,
    /// The dry runs of retries, by the message of the retry.
    pub(super) dry_runs: BTreeMap<MessageId, RetryPlan>,
    /// The retries that the world has accepted, by run, in order.
    pub(super) retries: BTreeMap<RunId, Vec<Reopened>>,
    /// The forks that the world has accepted.
    pub(super) forks: BTreeMap<RunId, Fork>,
    /// The events before which clients have asked for forks.
    pub(super) forked_at: BTreeMap<RunId, u64>,
    /// The forks that may attempt steps again that are attempted at most once.
    pub(super) forced_forks: BTreeSet<RunId>,
    /// The other outcomes of operations of forks.
    pub(super) outputs: BTreeMap<(RunId, OpNumber), Value>,
    /// The restarted runs, and the inputs that they got instead of those of the other runs.
    pub(super) restarts: BTreeMap<RunId, Option<Payload>>,
}

impl SimulatedClient {
    /// Controls a run, or sends to one in another way than by its id.
    pub(super) async fn control(&mut self) {
        match self.rng.u32(0..14) {
            0..=2 => self.send_to_token().await,
            3..=5 => self.ask().await,
            6..=9 => self.retry().await,
            10 => self.restart().await,
            _ => self.fork().await,
        }
    }

    fn next_number(&self) -> u64 {
        let mut acknowledged = self.acknowledged.lock();
        acknowledged.last += 1;
        acknowledged.last
    }

    fn any_payload(&mut self) -> Value {
        let number = self.next_number();
        match self.rng.usize(0..10) {
            0 => unreadable_payload(number),
            shape => PayloadType::ALL[shape % PayloadType::ALL.len()].payload(number),
        }
    }

    async fn send_to_token(&mut self) {
        let (token, payload) = (self.any_token(), self.any_payload());
        let client = self.client.clone();
        let mut call = client.send_to_token(&token, &payload);
        if self.rng.bool() {
            call = call.key(format!("send-{}", self.rng.u8(0..8)));
        }
        if self.rng.bool() {
            call = call.header("from", &self.node.name);
        }
        match call.await {
            Ok(delivery) => {
                self.log(format_args!("sent to {token}: {delivery:?}"));
                match delivery {
                    TokenDelivery::Closed => self.env.record(Situation::TokenClosed),
                    TokenDelivery::Duplicate => self.env.record(Situation::TokenSendRepeated),
                    _ => {}
                }
            }
            Err(error) => self.log(format_args!("send to {token} failed: {}", error.message())),
        }
    }

    /// A token; mostly one that a run holds.
    fn any_token(&mut self) -> String {
        let held = self.env.controlled.lock().directory.held();
        let any = self.rng.u8(0..TOKENS);
        let token = if self.rng.u32(0..4) > 0 { self.rng.choice(held).unwrap_or(any) } else { any };
        token_name(token)
    }

    /// Asks a run, or the one that holds a token. Some asks are repeated.
    async fn ask(&mut self) {
        let repeated = self.env.controlled.lock().asks.values().cloned().collect::<Vec<_>>();
        let repeated = if self.rng.u32(0..3) == 0 { self.rng.choice(repeated) } else { None };
        let repeated = repeated.and_then(|ask| Some((ask.run, ask.key?)));
        let is_repeated = repeated.is_some();
        let new = (self.run_with(|observed| !observed.ended), format!("ask-{}", self.rng.u8(0..4)));
        let (Some(run), key) = repeated.map_or(new, |(run, key)| (Some(run), key)) else { return };
        let (payload, hook) = (self.any_payload(), format!("hook-{}", self.rng.u8(0..2)));
        let token = (!is_repeated && self.rng.u32(0..3) == 0).then(|| self.any_token());
        let wait = Duration::from_millis(self.rng.u64(0..10_000));
        let (client, env, name) = (self.client.clone(), self.env.clone(), self.node.name.clone());
        // In a task of its own, as it may take long; it ends with its process.
        tokio::spawn(async move {
            let call = match &token {
                Some(token) => client.ask_token::<Value, _>(token, &payload),
                None => client.ask_as::<Value>(run, &hook, &payload),
            };
            let posted = match call.key(&key).post().await {
                Ok(posted) => posted,
                Err(error) => return env.log(&name, format_args!("ask failed: {}", error.message())),
            };
            let ask = || Ask { run: posted.run, key: Some(key.clone()), outcomes: Vec::new() };
            if posted.delivery == TokenDelivery::Duplicate {
                env.record(Situation::AskRepeated);
            }
            env.controlled.lock().asks.entry(posted.message).or_insert_with(ask);
            let outcome = AskOutcome::of(&posted.reply_within(wait).await);
            let asked = format!("{} of {}", posted.message, short_run(posted.run));
            env.log(&name, format_args!("ask {asked} -> {outcome:?}"));
            if let Some(outcome) = outcome
                && let Some(ask) = env.controlled.lock().asks.get_mut(&posted.message)
            {
                ask.outcomes.push(outcome);
            }
        });
    }

    /// A run that has the wanted properties; newer ones are more likely.
    pub(super) fn run_with(&mut self, is_wanted: impl Fn(&ObservedRun) -> bool) -> Option<RunId> {
        let observer = self.env.observer.lock();
        let known = observer.runs.iter().filter(|(_, observed)| is_workflow(observed) && is_wanted(observed));
        let known: Vec<RunId> = known.map(|(run, _)| *run).collect();
        let places = 0..known.len();
        (!known.is_empty()).then(|| known[self.rng.usize(places.clone()).max(self.rng.usize(places))])
    }

    /// Continues a run that has failed, sometimes from another operation than the one that failed.
    async fn retry(&mut self) {
        let is_retryable = |observed: &ObservedRun| {
            let last = observed.turns.last().and_then(|turn| turn.events.last());
            matches!(last, Some(Event::RunFailed { .. } | Event::RunCancelled { .. }))
        };
        let records_again = |observed: &ObservedRun| {
            is_retryable(observed) && !ended_while_others_were_open(&observed.turns).is_empty()
        };
        let run = match self.rng.u32(0..10) {
            0 => self.any_run(),
            1..=5 => self.run_with(records_again).or_else(|| self.run_with(is_retryable)),
            _ => self.run_with(is_retryable),
        };
        let Some(run) = run else { return };
        let client = self.client.clone();
        let message = MessageId::from_bits(self.bits());
        let mut call = client.retry(run).id(message).reason("by the simulation");
        if self.rng.u32(0..3) == 0 {
            call = call.from(self.any_reopened(run));
        }
        if self.rng.u32(0..3) == 0 {
            call = call.force();
        }
        if self.rng.u32(0..4) == 0 {
            let limit = Duration::from_millis(self.rng.u64(1..20_000));
            call = call.deadline(self.world.clock().now().plus(limit));
        }
        match call.clone().dry_run().await {
            Ok(plan) => drop(self.env.controlled.lock().dry_runs.insert(message, plan)),
            Err(error) => {
                self.log(format_args!("no retry of {}: {}", short_run(run), error.message()));
                if self.rng.u32(0..4) > 0 {
                    return;
                }
            }
        }
        if self.rng.u32(0..4) == 0 {
            sleep(Duration::from_millis(self.rng.u64(0..2_000))).await;
            self.node.wait_until_running().await;
        }
        for _ in 0..self.rng.u32(1..3) {
            let answer = call.clone().await;
            self.log(format_args!(
                "retry of {} -> {:?}",
                short_run(run),
                answer.map_err(|error| error.message().to_owned())
            ));
        }
    }

    /// An operation to reopen; often one behind whose outcome other operations ended that were open before.
    fn any_reopened(&mut self, run: RunId) -> OpNumber {
        let observer = self.env.observer.lock();
        let turns = observer.runs.get(&run).map_or(&[][..], |observed| &observed.turns);
        let ended = ended_while_others_were_open(turns);
        let chosen = self.rng.choice(ended).filter(|_| self.rng.u32(0..4) > 0);
        chosen.unwrap_or_else(|| OpNumber(self.rng.u64(0..6)))
    }

    /// An event at which a run may be forked; often one next to the place where the run gave up an operation.
    fn any_cut(&mut self, run: RunId) -> u64 {
        let observer = self.env.observer.lock();
        let Some(observed) = observer.runs.get(&run) else { return 1 };
        let events = observed.seq().max(1);
        let numbered = observed.turns.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        let gives_up = |event: &Event| {
            matches!(
                event,
                Event::ChildDropped { .. } | Event::StepDropped { .. } | Event::OperationCancelled { .. }
            )
        };
        let given_up: Vec<_> = numbered.filter(|(_, event)| gives_up(event)).map(|(at, _)| at).collect();
        let chosen = self.rng.choice(given_up).filter(|_| self.rng.bool());
        match chosen {
            Some(at) => (at + self.rng.u64(0..3)).clamp(1, events),
            None => self.rng.u64(1..=events),
        }
    }

    /// Starts a run with the input of another one.
    async fn restart(&mut self) {
        let Some(run) = self.run_with(|_| true) else { return };
        let client = self.client.clone();
        let input = (self.rng.u32(0..3) == 0).then(|| any_program(&mut self.rng, 1));
        let mut call = client.restart::<String>(run);
        if let Some(input) = &input {
            call = call.with_input(input);
        }
        match call.await {
            Ok(handle) => {
                self.log(format_args!("restart of {}: {}", short_run(run), short_run(handle.id())));
                let input = input.and_then(|input| Payload::json(&input).ok());
                self.env.controlled.lock().restarts.insert(handle.id(), input);
                self.acknowledged.lock().starts.push((handle.id(), None));
                self.env.record(Situation::Restarted);
            }
            Err(error) => self.log(format_args!("no restart of {}: {}", short_run(run), error.message())),
        }
    }

    /// Forks a run at an event, or with another outcome of an operation.
    async fn fork(&mut self) {
        let Some(run) = self.run_with(|observed| observed.turns.iter().any(|turn| turn.events.len() > 1))
        else {
            return;
        };
        let (client, fork) = (self.client.clone(), RunId::from_bits(self.bits()));
        let mut call = client.fork::<String>(run).id(fork);
        if self.rng.u32(0..5) < 3 {
            let at = self.any_cut(run);
            self.env.controlled.lock().forked_at.insert(fork, at);
            call = call.at(at);
        } else {
            for _ in 0..self.rng.u32(1..3) {
                let Some((op, output)) = self.any_output(run, fork) else { return };
                call = call.with_output(op, &output);
                self.env.controlled.lock().outputs.insert((fork, op), output);
            }
        }
        if self.rng.u32(0..3) == 0 {
            call = call.force();
            self.env.controlled.lock().forced_forks.insert(fork);
        }
        match call.await {
            Ok(handle) => {
                self.log(format_args!("fork of {}: {}", short_run(run), short_run(fork)));
                self.acknowledged.lock().starts.push((handle.id(), None));
            }
            Err(error) => self.log(format_args!("no fork of {}: {}", short_run(run), error.message())),
        }
    }

    /// Another outcome of an operation of a run, for a fork.
    fn any_output(&mut self, run: RunId, fork: RunId) -> Option<(OpNumber, Value)> {
        // Not a number that an attempt may return.
        let number = self.next_number() + (1 << 40);
        let observer = self.env.observer.lock();
        let turns = &observer.runs.get(&run)?.turns;
        let outputs = effective(turns).into_iter().filter_map(|counting| match counting.event {
            Event::StepStarted { op, name, .. } if !name.starts_with(BUILT_IN_PREFIX) => {
                Some((*op, json!(number)))
            }
            Event::HookOpened { op, .. } => {
                Some((*op, payload_type_of(run, *op).unwrap_or(PayloadType::Number).payload(number)))
            }
            Event::ChildStarted(child) => Some((child.op, json!(format!("given {number}")))),
            Event::ValueRecorded { op, name, .. } if name.starts_with("value-") => Some((*op, json!(number))),
            _ => None,
        });
        let outputs: Vec<_> = outputs.collect();
        let (op, output) = self.rng.choice(outputs)?;
        drop(observer);
        // As if an attempt had returned it.
        self.env.attempt_log.lock().returned.entry((fork, op)).or_default().insert(number);
        Some((op, output))
    }
}

/// The operations behind whose outcomes other steps ended, or payloads arrived, that a retry from there records again.
fn ended_while_others_were_open(turns: &[TurnRecord]) -> Vec<OpNumber> {
    let effective = effective(turns);
    let (mut begun, mut ended) = (BTreeSet::new(), Vec::new());
    for (place, counting) in effective.iter().enumerate() {
        let Some(op) = counting.event.op() else { continue };
        if counting.event.is_decision() {
            begun.insert(op);
            continue;
        }
        let is_recorded_again = |later: &Counting<'_>| match later.event {
            Event::StepCompleted { op: other, .. } | Event::StepFailed { op: other, .. } => {
                *other != op && begun.contains(other)
            }
            _ => false,
        };
        if effective[place + 1..].iter().any(is_recorded_again) {
            ended.push(op);
        }
    }
    ended
}

/// Whether a run is one of the simulation's workflows.
fn is_workflow(observed: &ObservedRun) -> bool {
    match observed.turns.first().and_then(|turn| turn.events.first()) {
        Some(Event::RunStarted(started)) => {
            !started.workflow.starts_with(BUILT_IN_PREFIX) && !started.workflow.starts_with(STEP_PREFIX)
        }
        _ => false,
    }
}
