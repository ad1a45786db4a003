//! Log lines of workflow code, in a process with one subscriber: each is logged once, despite replays.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "logs/lines.rs"]
mod lines;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use outlast::core::History;
use outlast::prelude::*;
use outlast::{AttemptId, Register, RunId, WorkerBuilder, World};
use outlast_testkit::TestClock;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, debug, info, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;

use self::lines::Lines;

const SESSION: Duration = Duration::from_secs(1);

/// Two layers with different filters, so that `tracing` evaluates them for each line below the higher level.
struct Logs {
    info: Lines,
    debug: Lines,
}

static LOGS: LazyLock<Logs> = LazyLock::new(|| {
    let logs = Logs { info: Lines::default(), debug: Lines::default() };
    let subscriber = tracing_subscriber::registry()
        .with(logs.info.clone().with_filter(LevelFilter::INFO))
        .with(logs.debug.clone().with_filter(LevelFilter::DEBUG));
    tracing::subscriber::set_global_default(subscriber).unwrap();
    logs
});

/// A world under virtual time.
struct TestWorldWithLogs {
    clock: TestClock,
    world: Arc<dyn World>,
    client: Client,
    _folder: tempfile::TempDir,
}

impl TestWorldWithLogs {
    async fn all() -> Vec<Self> {
        let mut stages = vec![Self::on(|_| "memory:".to_owned()).await];
        stages.push(Self::on(|folder| format!("sqlite:{folder}/runs.db")).await);
        match throwaway::postgres::missing_for_tests() {
            None => stages.push(Self::on(|_| throwaway::postgres::new_schema_url("logs") + "&pool=4").await),
            Some(reason) => throwaway::skipped::report("a test of log lines on Postgres", &reason),
        }
        stages
    }

    async fn on(url: impl FnOnce(&str) -> String) -> Self {
        LazyLock::force(&LOGS);
        let (clock, folder) = (TestClock::new(), tempfile::tempdir().unwrap());
        let url = url(&folder.path().display().to_string());
        let world = outlast::open_with_clock(&url, Arc::new(clock.clone())).await.unwrap();
        let client = Client::new(world.clone());
        Self { clock, world, client, _folder: folder }
    }

    fn builder<R: Register<(), M>, M>(&self, code: R) -> WorkerBuilder<()> {
        Worker::builder(self.world.clone()).session_time(SESSION).register(code)
    }

    /// Crashes the worker's process; another worker replays its runs.
    async fn crash<R: Register<(), M>, M>(&self, worker: Worker, code: R) -> Worker {
        self.clock.settle().await;
        worker.crash();
        self.clock.advance(SESSION);
        let worker = self.builder(code).start().await.unwrap();
        self.clock.settle().await;
        worker
    }

    async fn send(&self, run: RunId, hook: &str) {
        self.clock.settle().await;
        self.client.send(run, hook, &1).await.unwrap();
        self.clock.settle().await;
    }
}

#[step]
async fn work(number: u64) -> u64 {
    number + 1
}

#[workflow]
async fn talkative(ctx: Context) -> Result<u64, Error> {
    let run = ctx.run();
    info!(%run, "began");
    let number = ctx.step(work, 1).await?;
    debug!(%run, "worked");
    info!(%run, "waits for x");
    debug!(%run, "about to wait");
    ctx.hook::<u32>("x").await?;
    info!(%run, "waits for y");
    debug!(%run, "about to wait again");
    ctx.hook::<u32>("y").await?;
    info!(%run, "ends");
    Ok(number)
}

fn assert_each_once(run: RunId) {
    let run = format!("run={run}");
    let info = ["began", "waits for x", "waits for y", "ends"].map(|line| format!("{line} {run}"));
    assert_eq!(LOGS.info.with(&run), info);
    let debug =
        ["began", "worked", "waits for x", "about to wait", "waits for y", "about to wait again", "ends"]
            .map(|line| format!("{line} {run}"));
    assert_eq!(LOGS.debug.with(&run), debug);
}

#[tokio::test]
async fn each_line_is_logged_once_over_crashes_and_replays() {
    for test_world in TestWorldWithLogs::all().await {
        let worker = test_world.builder((talkative, work)).start().await.unwrap();
        let run = test_world.client.start(talkative, ()).await.unwrap();
        let worker = test_world.crash(worker, (talkative, work)).await;
        test_world.send(run.id(), "x").await;
        let _worker = test_world.crash(worker, (talkative, work)).await;
        test_world.send(run.id(), "y").await;
        assert_eq!(run.output().await.unwrap(), 2);
        assert_each_once(run.id());
    }
}

#[tokio::test]
async fn a_paranoid_worker_logs_each_line_once() {
    for test_world in TestWorldWithLogs::all().await {
        let _worker = test_world.builder((talkative, work)).paranoid().start().await.unwrap();
        let run = test_world.client.start(talkative, ()).await.unwrap();
        test_world.send(run.id(), "x").await;
        test_world.send(run.id(), "y").await;
        assert_eq!(run.output().await.unwrap(), 2);
        assert_each_once(run.id());
    }
}

#[tokio::test]
async fn details_of_heartbeats_that_are_too_large_are_warned_of_once_per_attempt() {
    #[step]
    async fn beats(cx: StepContext) -> Result<u32, StepError> {
        if let Some(details) = cx.last_details::<u32>() {
            return Ok(details);
        }
        cx.heartbeat(7);
        for _ in 0..3 {
            cx.heartbeat("x".repeat(5 * 1024 * 1024));
        }
        Err(StepError::retry_after("again", "1s"))
    }
    #[workflow]
    async fn beating(ctx: Context) -> Result<u32, Error> {
        ctx.step(beats, ()).await
    }
    for test_world in TestWorldWithLogs::all().await {
        let _worker = test_world.builder((beating, beats)).start().await.unwrap();
        let run = test_world.client.start(beating, ()).await.unwrap();
        test_world.clock.run_until_idle().await;
        assert_eq!(run.output().await.unwrap(), 7, "those before are kept");
        let lines = LOGS.info.with("the details of a heartbeat are omitted");
        let lines: Vec<_> = lines.iter().filter(|line| line.contains(&format!("run={}", run.id()))).collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        for part in ["step=beats", "5242882 bytes", "the limit is 4194304"] {
            assert!(lines[0].contains(part), "{lines:?}");
        }
    }
}

#[tokio::test]
async fn retries_exhausted_steps_and_failed_runs_are_logged() {
    #[step(attempts = 2)]
    async fn charge(_cx: StepContext) -> Result<u32, StepError> {
        Err(StepError::retry_after("no connection", "1s"))
    }
    #[workflow]
    async fn paying(ctx: Context) -> Result<u32, Error> {
        ctx.step(charge, ()).await
    }
    let test_world = TestWorldWithLogs::on(|_| "memory:".to_owned()).await;
    let worker = test_world.builder((paying, charge)).start().await.unwrap();
    let run = test_world.client.start(paying, ()).await.unwrap();
    test_world.clock.run_until_idle().await;
    run.output().await.unwrap_err();
    let joined = LOGS.info.with(&format!("session={}", worker.session()));
    assert_eq!(joined.len(), 1, "{joined:?}");
    for part in ["the worker joined memory `", "queues=[\"default\"]", "workflows=[\"paying\"]"] {
        assert!(joined[0].contains(part), "{joined:?}");
    }
    let lines = LOGS.info.with(&format!("run={}", run.id()));
    let expected = [
        "attempt 1 of step `charge` failed and is retried: no connection",
        "step `charge` failed after 2 attempts and is not retried: no connection",
        "the run failed: ",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(expected) {
        assert!(line.starts_with(start), "{lines:?}");
    }
}

#[tokio::test]
async fn a_replay_of_an_exported_history_logs_nothing() {
    let test_world = TestWorldWithLogs::on(|_| "memory:".to_owned()).await;
    let _worker = test_world.builder((talkative, work)).start().await.unwrap();
    let run = test_world.client.start(talkative, ()).await.unwrap();
    test_world.send(run.id(), "x").await;
    test_world.send(run.id(), "y").await;
    run.output().await.unwrap();
    let turns = test_world.client.history(run.id()).await.unwrap();
    outlast::replay(talkative, History { run: run.id(), turns }).unwrap();
    assert_each_once(run.id());
}

/// A separate callsite, which a replay reaches before live code does.
fn log_line(run: RunId, word: &str) {
    info!(%run, word, "said");
}

#[workflow(name = "speaker")]
async fn silent(ctx: Context) -> Result<(), Error> {
    ctx.hook::<u32>("x").await.map(drop)
}

#[workflow(name = "speaker")]
async fn speaking(ctx: Context) -> Result<(), Error> {
    log_line(ctx.run(), "in the replay");
    ctx.hook::<u32>("x").await?;
    log_line(ctx.run(), "live");
    Ok(())
}

#[tokio::test]
async fn a_callsite_that_a_replay_reaches_first_is_logged_when_it_is_reached_live() {
    let test_world = TestWorldWithLogs::on(|_| "memory:".to_owned()).await;
    let worker = test_world.builder(silent).start().await.unwrap();
    let run = test_world.client.start(silent, ()).await.unwrap();
    let _worker = test_world.crash(worker, speaking).await;
    test_world.send(run.id(), "x").await;
    run.output().await.unwrap();
    let run = run.id();
    assert_eq!(LOGS.info.with(&run.to_string()), [format!("said run={run} word=\"live\"")]);
}

#[workflow]
async fn spanned(ctx: Context) -> Result<(), Error> {
    let run = ctx.run();
    async {
        info!(%run, "before x");
        ctx.hook::<u32>("x").await?;
        info!(%run, "after x");
        let inner = info_span!("inner", %run, more = tracing::field::Empty);
        inner.record("more", 7);
        async {
            info!(%run, "before y");
            ctx.hook::<u32>("y").await?;
            info!(%run, "after y");
            Ok::<_, Error>(())
        }
        .instrument(inner)
        .await
    }
    .instrument(info_span!("outer", %run))
    .await
}

#[tokio::test]
async fn spans_that_a_replay_makes_hold_the_lines_that_follow_and_are_closed() {
    for test_world in TestWorldWithLogs::all().await {
        let worker = test_world.builder(spanned).start().await.unwrap();
        let run = test_world.client.start(spanned, ()).await.unwrap();
        let worker = test_world.crash(worker, spanned).await;
        test_world.send(run.id(), "x").await;
        let worker = test_world.crash(worker, spanned).await;
        test_world.send(run.id(), "y").await;
        run.output().await.unwrap();
        worker.stop().await.unwrap();
        let run = format!("run={}", run.id());
        let lines = ["outer: before x", "outer: after x", "outer: inner: before y", "outer: inner: after y"];
        assert_eq!(LOGS.info.with(&run), lines.map(|line| format!("{line} {run}")));
        assert_eq!(LOGS.info.open_spans(&run), 0);
    }
}

#[workflow]
async fn rolling(ctx: Context) -> Result<(), Error> {
    // Logged by one layer of two, so that the filters are evaluated each time.
    debug!(run = %ctx.run(), number = ctx.random(), "rolled");
    let number = ctx.random();
    ctx.step(work, number % 10).await?;
    ctx.hook::<u32>("x").await.map(drop)
}

#[tokio::test]
async fn the_fields_of_a_line_are_evaluated_in_a_replay() {
    let test_world = TestWorldWithLogs::on(|_| "memory:".to_owned()).await;
    // The worker compares the run with its replay, which diverges if a random number is skipped.
    let _worker = test_world.builder((rolling, work)).paranoid().start().await.unwrap();
    let run = test_world.client.start(rolling, ()).await.unwrap();
    test_world.send(run.id(), "x").await;
    run.output().await.unwrap();
    assert_eq!(LOGS.debug.with(&run.id().to_string()).len(), 1);
}

#[step]
async fn logging(cx: StepContext, run: RunId) -> AttemptId {
    info!(%run, "in the step");
    cx.attempt_id()
}

#[step(blocking)]
fn logging_slowly(cx: StepContext, run: RunId) -> AttemptId {
    info!(%run, "in the blocking step");
    cx.attempt_id()
}

#[workflow]
async fn two_steps(ctx: Context) -> Result<(AttemptId, AttemptId), Error> {
    Ok((ctx.step(logging, ctx.run()).await?, ctx.step(logging_slowly, ctx.run()).await?))
}

#[tokio::test]
async fn the_lines_of_a_step_are_in_a_span_that_names_its_attempt() {
    let test_world = TestWorldWithLogs::on(|_| "memory:".to_owned()).await;
    let worker = test_world.builder((two_steps, logging, logging_slowly)).start().await.unwrap();
    let run = test_world.client.start(two_steps, ()).await.unwrap();
    let (first, second) = run.output().await.unwrap();
    worker.stop().await.unwrap();
    let run = run.id();
    assert_eq!(
        LOGS.info.with(&format!("run={run}")),
        ["in the step", "in the blocking step"].map(|line| format!("outlast.step: {line} run={run}"))
    );
    let made = [(0, "logging", first), (1, "logging_slowly", second)]
        .map(|(op, step, id)| format!("run={run} op={op} step={step} attempt=1 attempt_id={id} "));
    assert_eq!(LOGS.info.closed_spans(&format!("run={run} op=")), made);
}

/// In real time, since no session expires in virtual time.
#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_lost_because_the_file_is_locked_is_logged_with_that_cause() {
    LazyLock::force(&LOGS);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("orders.db");
    let world = outlast::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let builder = Worker::builder(world).session_time("600ms").register((talkative, work));
    let worker = builder.start().await.unwrap();
    let other = outlast_sqlite::rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let wait_for_line = async |text: &str| {
        let text = format!("{text} sqlite `{}`", path.display());
        let wait = async {
            while LOGS.info.with(&text).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(60), wait).await;
        assert!(waited.is_ok(), "no line with `{text}`");
        LOGS.info.with(&text).remove(0)
    };
    let lost = wait_for_line("session lost, rejoining: no beat reached").await;
    assert!(lost.contains("; is it locked by another process?"), "{lost}");
    other.execute_batch("ROLLBACK").unwrap();
    wait_for_line("the worker rejoined").await;
    worker.stop().await.unwrap();
}
