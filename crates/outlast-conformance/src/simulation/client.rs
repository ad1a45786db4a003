//! Clients: they start, send, cancel and look, and remember what they were promised.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{Client, Error, Status};
use outlast_core::event::RULES;
use outlast_core::queue::default_queue;
use outlast_core::{
    Headers, MessageBody, MessageId, NewMessage, Payload, QueuedSteps, RunId, RunQuery, Start, Tags, TurnId,
    World, WorldError,
};
use parking_lot::Mutex;

use super::clock::sleep;
use super::crew::Build;
use super::generate::any_program;
use super::node::Node;
use super::program::{HASTE, Program, QUEUES, play, rare};
use super::stage::{Stage, short};
use super::values::{Wanted, unreadable_payload};

/// How deep programs nest.
const DEPTH: u32 = 3;

/// What clients were promised.
#[derive(Debug, Default)]
pub(super) struct Promises {
    /// Runs whose start was acknowledged, with their key.
    pub(super) starts: Vec<(RunId, Option<String>)>,
    /// Payloads that were acknowledged, by sender and run, in order.
    pub(super) sends: BTreeMap<(String, RunId), Vec<u64>>,
    /// How a run ended, as someone was told.
    pub(super) outputs: Vec<(RunId, Result<String, String>)>,
    /// Runs that were told to stop at once.
    pub(super) terminated: Vec<RunId>,
    last: u64,
}

/// One client of the simulation.
pub(super) struct Caller {
    stage: Arc<Stage>,
    node: Arc<Node>,
    world: Arc<dyn World>,
    client: Client,
    promises: Arc<Mutex<Promises>>,
    rng: Rng,
}

impl Caller {
    pub(super) fn new(
        stage: &Arc<Stage>,
        node: &Arc<Node>,
        world: Arc<dyn World>,
        promises: &Arc<Mutex<Promises>>,
    ) -> Self {
        Self {
            stage: stage.clone(),
            node: node.clone(),
            client: Client::new(world.clone()),
            world,
            promises: promises.clone(),
            rng: Rng::with_seed(stage.chance(|rng| rng.u64(..))),
        }
    }

    /// Does so many things, with pauses.
    pub(super) async fn act(mut self, actions: u32, pause: Duration) {
        for _ in 0..actions {
            sleep(pause.mul_f64(self.rng.f64())).await;
            self.node.pass().await;
            if self.stage.is_calm() {
                return;
            }
            self.act_once().await;
        }
    }

    async fn act_once(&mut self) {
        let run = self.any_run();
        match (self.rng.u32(0..20), run) {
            (0..=5, _) | (_, None) => self.start().await,
            (6 | 7, _) => self.start_by_hand().await,
            (8..=13, Some(run)) => self.send(run).await,
            (14, Some(run)) => {
                let cancelled = self.client.cancel(run, "the simulation says so").await;
                self.note(format_args!("cancelled {}: {}", short(run), cancelled.is_ok()));
            }
            (15, Some(run)) => self.post(run, MessageBody::Terminate { reason: "enough".into() }).await,
            (16, Some(run)) => self.post(run, MessageBody::Wake { op: None }).await,
            (17, Some(run)) => self.post(run, MessageBody::Cancel { reason: "by hand".into() }).await,
            (_, Some(run)) => self.look(run).await,
        }
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.stage.note(&self.node.name, what);
    }

    fn any_run(&mut self) -> Option<RunId> {
        if self.stage.is_earnest {
            let promises = self.promises.lock();
            return self.rng.choice(&promises.starts).map(|(run, _)| *run);
        }
        let witness = self.stage.witness.lock();
        let known = witness.runs.len();
        if known == 0 {
            return None;
        }
        // The newer ones are more likely to be open.
        let place = self.rng.usize(0..known).max(self.rng.usize(0..known));
        witness.runs.keys().nth(place).copied()
    }

    /// Starts a run, with a key or without one. A key has one program, so that a repeat is a repeat.
    async fn start(&mut self) {
        let key = (self.rng.u32(0..3) == 0).then(|| self.rng.u8(0..4));
        let program = match key {
            Some(key) if self.rng.u32(0..8) > 0 => any_program(&mut Rng::with_seed(u64::from(key)), DEPTH),
            _ => any_program(&mut self.rng, DEPTH),
        };
        let is_rare = key.map_or_else(|| self.rng.u32(0..5) == 0, |key| key == 0);
        let client = self.client.clone();
        let mut start = if is_rare { client.start(rare, &program) } else { client.start(play, &program) };
        let key = key.map(|key| format!("key-{key}"));
        if let Some(key) = &key {
            start = start.key(key);
        }
        for (name, value) in self.headers() {
            start = start.header(name, value);
        }
        match start.await {
            Ok(handle) => {
                self.note(format_args!("was promised the start of {}", short(handle.id())));
                self.promises.lock().starts.push((handle.id(), key));
                if self.rng.u32(0..4) == 0 {
                    self.listen(handle.id());
                }
            }
            Err(error) => self.note(format_args!("start failed: {}", error.message())),
        }
    }

    /// Starts a run with what the client's builder does not offer, perhaps twice with the same ids.
    async fn start_by_hand(&mut self) {
        let now = self.world.clock().now();
        let program: Program = any_program(&mut self.rng, DEPTH);
        let Ok(input) = Payload::json(&program) else { return };
        let wait = self.rng.bool().then(|| Duration::from_millis(self.rng.u64(0..5_000)));
        let limit = self.rng.u32(0..3) > 0;
        let limit = limit.then(|| wait.unwrap_or_default() + Duration::from_millis(self.rng.u64(1..20_000)));
        let headers = self.headers();
        let start = Start {
            run: RunId::from_bits(self.bits()),
            turn: TurnId::from_bits(self.bits()),
            workflow: if self.rng.u32(0..4) == 0 { "rare" } else { "play" }.into(),
            version: 1,
            rules: self.any_rules(),
            queue: default_queue(),
            priority: 0,
            key: None,
            input,
            headers,
            tags: Tags::from([("by".into(), "hand".into())]),
            parent: None,
            not_before: wait.map(|wait| now.plus(wait)),
            deadline: limit.map(|limit| now.plus(limit)),
            policy: None,
        };
        for _ in 0..self.rng.u32(1..3) {
            let answers = self.world.start(vec![start.clone()]).await;
            if let Ok([Ok(started)]) = answers.as_deref() {
                self.note(format_args!("was promised the start of {}", short(started.run)));
                if started.run != start.run || !started.is_new {
                    self.stage.wrong(format!("a start with its own id was answered {started:?}"));
                }
                self.promises.lock().starts.push((started.run, None));
            }
        }
    }

    /// Old rules in some runs, unless builds differ in what they can read: under rules 1 they would not agree.
    fn any_rules(&mut self) -> u32 {
        let rules = self.rng.u32(1..=RULES);
        if self.stage.profile.has_older_build { RULES } else { rules }
    }

    /// What the programs of runs depend on.
    fn headers(&self) -> Headers {
        let queues = self.stage.profile.has_queues.then_some(QUEUES);
        let haste = self.stage.is_earnest.then_some(HASTE);
        queues.into_iter().chain(haste).map(|name| (name.into(), String::new())).collect()
    }

    fn bits(&mut self) -> u128 {
        let millis = (self.world.clock().now().as_micros() / 1_000) as u128;
        (millis << 80) | (self.rng.u128(..) >> 48)
    }

    /// Sends a payload that no other is like.
    async fn send(&mut self, run: RunId) {
        let hook = format!("hook-{}", self.rng.u8(0..2));
        for _ in 0..self.rng.u32(1..4) {
            let token = {
                let mut promises = self.promises.lock();
                promises.last += 1;
                promises.last
            };
            let payload = match self.rng.usize(0..8) {
                0 => unreadable_payload(token),
                shape => Wanted::ALL[shape % Wanted::ALL.len()].payload(token),
            };
            let mut call = self.client.send(run, &hook, &payload);
            if self.rng.bool() {
                call = call.header("from", &self.node.name);
            }
            match call.await {
                Ok(()) => {
                    let sender = format!("{} {hook}", self.node.name);
                    self.promises.lock().sends.entry((sender, run)).or_default().push(token);
                }
                Err(error) => self.note(format_args!("send failed: {}", error.message())),
            }
        }
    }

    /// Sends a message of a kind that the client's methods do not offer.
    async fn post(&mut self, run: RunId, body: MessageBody) {
        let is_end = matches!(body, MessageBody::Terminate { .. });
        let id = MessageId::from_bits(self.bits());
        let message = NewMessage { id, run, body, headers: Headers::new() };
        let mut first = None;
        for _ in 0..self.rng.u32(1..3) {
            let answers = self.world.send(vec![message.clone()]).await;
            let Ok([Ok(position)]) = answers.as_deref() else { continue };
            if is_end {
                self.promises.lock().terminated.push(run);
            }
            if *first.get_or_insert(*position) != *position {
                self.stage.wrong(format!("message {id} was answered with two positions"));
            }
        }
    }

    async fn look(&mut self, run: RunId) {
        if self.rng.bool() {
            self.listen(run);
        }
        let _view = self.client.run(run).await;
        if let Ok(history) = self.client.history(run).await {
            let mut next = 0;
            for turn in history {
                if turn.seq != next {
                    self.stage.wrong(format!("the history of run {run} has a gap before {}", turn.seq));
                }
                next = turn.seq + turn.events.len() as u64;
            }
        }
    }

    /// Waits for the output, beside everything else.
    fn listen(&self, run: RunId) {
        let (client, promises) = (self.client.clone(), self.promises.clone());
        tokio::spawn(async move {
            let output = client.handle::<String>(run).output().await;
            if is_final(&output) {
                promises.lock().outputs.push((run, output.map_err(|error| error.message().to_owned())));
            }
        });
    }
}

/// Whether a waiter was told how a run ended, and not that nobody knows.
fn is_final(output: &Result<String, Error>) -> bool {
    match output {
        Ok(_) => true,
        Err(error) => !error.is_stuck() && error.message() != "the simulation lost it",
    }
}

/// Sends what open runs wait for, and lets those go on that crashes of the build with all the code left stuck.
/// What another build left stuck goes on by itself.
pub(super) async fn help(
    stage: &Arc<Stage>,
    node: &Arc<Node>,
    promises: &Mutex<Promises>,
) -> Result<usize, WorldError> {
    // Queued steps are runs too, and crashes leave them stuck as well.
    let query = RunQuery { limit: 1_000, queued_steps: QueuedSteps::Listed, ..RunQuery::default() };
    let mut open = 0;
    for run in stage.inner.runs(query).await?.runs {
        open += usize::from(!run.status.is_final());
        if run.status == Status::Stuck && run.failed_builds.contains(&Build::All.to_string()) {
            stage.note("help", format_args!("resumes {}: {:?}", short(run.id), run.stuck));
            match stage.inner.resume(run.id).await {
                // A worker has claimed it meanwhile.
                Ok(()) | Err(WorldError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for wait in run.waits {
            let outlast_core::Wait::Hook { name, .. } = wait else { continue };
            let token = {
                let mut promises = promises.lock();
                promises.last += 1;
                promises.last
            };
            // What the hook waits for is not known from outside: sooner or later one fits.
            let shape = Wanted::ALL[stage.chance(|rng| rng.usize(0..Wanted::ALL.len()))];
            let payload = Payload::json(&shape.payload(token))
                .map_err(|error| WorldError::Invalid(error.to_string()))?;
            let body = MessageBody::Hook { name: name.into(), payload };
            let id = MessageId::from_bits(u128::from(token) | (0xfeed << 100));
            let message = NewMessage { id, run: run.id, body, headers: Headers::new() };
            let _ended = stage.clone().send(node.clone(), vec![message]).await?;
        }
    }
    Ok(open)
}
