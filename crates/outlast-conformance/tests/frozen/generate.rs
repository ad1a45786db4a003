//! How the frozen histories were generated. They are not generated again.
//!
//! Half of them are histories of the simulation (`simulation::histories`) of that time. The other half are from a
//! scenario of their own with features that the simulation lacks: payloads, inputs and outputs of another type than
//! the code expects, deadlines and tags given by clients, heartbeats. Both used the engine of that time, on the world
//! in memory and in virtual time.
//!
//! ```text
//! cargo test -p outlast-conformance --test frozen -- --ignored freeze
//! ```
//!
//! It does not overwrite existing files, and fails if a new run has other rules than 1.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use outlast::prelude::*;
use outlast::test_support::Simulated;
use outlast::test_support::frozen::{FrozenCode, lines_of};
use outlast::{MemoryWorld, RunId};
use outlast_conformance::simulation;
use outlast_core::{Busy, Clock, Event, History, QueuedSteps, RunQuery, Timestamp, Wait, World};
use outlast_testkit::TestClock;

use super::program::{Ending, FAR, Job, Leaf, PLAY_A_NUMBER, Program, QUEUES, hasty, once, play, rare, work};
use super::record::Frozen;
use super::{FILES, HISTORIES, code, path};

/// The maximum size of a history: larger ones cover nothing more.
const BYTES_MAX: usize = 10_000;

/// The maximum number of histories per seed, so that many seeds are used.
const PER_SEED_MAX: usize = 5;

#[test]
#[ignore = "the histories are frozen: this wrote them once"]
fn freeze() {
    for file in FILES.map(path) {
        assert!(!file.exists(), "{} is there, and is not written again", file.display());
    }
    let seeds = (0..).flat_map(|seed| [seed, simulation::QUEUED_SEEDS + seed]);
    let simulated = seeds.map(|seed| (format!("simulation {seed}"), simulation::histories(seed)));
    let with_values = (0..).map(|seed| (format!("values {seed}"), values(seed)));
    let half = HISTORIES / 2;
    let (simulated, with_values) = (choose(simulated, half), choose(with_values, half));
    let all: Vec<_> = simulated.into_iter().chain(with_values).collect();
    for (file, histories) in FILES.iter().zip(all.chunks(HISTORIES / FILES.len())) {
        std::fs::write(path(file), histories.join("")).unwrap();
    }
}

/// Takes some histories of each seed until there are `wanted`.
fn choose(seeds: impl Iterator<Item = (String, Vec<History>)>, wanted: usize) -> Vec<String> {
    let code = code();
    let mut chosen = Vec::new();
    for (from, mut histories) in seeds {
        // Three at random, then those with the most kinds of events.
        Rng::with_seed(chosen.len() as u64).shuffle(&mut histories);
        let rest = histories.len().min(3);
        histories[rest..].sort_by_key(|history| std::cmp::Reverse(kinds(history)));
        let mut taken = 0;
        for history in histories {
            assert_rules_1(&history);
            // A history without a turn of a worker covers little.
            if taken == PER_SEED_MAX || history.turns.len() < 2 {
                continue;
            }
            let frozen = Frozen::of(&code, from.clone(), &history);
            let line = serde_json::to_string(&frozen).unwrap() + "\n";
            if line.len() > BYTES_MAX {
                continue;
            }
            assert!(frozen.difference(&code).is_none(), "{from} does not replay as itself");
            assert_turns_again(&code, &history);
            taken += 1;
            chosen.push(line);
            if chosen.len() == wanted {
                return chosen;
            }
        }
    }
    chosen
}

/// Every turn that is computed again is the one that was recorded, so that it is known what a digest stands for.
fn assert_turns_again(code: &FrozenCode, History { run, turns }: &History) {
    for (at, turn) in turns.iter().enumerate() {
        assert_eq!(code.turn_after(*run, &turns[..at], turn).0, lines_of(&turn.events), "turn {at} of {run}");
    }
}

/// The number of kinds of events in a history.
fn kinds(history: &History) -> usize {
    let events = history.turns.iter().flat_map(|turn| &turn.events);
    events.map(Event::kind).collect::<BTreeSet<_>>().len()
}

/// A build whose new runs have other rules cannot generate histories with rules 1.
fn assert_rules_1(history: &History) {
    let mut started = String::new();
    Event::write_all(&history.turns[0].events[..1], &mut started);
    let started: serde_json::Value = serde_json::from_str(&started).unwrap();
    let rules = started[0].get("rules").map_or(Some(1), serde_json::Value::as_u64);
    assert_eq!(rules, Some(1), "new runs of this build have other rules; the histories stay as they are");
}

/// The histories of a scenario in which values often have another type.
fn values(seed: u64) -> Vec<History> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.unwrap();
    let clock = {
        let _entered = runtime.enter();
        PausedClock(tokio::time::Instant::now())
    };
    runtime.block_on(async {
        let _simulated = Simulated::begin(seed, Arc::new(clock.clone()));
        let world = Arc::new(MemoryWorld::new(Arc::new(clock.clone())));
        let mut scenario =
            Scenario { client: Client::new(world.clone()), world, rng: Rng::with_seed(seed), sent: 0 };
        scenario.run_scenario().await;
        scenario.histories().await
    })
}

struct Scenario {
    world: Arc<MemoryWorld>,
    client: Client,
    rng: Rng,
    sent: u64,
}

impl Scenario {
    async fn run_scenario(&mut self) {
        let mut workers = vec![self.worker().await, self.worker().await];
        for _ in 0..self.rng.u32(8..30) {
            sleep_millis(self.rng.u64(0..2_000)).await;
            if self.rng.u32(0..12) == 0 {
                workers.remove(0).crash();
                workers.push(self.worker().await);
            }
            self.run_action().await;
        }
        // Some runs stay open.
        for _ in 0..self.rng.u32(0..12) {
            sleep_millis(3_000).await;
            self.answer_hooks().await;
        }
        for worker in workers {
            worker.crash();
        }
    }

    async fn worker(&mut self) -> Worker {
        let builder = Worker::builder(self.world.clone())
            .register((play, rare, work, once, hasty))
            .build("frozen")
            .queues(["default", FAR])
            .session_time(Duration::from_millis(self.rng.u64(1_000..6_000)))
            .cached_futures([0, 1, 100][self.rng.usize(0..3)]);
        let builder = if self.rng.u32(0..4) == 0 { builder.paranoid() } else { builder };
        builder.start().await.unwrap()
    }

    async fn run_action(&mut self) {
        let runs = self.all_open_runs().await;
        let waiting = self.open_runs(|wait| matches!(wait, Wait::Hook { .. })).await;
        let asleep = self.open_runs(|wait| matches!(wait, Wait::Timer { .. })).await;
        let parents = self.open_runs(|wait| matches!(wait, Wait::Child { .. })).await;
        let rng = &mut self.rng;
        let what = rng.u32(0..24);
        let of = match what {
            8..=11 => &waiting,
            12..=15 => &asleep,
            16 | 17 => &parents,
            _ => &runs,
        };
        match (what, rng.choice(of).copied()) {
            (0..=7, _) | (_, None) => self.start().await,
            (8..=11, Some(run)) => self.send(run).await,
            (12..=15, Some(run)) => drop(self.client.wake(run).await),
            (22, Some(run)) => drop(self.client.terminate(run, "at once").await),
            (_, Some(run)) => drop(self.client.cancel(run, "it is enough").await),
        }
    }

    async fn start(&mut self) {
        let program = any_program(&mut self.rng, 3);
        let client = self.client.clone();
        let start = match self.rng.u32(0..12) {
            0 | 1 => client.start(PLAY_A_NUMBER, 7),
            2..=4 => client.start(rare, &program),
            _ => client.start(play, &program),
        };
        let start = if self.rng.bool() { start.header(QUEUES, "") } else { start };
        let start = if self.rng.bool() { start.tag("by", "hand") } else { start };
        let delay = self.rng.u64(0..3_000);
        let limit = delay + self.rng.u64(1..10_000);
        let start = if self.rng.u32(0..3) > 0 { start.deadline(format!("{limit}ms")) } else { start };
        let start = if self.rng.u32(0..4) == 0 { start.after(format!("{delay}ms")) } else { start };
        let start = if self.rng.u32(0..4) == 0 { start.priority(self.rng.u8(0..10)) } else { start };
        start.await.unwrap();
    }

    /// Sends a payload, mostly of another type than the workflow expects.
    async fn send(&mut self, run: RunId) {
        let hook = format!("hook-{}", self.rng.u8(0..2));
        self.sent += 1;
        let number = serde_json::json!(self.sent);
        let other = [serde_json::json!("seven"), serde_json::json!({"n": 7}), serde_json::json!(-1.5)];
        let payload = if self.rng.u32(0..3) == 0 { &number } else { &other[self.rng.usize(0..3)] };
        // It may have ended meanwhile.
        let _refused = self.client.send(run, hook, payload).await;
    }

    /// Sends to runs that wait for a payload.
    async fn answer_hooks(&mut self) {
        for run in self.open_runs(|wait| matches!(wait, Wait::Hook { .. })).await {
            self.send(run).await;
        }
    }

    /// The runs that have not ended and wait for something like this.
    async fn open_runs(&self, is_wanted: impl Fn(&Wait) -> bool) -> Vec<RunId> {
        let runs = self.world.runs(query()).await.unwrap().runs.into_iter();
        let open = runs.filter(|run| !run.status.is_final());
        open.filter(|run| run.waits.iter().any(&is_wanted)).map(|run| run.id).collect()
    }

    async fn all_open_runs(&self) -> Vec<RunId> {
        let runs = self.world.runs(query()).await.unwrap().runs.into_iter();
        runs.filter(|run| !run.status.is_final()).map(|run| run.id).collect()
    }

    async fn histories(&self) -> Vec<History> {
        let mut histories = Vec::new();
        for run in self.world.runs(query()).await.unwrap().runs {
            histories.push(History { run: run.id, turns: self.client.history(run.id).await.unwrap() });
        }
        histories
    }
}

fn query() -> RunQuery {
    RunQuery { limit: 1_000, queued_steps: QueuedSteps::Listed, ..RunQuery::default() }
}

/// Time that passes when no task has work.
#[derive(Clone, Debug)]
struct PausedClock(tokio::time::Instant);

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        TestClock::BEGIN.plus(self.0.elapsed())
    }

    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = Busy> + Send>> {
        let clock = self.clone();
        Box::pin(async move {
            sleep_millis(at.since(clock.now()).as_micros().div_ceil(1_000) as u64).await;
            Busy::uncounted()
        })
    }

    fn busy(&self) -> Busy {
        Busy::uncounted()
    }

    fn is_virtual(&self) -> bool {
        false
    }
}

#[allow(clippy::disallowed_methods, reason = "the time of the runtime is paused: this is virtual time")]
async fn sleep_millis(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// A random program of at most this nesting depth.
fn any_program(rng: &mut Rng, depth: u32) -> Program {
    let parts = (0..rng.usize(1..5)).map(|_| any_part(rng, depth)).collect();
    let goes_on = rng.bool();
    let guard = |part| if goes_on { Program::Try(Box::new(part)) } else { part };
    let parts: Vec<Program> = parts;
    Program::Seq(parts.into_iter().map(guard).collect())
}

fn any_part(rng: &mut Rng, depth: u32) -> Program {
    if depth == 0 || rng.u32(0..3) == 0 {
        return any_simple(rng, depth);
    }
    let depth = depth - 1;
    let some = |rng: &mut Rng| (0..rng.usize(1..4)).map(|_| any_part(rng, depth)).collect::<Vec<_>>();
    let boxed = |rng: &mut Rng| Box::new(any_part(rng, depth));
    match rng.u32(0..14) {
        0 | 1 => Program::Seq(some(rng)),
        2 => Program::Join(some(rng)),
        3 => Program::Unordered(some(rng)),
        4 | 5 => Program::Race(some(rng)),
        6 => Program::RaceUnordered(some(rng)),
        7 => Program::DropAfter(any_leaf(rng, depth), boxed(rng)),
        8 => Program::AwaitAfter(any_leaf(rng, depth), boxed(rng)),
        9 => Program::CleanUp(boxed(rng), boxed(rng)),
        10 => Program::Parallel(some(rng), rng.usize(1..4)),
        11 => Program::Patch(rng.u8(0..2), boxed(rng), boxed(rng)),
        12 => Program::Toss(some(rng)),
        _ => Program::Try(boxed(rng)),
    }
}

fn any_simple(rng: &mut Rng, depth: u32) -> Program {
    match rng.u32(0..28) {
        0 => Program::Forget(any_leaf(rng, depth)),
        1 => Program::Record(rng.u8(0..2)),
        2 => Program::Tag(rng.u8(0..2)),
        3 => Program::Fail,
        26 | 27 => Program::Look,
        4 | 5 => Program::Take(rng.u8(0..2), rng.u8(1..4)),
        _ => Program::Await(any_leaf(rng, depth)),
    }
}

fn any_leaf(rng: &mut Rng, depth: u32) -> Leaf {
    match rng.u32(0..19) {
        0..=3 => Leaf::Work(any_job(rng)),
        4 => Leaf::Once(any_job(rng)),
        5 => Leaf::Hasty(any_job(rng)),
        6 => Leaf::Call(rng.u8(0..3)),
        7..=9 => Leaf::Sleep(any_millis(rng)),
        10..=12 => Leaf::Hook(rng.u8(0..2), rng.bool().then(|| any_millis(rng))),
        13 | 14 if depth > 0 => Leaf::Child {
            program: Box::new(any_program(rng, depth - 1)),
            timeout: (rng.u32(0..3) == 0).then(|| any_millis(rng)),
            end: [ParentEnd::Cancel, ParentEnd::Wait, ParentEnd::Abandon][rng.usize(0..3)],
            key: (rng.u32(0..4) == 0).then(|| rng.u8(0..3)),
            is_rare: rng.u32(0..4) == 0,
        },
        15 if depth > 0 => Leaf::Abandoned {
            program: Box::new(any_program(rng, depth - 1)),
            key: rng.bool().then(|| rng.u8(0..3)),
        },
        16 => Leaf::Misread(any_job(rng)),
        17 if depth > 0 => Leaf::MisreadChild(Box::new(any_program(rng, depth - 1))),
        18 => Leaf::MisledChild(rng.u64(0..9)),
        _ => Leaf::Call(rng.u8(0..3)),
    }
}

fn any_job(rng: &mut Rng) -> Job {
    let millis = if rng.bool() { rng.u64(0..50) } else { any_millis(rng) };
    let fails = if rng.bool() { 0 } else { rng.u32(0..5) };
    let ending = [Ending::Error, Ending::Error, Ending::Fatal, Ending::Panic][rng.usize(0..4)];
    Job { millis, fails, ending, heeds: rng.u32(0..3) == 0, beats: rng.u32(0..3) == 0 }
}

/// A duration: most are short.
fn any_millis(rng: &mut Rng) -> u64 {
    match rng.u32(0..4) {
        0 => rng.u64(0..10),
        1 => rng.u64(0..300),
        2 => rng.u64(0..3_000),
        _ => rng.u64(0..15_000),
    }
}
