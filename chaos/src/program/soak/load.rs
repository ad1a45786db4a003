//! The mixed load: short runs, timers, hooks, children, cancels, retries, and large payloads.

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
use super::super::transfer::sleep;

/// Bytes of a large payload.
const LARGE_BYTES: usize = 1024 * 1024;

/// For each kind of load: the number of concurrent tasks, and the pause between two runs.
const SHORT: (u64, Duration) = (16, Duration::from_millis(40));
const SLEEPERS: (u64, Duration) = (60, Duration::from_millis(100));
const HOOKS: (u64, Duration) = (12, Duration::from_millis(100));
const PARENTS: (u64, Duration) = (4, Duration::from_millis(150));
const CANCELS: (u64, Duration) = (6, Duration::from_millis(150));
const FLAKY: (u64, Duration) = (4, Duration::from_millis(100));
const LARGE: (u64, Duration) = (1, Duration::from_millis(2_000));

/// The builder of a worker for the load.
pub(super) fn worker(world: Arc<dyn World>) -> WorkerBuilder<()> {
    Worker::builder(world).register((short, sleeper, asks, family, flaky, echo)).register((
        add,
        fail_first_attempt,
        measure,
    ))
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
    ctx.step(fail_first_attempt, number).await
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
async fn fail_first_attempt(cx: StepContext<()>, number: u64) -> Result<u64, StepError> {
    if cx.attempt() == 1 {
        return Err(StepError::retry_after("not yet", "20ms"));
    }
    Ok(number + 1)
}

#[step]
async fn measure(text: String) -> Result<usize, StepError> {
    Ok(text.len())
}

/// A load that runs until it is stopped.
pub(super) struct Load {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_stopped: AtomicBool,
    runs: AtomicU64,
    /// The durations since the last sample.
    times: Mutex<Times>,
    failed: Mutex<Option<String>>,
}

/// The durations since the last sample.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// The number of ended runs.
    pub(super) runs: u64,
    /// The duration of each short run.
    pub(super) short: Vec<Duration>,
}

impl Load {
    /// Starts all tasks.
    pub(super) fn begin(client: &Client) -> Self {
        let mut load = Self { shared: Arc::default(), tasks: Vec::new() };
        load.add(SHORT, client, do_short);
        load.add(SLEEPERS, client, do_sleeper);
        load.add(HOOKS, client, do_hook);
        load.add(PARENTS, client, do_family);
        load.add(CANCELS, client, do_cancel);
        load.add(FLAKY, client, do_flaky);
        load.add(LARGE, client, do_large);
        load
    }

    /// Starts tasks that repeat the same work.
    fn add<F>(&mut self, (count, rest): (u64, Duration), client: &Client, work: fn(LoadIteration) -> F)
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        for who in 0..count {
            let (shared, client) = (self.shared.clone(), client.clone());
            self.tasks.push(tokio::spawn(async move {
                let mut number = who << 32;
                while !shared.is_stopped.load(Ordering::Relaxed) {
                    number += 1;
                    let iteration = LoadIteration { client: client.clone(), shared: shared.clone(), number };
                    if let Err(error) = work(iteration).await {
                        *shared.failed.lock() = Some(error.to_string());
                        return;
                    }
                    shared.runs.fetch_add(1, Ordering::Relaxed);
                    shared.times.lock().runs += 1;
                    sleep(rest).await;
                }
            }));
        }
    }

    /// Fails when a task has failed.
    pub(super) fn check(&self) -> Result<()> {
        match self.shared.failed.lock().clone() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// The durations since the last sample.
    pub(super) fn take_times(&self) -> Times {
        std::mem::take(&mut self.shared.times.lock())
    }

    /// Lets all tasks finish. Returns the total number of runs.
    pub(super) async fn end(self, within: Duration) -> Result<u64> {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        let until = SystemClock.now().plus(within);
        while !self.tasks.iter().all(JoinHandle::is_finished) {
            if SystemClock.now() > until {
                return Err(format!("some runs did not end within {within:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        self.check()?;
        Ok(self.shared.runs.load(Ordering::Relaxed))
    }
}

/// One iteration of a task.
struct LoadIteration {
    client: Client,
    shared: Arc<Shared>,
    number: u64,
}

async fn do_short(iteration: LoadIteration) -> Result<()> {
    let began = SystemClock.now();
    let output = iteration.client.start(short, iteration.number).await?.output().await?;
    iteration.shared.times.lock().short.push(SystemClock.now().since(began));
    expect(output, iteration.number + 3)
}

async fn do_sleeper(iteration: LoadIteration) -> Result<()> {
    let millis = 500 + iteration.number * 7_919 % 4_000;
    let run = iteration.client.start(sleeper, millis).await?;
    expect(run.output().await?, millis + 1)
}

async fn do_hook(iteration: LoadIteration) -> Result<()> {
    let run = iteration.client.start(asks, iteration.number).await?;
    sleep(Duration::from_millis(iteration.number * 7_919 % 400)).await;
    run.send("answer", &iteration.number).await?;
    expect(run.output().await?, iteration.number)
}

async fn do_family(iteration: LoadIteration) -> Result<()> {
    let run = iteration.client.start(family, iteration.number).await?;
    expect(run.output().await?, 4 * iteration.number + 18)
}

async fn do_cancel(iteration: LoadIteration) -> Result<()> {
    let run = iteration.client.start(asks, iteration.number).await?;
    sleep(Duration::from_millis(iteration.number * 7_919 % 300)).await;
    run.cancel("enough").await?;
    match run.output().await {
        Err(error) if error.is_cancelled() => Ok(()),
        other => Err(format!("a cancelled run ended with {other:?}").into()),
    }
}

async fn do_flaky(iteration: LoadIteration) -> Result<()> {
    let run = iteration.client.start(flaky, iteration.number).await?;
    expect(run.output().await?, iteration.number + 1)
}

async fn do_large(iteration: LoadIteration) -> Result<()> {
    let text = "large ".repeat(LARGE_BYTES / 6);
    let output = iteration.client.start(echo, &text).await?.output().await?;
    expect(output == text, true)
}

fn expect<T: PartialEq + std::fmt::Debug>(output: T, expected: T) -> Result<()> {
    if output == expected {
        Ok(())
    } else {
        Err(format!("a run returned {output:?}, not {expected:?}").into())
    }
}
