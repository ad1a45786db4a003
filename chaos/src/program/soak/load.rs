//! The mixed load: short runs, sleepers, hooks, children, cancels, retries, and large payloads.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use outlast::core::Clock;
use outlast::prelude::*;
use outlast::{SystemClock, WorkerBuilder, World};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::super::Result;
use super::super::transfer::pass;

/// Bytes of a large payload.
const LARGE_BYTES: usize = 1024 * 1024;

/// How many do each kind of thing at the same time, and how long each rests before it does it again.
const SHORT: (u64, Duration) = (16, Duration::from_millis(40));
const SLEEPERS: (u64, Duration) = (60, Duration::from_millis(100));
const HOOKS: (u64, Duration) = (12, Duration::from_millis(100));
const FAMILIES: (u64, Duration) = (4, Duration::from_millis(150));
const CANCELS: (u64, Duration) = (6, Duration::from_millis(150));
const FLAKY: (u64, Duration) = (4, Duration::from_millis(100));
const LARGE: (u64, Duration) = (1, Duration::from_millis(2_000));

/// A worker for the load, to be started.
pub(super) fn worker(world: Arc<dyn World>) -> WorkerBuilder<()> {
    Worker::builder(world)
        .register((short, sleeper, asks, family, flaky, echo))
        .register((add, stumble, measure))
}

#[workflow]
async fn short(ctx: Context, number: u64) -> Result<u64, Error> {
    let one = ctx.step(add, number).await?;
    let two = ctx.step(add, one).await?;
    ctx.step(add, two).await
}

#[workflow]
async fn sleeper(ctx: Context, millis: u64) -> Result<u64, Error> {
    ctx.sleep(Duration::from_millis(millis)).await?;
    ctx.step(add, millis).await
}

#[workflow]
async fn asks(ctx: Context, number: u64) -> Result<u64, Error> {
    ctx.tag("asks", (number % 10).to_string())?;
    let answer = ctx.hook::<u64>("answer").timeout("1h").await;
    ctx.step(add, number).await?;
    answer
}

#[workflow]
async fn family(ctx: Context, number: u64) -> Result<u64, Error> {
    let children: Vec<_> = (0..4).map(|member| ctx.child(short, number + member)).collect();
    Ok(try_join_all(children).await?.into_iter().sum())
}

#[workflow]
async fn flaky(ctx: Context, number: u64) -> Result<u64, Error> {
    ctx.step(stumble, number).await
}

#[workflow]
async fn echo(ctx: Context, text: String) -> Result<String, Error> {
    ctx.step(measure, &text).await?;
    Ok(text)
}

#[step]
async fn add(number: u64) -> Result<u64, StepError> {
    Ok(number + 1)
}

#[step]
async fn stumble(cx: StepContext<()>, number: u64) -> Result<u64, StepError> {
    if cx.attempt() == 1 {
        return Err(StepError::retry_after("not yet", "20ms"));
    }
    Ok(number + 1)
}

#[step]
async fn measure(text: String) -> Result<usize, StepError> {
    Ok(text.len())
}

/// Load that goes on until it is told to end.
pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    runs: AtomicU64,
    /// How long short runs took since the last look.
    times: Mutex<Times>,
    failed: Mutex<Option<String>>,
}

/// What was measured since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// All runs that ended.
    pub(super) runs: u64,
    /// From start to end of each short one.
    pub(super) short: Vec<Duration>,
}

impl Load {
    /// Begins with everything at once.
    pub(super) fn begin(client: &Client) -> Self {
        let mut load = Self { shared: Arc::default(), tasks: Vec::new() };
        load.add(SHORT, client, do_short);
        load.add(SLEEPERS, client, do_sleeper);
        load.add(HOOKS, client, do_hook);
        load.add(FAMILIES, client, do_family);
        load.add(CANCELS, client, do_cancel);
        load.add(FLAKY, client, do_flaky);
        load.add(LARGE, client, do_large);
        load
    }

    /// Adds several who do the same, again and again.
    fn add<F>(&mut self, (count, rest): (u64, Duration), client: &Client, work: fn(Turn) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        for who in 0..count {
            let (shared, client) = (self.shared.clone(), client.clone());
            self.tasks.push(tokio::spawn(async move {
                let mut number = who << 32;
                while !shared.is_over.load(Ordering::Relaxed) {
                    number += 1;
                    let turn = Turn { client: client.clone(), shared: shared.clone(), number };
                    if let Err(error) = work(turn).await {
                        *shared.failed.lock() = Some(error.to_string());
                        return;
                    }
                    shared.runs.fetch_add(1, Ordering::Relaxed);
                    shared.times.lock().runs += 1;
                    pass(rest).await;
                }
            }));
        }
    }

    /// Fails when something did.
    pub(super) fn check(&self) -> Result<()> {
        match self.shared.failed.lock().clone() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// What was measured since the last look.
    pub(super) fn take_times(&self) -> Times {
        std::mem::take(&mut self.shared.times.lock())
    }

    /// Lets everyone finish what they do. Tells how many were done in all.
    pub(super) async fn end(self, within: Duration) -> Result<u64> {
        self.shared.is_over.store(true, Ordering::Relaxed);
        let until = SystemClock.now().plus(within);
        while !self.tasks.iter().all(JoinHandle::is_finished) {
            if SystemClock.now() > until {
                return Err(format!("some runs did not end within {within:?}").into());
            }
            pass(Duration::from_millis(20)).await;
        }
        self.check()?;
        Ok(self.shared.runs.load(Ordering::Relaxed))
    }
}

/// One thing to do.
struct Turn {
    client: Client,
    shared: Arc<Shared>,
    number: u64,
}

async fn do_short(turn: Turn) -> Result<()> {
    let began = SystemClock.now();
    let output = turn.client.start(short, turn.number).await?.output().await?;
    turn.shared.times.lock().short.push(SystemClock.now().since(began));
    expect(output, turn.number + 3)
}

async fn do_sleeper(turn: Turn) -> Result<()> {
    let millis = 500 + turn.number * 7_919 % 4_000;
    let run = turn.client.start(sleeper, millis).await?;
    expect(run.output().await?, millis + 1)
}

async fn do_hook(turn: Turn) -> Result<()> {
    let run = turn.client.start(asks, turn.number).await?;
    pass(Duration::from_millis(turn.number * 7_919 % 400)).await;
    run.send("answer", &turn.number).await?;
    expect(run.output().await?, turn.number)
}

async fn do_family(turn: Turn) -> Result<()> {
    let run = turn.client.start(family, turn.number).await?;
    expect(run.output().await?, 4 * turn.number + 18)
}

async fn do_cancel(turn: Turn) -> Result<()> {
    let run = turn.client.start(asks, turn.number).await?;
    pass(Duration::from_millis(turn.number * 7_919 % 300)).await;
    run.cancel("enough").await?;
    match run.output().await {
        Err(error) if error.is_cancelled() => Ok(()),
        other => Err(format!("a cancelled run ended with {other:?}").into()),
    }
}

async fn do_flaky(turn: Turn) -> Result<()> {
    let run = turn.client.start(flaky, turn.number).await?;
    expect(run.output().await?, turn.number + 1)
}

async fn do_large(turn: Turn) -> Result<()> {
    let text = "large ".repeat(LARGE_BYTES / 6);
    let output = turn.client.start(echo, &text).await?.output().await?;
    expect(output == text, true)
}

fn expect<T: PartialEq + std::fmt::Debug>(output: T, expected: T) -> Result<()> {
    if output == expected {
        Ok(())
    } else {
        Err(format!("a run returned {output:?}, not {expected:?}").into())
    }
}
