//! Workers that are started, stopped, frozen, disconnected and killed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{Error, Worker, WorkerBuilder};
use parking_lot::Mutex;

use super::attempt_log::StepState;
use super::client::{Acknowledged, SimulatedClient};
use super::clock::sleep;
use super::environment::{Environment, short_session};
use super::node::Node;
use super::orchestration::{cascading, finished, retried, stream_work, undo_plain, undo_work};
use super::program::{FAR, once, play, play_older, rare, time_limited, work, work_older};
use super::signal::Signal;
use super::world::SimulatedWorld;

/// The phase of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Faults happen.
    Chaos,
    /// No more faults; all runs end.
    Calm,
    /// Workers stop.
    Stop,
}

/// The build of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// All the code.
    Complete,
    /// All but one workflow and two steps. In some seeds it is also older, and cannot read all values. Its workers stop
    /// when the faults end.
    Partial,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Complete => "complete",
            Self::Partial => "partial",
        })
    }
}

/// A fault of a worker that does not come from one of its calls.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    Crash,
    Freeze(Duration),
    Disconnect(Duration),
    Stop,
}

/// A slot for a worker: when one ends, another is started.
pub(super) struct WorkerSlot {
    pub(super) env: Arc<Environment>,
    pub(super) acknowledged: Arc<Mutex<Acknowledged>>,
    pub(super) phase: Arc<Signal<Phase>>,
    pub(super) build: Build,
    pub(super) rng: Rng,
}

/// How a worker ended.
enum WorkerEnd {
    Ended,
    /// The simulation is over.
    Over,
}

impl WorkerSlot {
    /// Runs workers, one after the other, until the simulation stops.
    pub(super) async fn run(mut self) {
        loop {
            match self.run_one_worker().await {
                Ok(WorkerEnd::Over) => return,
                Ok(WorkerEnd::Ended) => {}
                Err(error) => self.env.log("", format_args!("worker did not start: {}", error.message())),
            }
            if self.phase.get() >= self.last_phase() {
                return;
            }
            sleep(Duration::from_millis(self.rng.u64(0..3_000))).await;
        }
    }

    async fn run_one_worker(&mut self) -> Result<WorkerEnd, Error> {
        let node = self.env.node("w");
        let world = SimulatedWorld::new(&self.env, &node);
        let starting = self.builder(&world, &node).start();
        let worker = tokio::select! {
            biased;
            () = node.killed() => {
                self.record_crash(&node, None);
                return Ok(WorkerEnd::Ended);
            }
            worker = starting => worker?,
        };
        if self.rng.u32(0..3) == 0 && !self.env.is_calm() {
            let client = SimulatedClient::new(&self.env, &node, world.clone(), &self.acknowledged);
            tokio::spawn(client.run_actions(self.rng.u32(1..6), Duration::from_millis(2_000)));
        }
        Ok(self.disturb_until_ended(worker, &node).await)
    }

    fn builder(&mut self, world: &Arc<SimulatedWorld>, node: &Arc<Node>) -> WorkerBuilder<StepState> {
        let rng = &mut self.rng;
        let step_state = StepState { env: self.env.clone(), node: node.clone() };
        let session = Duration::from_millis(rng.u64(1_000..6_000));
        let mut builder = Worker::builder(world.clone())
            .state(step_state)
            .build(self.build.to_string())
            .session_time(session)
            .drain(Duration::from_millis(rng.u64(0..5_000)))
            .live_runs([1, 2, 5, 100][rng.usize(0..4)])
            .cached_futures([0, 1, 100][rng.usize(0..3)]);
        builder = match self.build {
            Build::Complete => builder.register((play, work, rare, once, time_limited)),
            Build::Partial if self.env.profile.has_older_build => builder.register((play_older, work_older)),
            Build::Partial => builder.register((play, work)),
        };
        if self.env.profile.is_orchestrated {
            builder = builder.register((undo_work, undo_plain));
            if self.build == Build::Complete {
                builder = builder.register((retried, cascading, stream_work, finished));
            }
        }
        if self.env.profile.has_old_rules && self.build == Build::Partial {
            builder = builder.rules(1);
        }
        if self.env.profile.has_queues {
            let served = if self.build == Build::Partial { rng.usize(0..3) } else { 0 };
            let all: &[&str] = &["default", FAR];
            builder = builder.queues([all, &all[..1], &all[1..]][served].iter().copied());
        }
        // Turns have few events, so small parts are needed to commit turns in parts.
        builder = builder.part_events([1, 2, 3, 5, 500][rng.usize(0..5)]);
        if rng.u32(0..4) == 0 { builder.paranoid() } else { builder }
    }

    /// Disturbs a worker until it has ended.
    async fn disturb_until_ended(&mut self, worker: Worker, node: &Arc<Node>) -> WorkerEnd {
        loop {
            let after = Duration::from_millis(self.rng.u64(0..15_000));
            let has_disturbances = self.env.profile.has_disturbances && !self.env.is_calm();
            let disturbance = async {
                if !has_disturbances {
                    return std::future::pending().await;
                }
                sleep(after).await;
            };
            tokio::select! {
                biased;
                () = node.killed() => {
                    self.record_crash(node, Some(worker));
                    return WorkerEnd::Ended;
                }
                () = self.reached(self.last_phase()) => {
                    self.stop(worker, node).await;
                    return WorkerEnd::Over;
                }
                () = disturbance => {}
            }
            if self.env.is_calm() {
                continue;
            }
            match self.random_disturbance() {
                Disturbance::Crash => {
                    self.env.log(&node.name, format_args!("is killed"));
                    node.kill();
                }
                Disturbance::Freeze(time) => self.freeze(node, time).await,
                Disturbance::Disconnect(time) => {
                    self.env.log(&node.name, format_args!("is cut off for {time:?}"));
                    node.disconnect(time);
                }
                Disturbance::Stop => {
                    self.stop(worker, node).await;
                    return WorkerEnd::Ended;
                }
            }
        }
    }

    /// The phase in which its workers stop.
    fn last_phase(&self) -> Phase {
        if self.build == Build::Partial { Phase::Calm } else { Phase::Stop }
    }

    async fn reached(&self, wanted: Phase) {
        self.phase.is(|phase| phase >= wanted).await;
    }

    fn random_disturbance(&mut self) -> Disturbance {
        let time = Duration::from_millis(self.rng.u64(0..10_000));
        match self.rng.u32(0..10) {
            0..=2 => Disturbance::Crash,
            3..=5 => Disturbance::Freeze(time),
            6 | 7 => Disturbance::Disconnect(time),
            _ => Disturbance::Stop,
        }
    }

    async fn freeze(&self, node: &Arc<Node>, time: Duration) {
        self.env.log(&node.name, format_args!("is frozen for {time:?}"));
        self.env.observer.lock().statistics.freezes += 1;
        node.freeze();
        tokio::select! {
            biased;
            () = self.reached(Phase::Calm) => {}
            () = sleep(time) => {}
        }
        self.env.log(&node.name, format_args!("continues"));
        node.thaw();
    }

    async fn stop(&self, worker: Worker, node: &Arc<Node>) {
        self.env.log(&node.name, format_args!("stops"));
        // It sends no beats while it leaves.
        node.allow_session_loss();
        tokio::select! {
                    biased;
                    () = node.killed() => self.record_crash(node, None),
                    stopped = worker.stop() => {
                        self.env.log(&node.name, format_args!("stopped: {}", stopped.is_ok()));
        // The process ends with the worker.
                        node.kill();
                    }
                }
    }

    /// Counts a dead process. By chance the world notices the death at once; otherwise the session expires.
    fn record_crash(&self, node: &Node, worker: Option<Worker>) {
        self.env.observer.lock().statistics.crashes += 1;
        if let Some(worker) = worker {
            worker.crash();
        }
        if self.env.random(|rng| rng.bool()) {
            for session in node.sessions() {
                self.env
                    .log(&node.name, format_args!("session {} is marked as dead", short_session(session)));
                self.env.kill(session);
            }
        }
    }
}
