//! A program with runs of all kinds: sequential and parallel steps, timers, hooks, retries, a race, a cancel, queued
//! steps, awaited and abandoned children, a tag and a recorded value.

use std::sync::Arc;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{RunView, SystemClock, Wait, World};
use outlast_conformance::KillerWorld;
use tokio::sync::Notify;

use crate::forked_program;
use crate::process_folder::{Ack, Outputs, ProcessFolder};

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 12] = [
    ExpectedRun { key: "sequence", output: "one two three", branches: 1, is_deterministic: true },
    ExpectedRun { key: "parallel", output: "a b c left right", branches: 3, is_deterministic: true },
    ExpectedRun { key: "timer", output: "before after", branches: 1, is_deterministic: true },
    ExpectedRun { key: "review", output: "early late true tell", branches: 1, is_deterministic: true },
    ExpectedRun { key: "flaky", output: "attempt 3", branches: 1, is_deterministic: true },
    ExpectedRun { key: "race", output: "won prize", branches: 2, is_deterministic: true },
    ExpectedRun {
        key: "stopped",
        output: "Cancelled: cancelled: enough",
        branches: 1,
        is_deterministic: true,
    },
    ExpectedRun { key: "queued", output: "left right", branches: 2, is_deterministic: true },
    ExpectedRun {
        key: "family",
        output: "7 first second Conflict photo",
        branches: 1,
        is_deterministic: true,
    },
    ExpectedRun { key: "family/first", output: "first", branches: 1, is_deterministic: true },
    ExpectedRun { key: "family/second", output: "second", branches: 1, is_deterministic: true },
    ExpectedRun { key: "family/gone", output: "gone", branches: 1, is_deterministic: true },
];

/// The expected result of a run.
#[derive(Debug)]
pub(crate) struct ExpectedRun {
    pub(crate) key: &'static str,
    pub(crate) output: &'static str,
    /// The maximum number of its concurrent steps.
    pub(crate) branches: usize,
    /// Whether it makes the same attempts at every kill point.
    pub(crate) is_deterministic: bool,
}

/// When the runs are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum StartOrder {
    /// Each run starts when the previous one has ended, so every turn is a commit of its own.
    Sequential,
    /// All runs start at once, so turns share commits.
    Concurrent,
}

/// How the worker continues after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Replay {
    /// With the future it has.
    WhenNeeded,
    /// With a replayed one.
    EveryTurn,
}

/// Starts all runs, answers and cancels them, and waits until all have ended. It may be killed at any time and run
/// again.
pub(crate) async fn run(
    process_folder: &ProcessFolder,
    world: Arc<KillerWorld>,
    order: StartOrder,
    replay: Replay,
) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let state = StepState { process_folder: process_folder.clone(), loser_began: Notify::new() };
    let mut builder = Worker::builder(world.clone())
        .state(state)
        .queues(["default", "far"])
        // Small parts, so that a process is also killed between two parts of a turn.
        .part_events(2)
        .register((sequence, parallel, timer, review, flaky, race, stopped, queued, family, member))
        .register((mark, fail_twice, win, lose));
    if replay == Replay::EveryTurn {
        builder = builder.paranoid();
    }
    if order == StartOrder::Sequential && process_folder.world_url.is_none() {
        // Long, so that the next process takes over because of the lock, and not because the session expired.
        builder = builder.session_time("60s");
    }
    let worker = builder.start().await?;
    let driver = Driver { process_folder: process_folder.clone(), client: Client::new(world), order };
    let outputs = driver.run().await?;
    worker.stop().await?;
    Ok(outputs)
}

struct Driver {
    process_folder: ProcessFolder,
    client: Client,
    order: StartOrder,
}

/// Starts a run with the workflow's name as its key.
macro_rules! start {
    ($driver:expr, $workflow:ident) => {{
        let key = stringify!($workflow).to_owned();
        let run = $driver.client.start($workflow, &key).key(&key).await?;
        $driver.process_folder.log_ack(&Ack::Started(key));
        run
    }};
}

impl Driver {
    async fn run(&self) -> Result<Outputs, Error> {
        match self.order {
            StartOrder::Sequential => self.run_sequentially().await,
            StartOrder::Concurrent => self.run_concurrently().await,
        }
    }

    async fn run_sequentially(&self) -> Result<Outputs, Error> {
        let mut outputs = Outputs::new();
        log_output(&self.process_folder, &start!(self, sequence), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, parallel), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, timer), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, flaky), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, race), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, queued), &mut outputs).await?;
        log_output(&self.process_folder, &start!(self, family), &mut outputs).await?;
        self.log_children(&mut outputs).await?;
        let review = start!(self, review);
        self.answer_early(&review).await?;
        self.answer_late(&review).await?;
        log_output(&self.process_folder, &review, &mut outputs).await?;
        let stopped = start!(self, stopped);
        self.cancel(&stopped).await?;
        log_output(&self.process_folder, &stopped, &mut outputs).await?;
        Ok(outputs)
    }

    async fn run_concurrently(&self) -> Result<Outputs, Error> {
        let review = start!(self, review);
        self.answer_early(&review).await?;
        let stopped = start!(self, stopped);
        let others = [
            start!(self, sequence),
            start!(self, parallel),
            start!(self, timer),
            start!(self, flaky),
            start!(self, race),
            start!(self, queued),
            start!(self, family),
        ];
        try_join!(self.answer_late(&review), self.cancel(&stopped))?;
        let mut outputs = Outputs::new();
        for run in others.iter().chain([&review, &stopped]) {
            log_output(&self.process_folder, run, &mut outputs).await?;
        }
        self.log_children(&mut outputs).await?;
        Ok(outputs)
    }

    async fn log_children(&self, outputs: &mut Outputs) -> Result<(), Error> {
        for member in ["first", "second", "gone"] {
            let run = self.client.find(format!("family/{member}")).await?;
            log_output(
                &self.process_folder,
                &run.ok_or_else(|| Error::msg(format!("no child {member}")))?,
                outputs,
            )
            .await?;
        }
        Ok(())
    }

    /// Sends the first payload, usually before the run waits for it.
    async fn answer_early(&self, review: &RunHandle<String>) -> Result<(), Error> {
        if review.view().await?.sent == 0 {
            review.send("early", &"early").await?;
            self.process_folder.log_ack(&Ack::Sent("review".into(), 1));
        }
        Ok(())
    }

    /// Sends the second payload when the run waits for it.
    async fn answer_late(&self, review: &RunHandle<String>) -> Result<(), Error> {
        let view = self.wait_for(review, |view| view.sent > 1 || waits_for(view, "late")).await?;
        if view.sent == 1 {
            review.send("late", &"late").await?;
            self.process_folder.log_ack(&Ack::Sent("review".into(), 2));
        }
        Ok(())
    }

    /// Cancels a run that waits.
    async fn cancel(&self, stopped: &RunHandle<String>) -> Result<(), Error> {
        let view = self.wait_for(stopped, |view| view.sent > 0 || waits_for(view, "never")).await?;
        if view.sent == 0 {
            stopped.cancel("enough").await?;
            self.process_folder.log_ack(&Ack::Sent("stopped".into(), 1));
        }
        Ok(())
    }

    async fn wait_for(
        &self,
        run: &RunHandle<String>,
        is_met: impl Fn(&RunView) -> bool,
    ) -> Result<RunView, Error> {
        loop {
            let view = run.view().await?;
            if is_met(&view) {
                return Ok(view);
            }
            sleep("2ms").await;
        }
    }
}

/// Waits for the end of a run, and logs its output.
pub(crate) async fn log_output(
    process_folder: &ProcessFolder,
    run: &RunHandle<String>,
    outputs: &mut Outputs,
) -> Result<(), Error> {
    let output = run.output().await;
    let key = run.view().await?.key.or_else(|| forked_program::key_of(run.id())).unwrap();
    process_folder.log_ack(&Ack::Ended(key.clone()));
    outputs.insert(key, output.unwrap_or_else(|error| format!("{:?}: {}", error.kind(), error.message())));
    Ok(())
}

pub(crate) fn waits_for(view: &RunView, hook: &str) -> bool {
    view.waits.iter().any(|wait| matches!(wait, Wait::Hook { name, .. } if name == hook))
}

/// Waits in real time.
pub(crate) async fn sleep(time: &str) {
    let time = outlast::IntoDuration::into_duration(time).unwrap();
    SystemClock.sleep_until(SystemClock.now().plus(time)).await;
}

// --- workflows ---

#[workflow]
async fn sequence(ctx: Context, key: String) -> Result<String, Error> {
    let one = ctx.step(mark, named(&key, "one")).await?;
    let two = ctx.step(mark, named(&key, "two")).await?;
    let three = ctx.step(mark, named(&key, "three")).await?;
    Ok([one, two, three].join(" "))
}

#[workflow]
async fn parallel(ctx: Context, key: String) -> Result<String, Error> {
    let (left, right) = try_join!(ctx.step(mark, named(&key, "left")), ctx.step(mark, named(&key, "right")))?;
    let mut parts: FuturesUnordered<_> =
        ["a", "b", "c"].into_iter().map(|part| ctx.step(mark, named(&key, part))).collect();
    let mut ended = vec![left, right];
    while let Some(part) = parts.next().await {
        ended.push(part?);
    }
    // The order of their ends differs from process to process.
    ended.sort();
    Ok(ended.join(" "))
}

#[workflow]
async fn timer(ctx: Context, key: String) -> Result<String, Error> {
    let before = ctx.step(mark, named(&key, "before")).await?;
    ctx.sleep("10ms").await?;
    let after = ctx.step(mark, named(&key, "after")).await?;
    Ok(format!("{before} {after}"))
}

#[workflow]
async fn review(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(mark, named(&key, "ask")).await?;
    let early = ctx.hook::<String>("early").timeout("1h").await?;
    let late = ctx.hook::<String>("late").timeout("1h").await?;
    let nobody = ctx.hook::<String>("nobody").timeout("5ms").await;
    let silence = nobody.is_err_and(|error| error.is_timeout());
    let told = ctx.step(mark, named(&key, "tell")).await?;
    Ok(format!("{early} {late} {silence} {told}"))
}

#[workflow]
async fn flaky(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(fail_twice, &key).await
}

#[workflow]
async fn race(ctx: Context, key: String) -> Result<String, Error> {
    let first = select! {
        won = ctx.step(win, &key) => won?,
        lost = ctx.step(lose, &key) => lost?,
        late = ctx.sleep("1h") => {
            late?;
            "late".to_owned()
        }
    };
    let prize = ctx.step(mark, named(&key, "prize")).await?;
    Ok(format!("{first} {prize}"))
}

#[workflow]
async fn stopped(ctx: Context, key: String) -> Result<String, Error> {
    ctx.step(mark, named(&key, "reserve")).await?;
    let answer = ctx.hook::<String>("never").await;
    ctx.shielded().step(mark, named(&key, "release")).await?;
    answer
}

#[workflow]
async fn queued(ctx: Context, key: String) -> Result<String, Error> {
    let far = |name: &str| ctx.step(mark, named(&key, name)).queue("far");
    let (left, right) = try_join!(far("left"), far("right"))?;
    Ok(format!("{left} {right}"))
}

#[workflow]
async fn family(ctx: Context, key: String) -> Result<String, Error> {
    ctx.tag("kind", "family")?;
    let seven: u32 = ctx.record("seven", || 7)?;
    let child = |name: &str| ctx.child(member, name.to_owned()).key(format!("{key}/{name}"));
    let gone = child("gone").abandon();
    let (first, second) = try_join!(child("first"), child("second").timeout("1h"))?;
    gone.await?;
    let taken = child("first").await.unwrap_err();
    let photo = ctx.step(mark, named(&key, "photo")).await?;
    Ok(format!("{seven} {first} {second} {:?} {photo}", taken.kind()))
}

#[workflow]
async fn member(ctx: Context, name: String) -> Result<String, Error> {
    ctx.sleep("2ms").await?;
    ctx.step(mark, named(&format!("family/{name}"), &name)).await
}

fn named(key: &str, name: &str) -> (String, String) {
    (key.into(), name.into())
}

// --- steps ---

#[derive(Debug)]
struct StepState {
    process_folder: ProcessFolder,
    loser_began: Notify,
}

#[step]
async fn mark(cx: StepContext<StepState>, key: String, name: String) -> Result<String, StepError> {
    cx.state().process_folder.log_effect(&cx, &key, &name);
    Ok(name)
}

#[step]
async fn fail_twice(cx: StepContext<StepState>, key: String) -> Result<String, StepError> {
    cx.state().process_folder.log_effect(&cx, &key, "fail_twice");
    if cx.attempt() < 3 {
        return Err(StepError::retry_after("not yet", "5ms"));
    }
    Ok(format!("attempt {}", cx.attempt()))
}

/// Wins when the loser has begun, so that both have effects.
#[step]
async fn win(cx: StepContext<StepState>, key: String) -> Result<String, StepError> {
    cx.state().process_folder.log_effect(&cx, &key, "win");
    cx.state().loser_began.notified().await;
    Ok("won".into())
}

#[step]
async fn lose(cx: StepContext<StepState>, key: String) -> Result<String, StepError> {
    cx.state().process_folder.log_effect(&cx, &key, "lose");
    cx.state().loser_began.notify_one();
    cx.cancelled().await;
    Ok("lost".into())
}
