//! The crew: workers that come, go, freeze, are cut off and are killed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::{Error, Worker, WorkerBuilder};
use parking_lot::Mutex;

use super::client::{Caller, Promises};
use super::clock::sleep;
use super::ledger::Desk;
use super::node::Node;
use super::program::{FAR, hasty, once, play, play_older, rare, work, work_older};
use super::signal::Signal;
use super::stage::{Stage, brief};
use super::world::SimWorld;

/// What the simulation is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Things go wrong.
    Chaos,
    /// Nothing goes wrong any more, and all work is done.
    Calm,
    /// Workers stop.
    Stop,
}

/// What its workers are built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Build {
    /// All the code.
    All,
    /// All but one workflow and two steps; in some seeds it is also older, and cannot read all values. It is taken out of service when it becomes calm.
    Some,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Some => "some",
        })
    }
}

/// What happens to a worker from outside.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Crash,
    Freeze(Duration),
    CutOff(Duration),
    Stop,
}

/// A place for a worker: when one is gone, another comes.
pub(super) struct Slot {
    pub(super) stage: Arc<Stage>,
    pub(super) promises: Arc<Mutex<Promises>>,
    pub(super) phase: Arc<Signal<Phase>>,
    pub(super) build: Build,
    pub(super) rng: Rng,
}

/// How the life of one worker ended.
enum End {
    Gone,
    /// The simulation is over.
    Over,
}

impl Slot {
    /// Workers, one after the other, until the simulation stops.
    pub(super) async fn fill(mut self) {
        loop {
            match self.one_life().await {
                Ok(End::Over) => return,
                Ok(End::Gone) => {}
                Err(error) => self.stage.note("", format_args!("no worker: {}", error.message())),
            }
            if self.phase.get() >= self.last_phase() {
                return;
            }
            sleep(Duration::from_millis(self.rng.u64(0..3_000))).await;
        }
    }

    async fn one_life(&mut self) -> Result<End, Error> {
        let node = self.stage.node("w");
        let world = SimWorld::new(&self.stage, &node);
        let starting = self.builder(&world, &node).start();
        let worker = tokio::select! {
            biased;
            () = node.died() => {
                self.bury(&node, None);
                return Ok(End::Gone);
            }
            worker = starting => worker?,
        };
        if self.rng.u32(0..3) == 0 && !self.stage.is_calm() {
            let caller = Caller::new(&self.stage, &node, world.clone(), &self.promises);
            tokio::spawn(caller.act(self.rng.u32(1..6), Duration::from_millis(2_000)));
        }
        Ok(self.live(worker, &node).await)
    }

    fn builder(&mut self, world: &Arc<SimWorld>, node: &Arc<Node>) -> WorkerBuilder<Desk> {
        let rng = &mut self.rng;
        let desk = Desk { stage: self.stage.clone(), node: node.clone() };
        let session = Duration::from_millis(rng.u64(1_000..6_000));
        let mut builder = Worker::builder(world.clone())
            .state(desk)
            .build(self.build.to_string())
            .session_time(session)
            .drain(Duration::from_millis(rng.u64(0..5_000)))
            .live_runs([1, 2, 5, 100][rng.usize(0..4)])
            .cached_futures([0, 1, 100][rng.usize(0..3)]);
        builder = match self.build {
            Build::All => builder.register((play, work, rare, once, hasty)),
            Build::Some if self.stage.profile.has_older_build => builder.register((play_older, work_older)),
            Build::Some => builder.register((play, work)),
        };
        if self.stage.profile.has_old_rules && self.build == Build::Some {
            builder = builder.rules(1);
        }
        if self.stage.profile.has_queues {
            let served = if self.build == Build::Some { rng.usize(0..3) } else { 0 };
            let all: &[&str] = &["default", FAR];
            builder = builder.queues([all, &all[..1], &all[1..]][served].iter().copied());
        }
        // Most turns have only a few events: often they are committed in parts.
        builder = builder.part_events([1, 2, 3, 5, 500][rng.usize(0..5)]);
        if rng.u32(0..4) == 0 { builder.paranoid() } else { builder }
    }

    /// Lets things happen to a worker until it is gone.
    async fn live(&mut self, worker: Worker, node: &Arc<Node>) -> End {
        loop {
            let after = Duration::from_millis(self.rng.u64(0..15_000));
            let has_fates = self.stage.profile.has_fates && !self.stage.is_calm();
            let fate = async {
                if !has_fates {
                    return std::future::pending().await;
                }
                sleep(after).await;
            };
            tokio::select! {
                biased;
                () = node.died() => {
                    self.bury(node, Some(worker));
                    return End::Gone;
                }
                () = self.reached(self.last_phase()) => {
                    self.stop(worker, node).await;
                    return End::Over;
                }
                () = fate => {}
            }
            if self.stage.is_calm() {
                continue;
            }
            match self.any_fate() {
                Fate::Crash => {
                    self.stage.note(&node.name, format_args!("is killed"));
                    node.kill();
                }
                Fate::Freeze(time) => self.freeze(node, time).await,
                Fate::CutOff(time) => {
                    self.stage.note(&node.name, format_args!("is cut off for {time:?}"));
                    node.cut_off(time);
                }
                Fate::Stop => {
                    self.stop(worker, node).await;
                    return End::Gone;
                }
            }
        }
    }

    /// When its workers are no longer needed.
    fn last_phase(&self) -> Phase {
        if self.build == Build::Some { Phase::Calm } else { Phase::Stop }
    }

    async fn reached(&self, wanted: Phase) {
        self.phase.is(|phase| phase >= wanted).await;
    }

    fn any_fate(&mut self) -> Fate {
        let time = Duration::from_millis(self.rng.u64(0..10_000));
        match self.rng.u32(0..10) {
            0..=2 => Fate::Crash,
            3..=5 => Fate::Freeze(time),
            6 | 7 => Fate::CutOff(time),
            _ => Fate::Stop,
        }
    }

    async fn freeze(&self, node: &Arc<Node>, time: Duration) {
        self.stage.note(&node.name, format_args!("is frozen for {time:?}"));
        self.stage.witness.lock().tally.freezes += 1;
        node.freeze();
        tokio::select! {
            biased;
            () = self.reached(Phase::Calm) => {}
            () = sleep(time) => {}
        }
        self.stage.note(&node.name, format_args!("goes on"));
        node.thaw();
    }

    async fn stop(&self, worker: Worker, node: &Arc<Node>) {
        self.stage.note(&node.name, format_args!("stops"));
        // It does not beat while it says good-bye.
        node.excuse();
        tokio::select! {
            biased;
            () = node.died() => self.bury(node, None),
            stopped = worker.stop() => {
                self.stage.note(&node.name, format_args!("stopped: {}", stopped.is_ok()));
                // The process ends with it, whatever it left behind.
                node.kill();
            }
        }
    }

    /// A process is gone: some worlds notice that at once, others when its session's time is over.
    fn bury(&self, node: &Node, worker: Option<Worker>) {
        self.stage.witness.lock().tally.crashes += 1;
        if let Some(worker) = worker {
            worker.crash();
        }
        if self.stage.chance(|rng| rng.bool()) {
            for session in node.sessions() {
                self.stage.note(&node.name, format_args!("session {} looks gone", brief(session)));
                self.stage.kill(session);
            }
        }
    }
}
