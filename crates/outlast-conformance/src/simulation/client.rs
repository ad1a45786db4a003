//! Clients: they start, send, cancel and inspect, and record what was acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{CatchUp, Client, Error, Status};
use outlast_core::event::RULES;
use outlast_core::queue::{BUILT_IN_PREFIX, default_queue};
use outlast_core::{
    BuiltInRuns, Headers, HookAddress, MessageBody, MessageId, NewMessage, Payload, QueuedSteps, RunId,
    RunQuery, Start, Tags, TurnId, World, WorldError,
};
use parking_lot::Mutex;

use super::asks::Ask;
use super::clock::sleep;
use super::environment::{Environment, short_run};
use super::exchange::TARGET;
use super::generate::any_program;
use super::node::Node;
use super::orchestration::{cascading, retried};
use super::program::{Program, QUEUES, SHORT_PAUSES, play, rare};
use super::schedules::{any_overlap, delete_schedules, schedule_name};
use super::values::{PayloadType, unreadable_payload};
use super::workers::Build;

/// The nesting depth of programs.
const DEPTH: u32 = 3;

/// What the world has acknowledged to clients.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    /// Runs whose start was acknowledged, with their key.
    pub(super) starts: Vec<(RunId, Option<String>)>,
    /// Payloads that were acknowledged, by sender and run, in order.
    pub(super) sends: BTreeMap<(String, RunId), Vec<u64>>,
    /// The outputs of runs that clients have received.
    pub(super) outputs: Vec<(RunId, Result<String, String>)>,
    /// Runs that were terminated.
    pub(super) terminated: Vec<RunId>,
    pub(super) last: u64,
}

/// One client of the simulation.
pub(super) struct SimulatedClient {
    pub(super) env: Arc<Environment>,
    pub(super) node: Arc<Node>,
    pub(super) world: Arc<dyn World>,
    pub(super) client: Client,
    pub(super) acknowledged: Arc<Mutex<Acknowledged>>,
    pub(super) rng: Rng,
}

impl SimulatedClient {
    pub(super) fn new(
        env: &Arc<Environment>,
        node: &Arc<Node>,
        world: Arc<dyn World>,
        acknowledged: &Arc<Mutex<Acknowledged>>,
    ) -> Self {
        Self {
            env: env.clone(),
            node: node.clone(),
            client: Client::new(world.clone()),
            world,
            acknowledged: acknowledged.clone(),
            rng: Rng::with_seed(env.random(|rng| rng.u64(..))),
        }
    }

    /// Makes this many random calls, with pauses.
    pub(super) async fn run_actions(mut self, actions: u32, pause: Duration) {
        for _ in 0..actions {
            sleep(pause.mul_f64(self.rng.f64())).await;
            self.node.wait_until_running().await;
            if self.env.is_calm() {
                return;
            }
            self.run_action().await;
        }
    }

    async fn run_action(&mut self) {
        if self.env.is_controlled && self.rng.u32(0..3) == 0 {
            return self.control().await;
        }
        let run = self.any_run();
        match (self.rng.u32(0..22), run) {
            (0..=5, _) | (_, None) => self.start().await,
            (6 | 7, _) => self.start_raw().await,
            (8..=13, Some(run)) => self.send(run).await,
            (14, Some(run)) => {
                let cancelled = self.client.cancel(run, "cancelled by the simulation").await;
                self.log(format_args!("cancelled {}: {}", short_run(run), cancelled.is_ok()));
            }
            (20, _) if self.env.profile.is_orchestrated => self.schedule().await,
            (21, Some(run)) if self.env.profile.is_orchestrated => {
                self.send_raw(run, MessageBody::Compensate { reason: "enough".into() }).await;
            }
            (15, Some(run)) => self.send_raw(run, MessageBody::Terminate { reason: "enough".into() }).await,
            (16, Some(run)) => self.send_raw(run, MessageBody::Wake { op: None }).await,
            (17, Some(run)) => self.send_raw(run, MessageBody::Cancel { reason: "by hand".into() }).await,
            (18, Some(run)) => self.send_raw(run, MessageBody::Pause { reason: "for a while".into() }).await,
            (19, Some(run)) => self.send_raw(run, MessageBody::Resume).await,
            (_, Some(run)) => self.inspect(run).await,
        }
    }

    pub(super) fn log(&self, what: std::fmt::Arguments<'_>) {
        self.env.log(&self.node.name, what);
    }

    pub(super) fn any_run(&mut self) -> Option<RunId> {
        if self.env.is_real_time {
            let acknowledged = self.acknowledged.lock();
            return self.rng.choice(&acknowledged.starts).map(|(run, _)| *run);
        }
        let observer = self.env.observer.lock();
        let known = observer.runs.len();
        if known == 0 {
            return None;
        }
        // Newer runs are more likely to be open.
        let place = self.rng.usize(0..known).max(self.rng.usize(0..known));
        observer.runs.keys().nth(place).copied()
    }

    /// Starts a run, with or without a key. A key always has the same program, so that a second start is a repeat.
    async fn start(&mut self) {
        let key = (self.rng.u32(0..3) == 0).then(|| self.rng.u8(0..4));
        let target = if self.env.is_controlled { self.run_with(|observed| !observed.ended) } else { None };
        let program = match key {
            Some(key) if self.rng.u32(0..8) > 0 => any_program(&mut Rng::with_seed(u64::from(key)), DEPTH),
            _ => any_program(&mut self.rng, DEPTH),
        };
        let is_rare = key.map_or_else(|| self.rng.u32(0..5) == 0, |key| key == 0);
        let client = self.client.clone();
        let strategy = if self.env.profile.is_orchestrated && key.is_none() { self.rng.u32(0..4) } else { 0 };
        let mut start = match strategy {
            1 => client.start(retried, &program),
            2 => client.start(cascading, &program),
            _ if is_rare => client.start(rare, &program),
            _ => client.start(play, &program),
        };
        let key = key.map(|key| format!("key-{key}"));
        if let Some(key) = &key {
            start = start.key(key);
        }
        for (name, value) in self.headers() {
            start = start.header(name, value);
        }
        if let Some(target) = target {
            start = start.header(TARGET, target.to_string());
        }
        match start.await {
            Ok(handle) => {
                self.log(format_args!("start of {} acknowledged", short_run(handle.id())));
                self.acknowledged.lock().starts.push((handle.id(), key));
                if self.rng.u32(0..4) == 0 {
                    self.await_output(handle.id());
                }
            }
            Err(error) => self.log(format_args!("start failed: {}", error.message())),
        }
    }

    /// Creates a schedule, or changes it.
    async fn schedule(&mut self) {
        if self.env.is_real_time {
            return;
        }
        let (client, rng) = (self.client.clone(), &mut self.rng);
        let name = schedule_name(rng.u8(0..2));
        let every = format!("{}ms", rng.u64(1_000..6_000));
        let mut schedule = client.schedule(&name).every(&every).overlap(any_overlap(rng));
        schedule = schedule.catch_up([CatchUp::None, CatchUp::Last, CatchUp::All(3)][rng.usize(0..3)]);
        if rng.bool() {
            schedule = schedule.jitter("700ms");
        }
        let created = schedule.start(play, any_program(rng, 1)).await;
        self.log(format_args!("schedule {name} every {every}: {}", created.is_ok()));
    }

    /// Starts a run by a call to the world, with options that the client's builder lacks; sometimes twice with the
    /// same ids.
    async fn start_raw(&mut self) {
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
            requester: None,
            ending: None,
        };
        for _ in 0..self.rng.u32(1..3) {
            let answers = self.world.start(vec![start.clone()]).await;
            if let Ok([Ok(started)]) = answers.as_deref() {
                self.log(format_args!("start of {} acknowledged", short_run(started.run)));
                if started.run != start.run || !started.is_new {
                    self.env.report_violation(format!("a start with a new id got the answer {started:?}"));
                }
                self.acknowledged.lock().starts.push((started.run, None));
            }
        }
    }

    /// Old rules for some runs, unless the builds can decode different values: under rules 1 they would diverge.
    fn any_rules(&mut self) -> u32 {
        let rules = self.rng.u32(1..=RULES);
        if self.env.profile.has_older_build { RULES } else { rules }
    }

    /// The headers that configure the program of a run.
    fn headers(&self) -> Headers {
        let queues = self.env.profile.has_queues.then_some(QUEUES);
        let haste = self.env.is_real_time.then_some(SHORT_PAUSES);
        queues.into_iter().chain(haste).map(|name| (name.into(), String::new())).collect()
    }

    pub(super) fn bits(&mut self) -> u128 {
        let millis = (self.world.clock().now().as_micros() / 1_000) as u128;
        (millis << 80) | (self.rng.u128(..) >> 48)
    }

    /// Sends unique payloads.
    async fn send(&mut self, run: RunId) {
        let hook = format!("hook-{}", self.rng.u8(0..2));
        for _ in 0..self.rng.u32(1..4) {
            let token = {
                let mut acknowledged = self.acknowledged.lock();
                acknowledged.last += 1;
                acknowledged.last
            };
            let payload = match self.rng.usize(0..8) {
                0 => unreadable_payload(token),
                shape => PayloadType::ALL[shape % PayloadType::ALL.len()].payload(token),
            };
            let mut call = self.client.send(run, &hook, &payload);
            if self.rng.bool() {
                call = call.header("from", &self.node.name);
            }
            match call.await {
                Ok(()) => {
                    let sender = format!("{} {hook}", self.node.name);
                    self.acknowledged.lock().sends.entry((sender, run)).or_default().push(token);
                }
                Err(error) => self.log(format_args!("send failed: {}", error.message())),
            }
        }
    }

    /// Sends a message by a call to the world; sometimes twice.
    async fn send_raw(&mut self, run: RunId, body: MessageBody) {
        let is_end = matches!(body, MessageBody::Terminate { .. } | MessageBody::Compensate { .. });
        let id = MessageId::from_bits(self.bits());
        let message = NewMessage { id, run, body, headers: Headers::new() };
        let mut first = None;
        for _ in 0..self.rng.u32(1..3) {
            let answers = self.world.send(vec![message.clone()]).await;
            let Ok([Ok(position)]) = answers.as_deref() else { continue };
            if is_end {
                self.acknowledged.lock().terminated.push(run);
            }
            if *first.get_or_insert(*position) != *position {
                self.env.report_violation(format!("message {id} got two different positions"));
            }
        }
    }

    async fn inspect(&mut self, run: RunId) {
        if self.rng.bool() {
            self.await_output(run);
        }
        let _view = self.client.run(run).await;
        if let Ok(history) = self.client.history(run).await {
            let mut next = 0;
            for turn in history {
                if turn.seq != next {
                    self.env
                        .report_violation(format!("the history of run {run} has a gap before {}", turn.seq));
                }
                next = turn.seq + turn.events.len() as u64;
            }
        }
    }

    /// Waits for the output, in a task of its own.
    fn await_output(&self, run: RunId) {
        let (client, acknowledged) = (self.client.clone(), self.acknowledged.clone());
        tokio::spawn(async move {
            let output = client.handle::<String>(run).output().await;
            if is_final(&output) {
                acknowledged.lock().outputs.push((run, output.map_err(|error| error.message().to_owned())));
            }
        });
    }
}

/// Whether the output tells how the run ended.
fn is_final(output: &Result<String, Error>) -> bool {
    match output {
        Ok(_) => true,
        Err(error) => !error.is_stuck() && error.message() != "lost by the simulation",
    }
}

/// Sends the payloads that open runs wait for, ends pauses, and resumes runs that the complete build left stuck after crashes. Runs
/// that the partial build left stuck continue by themselves. Returns the number of open runs.
pub(super) async fn unblock_runs(
    env: &Arc<Environment>,
    node: &Arc<Node>,
    acknowledged: &Mutex<Acknowledged>,
) -> Result<usize, WorldError> {
    // Queued steps are runs too, and can be stuck as well.
    let query = RunQuery {
        limit: 1_000,
        queued_steps: QueuedSteps::Listed,
        built_in: BuiltInRuns::Listed,
        ..RunQuery::default()
    };
    let mut open = 0;
    delete_schedules(env).await;
    for run in env.inner.runs(query).await?.runs {
        open += usize::from(!run.status.is_final());
        if run.marks.is_paused() {
            env.log("help", format_args!("ends the pause of {}", short_run(run.id)));
            let id = MessageId::from_bits(env.random(|rng| rng.u128(..)));
            let (body, headers) = (MessageBody::Resume, Headers::new());
            let message = NewMessage { id, run: run.id, body, headers };
            let _ended = env.clone().send(node.clone(), vec![message]).await?;
        }
        if run.status == Status::Stuck && run.failed_builds.contains(&Build::Complete.to_string()) {
            env.log("help", format_args!("resumes {}: {:?}", short_run(run.id), run.stuck));
            match env.inner.resume(run.id).await {
                // A conflict: a worker has claimed it meanwhile.
                Ok(()) | Err(WorldError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for wait in run.waits {
            let outlast_core::Wait::Hook { name, .. } = wait else { continue };
            if run.workflow.starts_with(BUILT_IN_PREFIX) {
                continue;
            }
            let token = {
                let mut acknowledged = acknowledged.lock();
                acknowledged.last += 1;
                acknowledged.last
            };
            // The type of the hook is unknown here; one of several random payloads fits.
            let shape = PayloadType::ALL[env.random(|rng| rng.usize(0..PayloadType::ALL.len()))];
            let payload = Payload::json(&shape.payload(token))
                .map_err(|error| WorldError::invalid(error.to_string()))?;
            let id = MessageId::from_bits(u128::from(token) | (0xfeed << 100));
            let wants_reply = env.is_controlled && env.random(|rng| rng.bool());
            if wants_reply {
                let ask = Ask { run: run.id, key: None, outcomes: Vec::new() };
                env.controlled.lock().asks.insert(id, ask);
            }
            let to = HookAddress { token: None, wants_reply };
            let body = MessageBody::Hook { name: name.into(), payload, to };
            let message = NewMessage { id, run: run.id, body, headers: Headers::new() };
            let _ended = env.clone().send(node.clone(), vec![message]).await?;
        }
    }
    Ok(open)
}
