//! What a process counts about a world.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::Arc;
use std::time::Duration;

use outlast::prelude::*;
use outlast::{HistogramValue, MetricValue, Status};
use outlast_testkit::TestClock;

#[step(attempts = 2, initial = "1s")]
async fn charge(cents: u64) -> Result<u64, StepError> {
    match cents {
        13 => Err(StepError::msg("declined")),
        14 => panic!("a bug"),
        cents => Ok(cents),
    }
}

#[step]
async fn refund(_cents: u64) -> Result<(), StepError> {
    Ok(())
}

#[step(timeout = "1s", attempts = 1)]
async fn slow(_cents: u64) -> Result<(), StepError> {
    std::future::pending().await
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.step(charge, cents).await
}

#[workflow]
async fn parent(ctx: Context) -> Result<u64, Error> {
    ctx.stream("log").write("hello");
    ctx.sleep("1h").await?;
    ctx.child(checkout, 7).await
}

#[workflow]
async fn asks(ctx: Context) -> Result<u64, Error> {
    ctx.hook::<u64>("answer").await
}

#[workflow]
async fn undoes(ctx: Context) -> Result<(), Error> {
    ctx.compensate(refund, 5)?;
    ctx.step(charge, 5).await?;
    ctx.step(slow, 1).await
}

#[workflow]
async fn broken(_ctx: Context) -> Result<(), Error> {
    panic!("a bug")
}

struct Counted {
    clock: TestClock,
    client: Client,
    worker: Worker,
}

impl Counted {
    async fn new() -> Self {
        let clock = TestClock::new();
        let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
        let code = (checkout, parent, asks, undoes, broken, charge, refund, slow);
        let worker = Worker::builder(world.clone()).register(code).build("build-1").start().await.unwrap();
        Self { clock, client: Client::new(world), worker }
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<MetricValue> {
        let families = self.client.metrics();
        let family =
            families.into_iter().find(|family| family.name == name).unwrap_or_else(|| panic!("no {name}"));
        let is_it = |sample: &outlast::MetricSample| {
            labels.iter().all(|(name, value)| sample.labels.iter().any(|(n, v)| n == name && v == value))
        };
        family.samples.into_iter().find(is_it).map(|sample| sample.value)
    }

    fn number(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        match self.value(name, labels) {
            Some(MetricValue::Number(number)) => number,
            None => 0.0,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn histogram(&self, name: &str, labels: &[(&str, &str)]) -> HistogramValue {
        match self.value(name, labels) {
            Some(MetricValue::Histogram(value)) => value,
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn runs_steps_turns_and_commits_are_counted() {
    let counted = Counted::new().await;
    let ok = counted.client.start(checkout, 1).await.unwrap();
    ok.output().await.unwrap();
    for cents in [13, 14] {
        let failed = counted.client.start(checkout, cents).await.unwrap();
        // The pause before the second attempt.
        counted.clock.settle().await;
        counted.clock.advance(Duration::from_secs(2));
        failed.output().await.unwrap_err();
    }
    let started = [("workflow", "checkout"), ("queue", "default")];
    assert_eq!(counted.number("outlast_runs_started_total", &started), 3.0);
    let ended =
        |status| counted.number("outlast_runs_ended_total", &[("workflow", "checkout"), ("status", status)]);
    assert_eq!((ended("completed"), ended("failed")), (1.0, 2.0));
    let attempts =
        |outcome| counted.number("outlast_step_attempts_total", &[("step", "charge"), ("outcome", outcome)]);
    assert_eq!((attempts("completed"), attempts("failed"), attempts("panicked")), (1.0, 2.0, 2.0));
    assert_eq!(counted.number("outlast_step_attempts_active", &[("step", "charge")]), 0.0);
    assert_eq!(counted.number("outlast_steps_exhausted_total", &[("step", "charge")]), 2.0);
    let turns = counted.number("outlast_turns_total", &[]);
    let commits = counted.histogram("outlast_commit_turns", &[("world", "memory")]);
    assert!(turns >= 6.0 && commits.sum >= turns, "{turns} {commits:?}");
    assert!(counted.histogram("outlast_turn_duration_seconds", &[]).count > 0);
    assert_eq!(counted.number("outlast_build_info", &[("build", "build-1"), ("world", "memory")]), 1.0);
    assert!(counted.number("outlast_live_runs_limit", &[]) > 0.0);
    counted.worker.stop().await.unwrap();
}

#[tokio::test]
async fn children_timers_claims_and_streams_are_counted() {
    let counted = Counted::new().await;
    let run = counted.client.start(parent, ()).await.unwrap();
    counted.clock.settle().await;
    assert_eq!(counted.number("outlast_cached_futures", &[]), 1.0);
    counted.clock.advance(Duration::from_secs(3_605));
    run.output().await.unwrap();
    assert_eq!(counted.number("outlast_runs_started_total", &[("workflow", "checkout")]), 1.0, "a child");
    let lag = counted.histogram("outlast_timer_lag_seconds", &[]);
    assert_eq!((lag.count, lag.sum.round()), (1, 5.0));
    let delay = counted.histogram("outlast_claim_delay_seconds", &[("queue", "default")]);
    assert!(delay.count >= 2, "the timer, and the end of the child: {delay:?}");
    assert_eq!(counted.number("outlast_stream_chunks_total", &[]), 1.0);
    assert!(counted.number("outlast_stream_bytes_total", &[]) >= 5.0);
    counted.worker.stop().await.unwrap();
}

#[tokio::test]
async fn hooks_compensations_and_stuck_runs_are_counted() {
    let counted = Counted::new().await;
    let run = counted.client.start(asks, ()).await.unwrap();
    counted.clock.settle().await;
    counted.client.send(run.id(), "answer", "not a number").await.unwrap();
    counted.clock.settle().await;
    counted.client.send(run.id(), "answer", &7).await.unwrap();
    run.output().await.unwrap();
    counted.client.send(run.id(), "answer", &8).await.unwrap_err();
    let deliveries = |outcome| counted.number("outlast_hook_deliveries_total", &[("outcome", outcome)]);
    assert_eq!((deliveries("delivered"), deliveries("rejected"), deliveries("closed")), (1.0, 1.0, 1.0));

    let run = counted.client.start(undoes, ()).await.unwrap();
    // The attempt counts as work in progress until it is timed out.
    let timeout = counted.clock.now().plus(Duration::from_secs(1));
    while counted.clock.next_sleeper() != Some(timeout) {
        tokio::task::yield_now().await;
    }
    counted.clock.advance(Duration::from_secs(1));
    run.output().await.unwrap_err();
    assert_eq!(counted.number("outlast_compensations_total", &[("outcome", "completed")]), 1.0);
    let timed_out = [("step", "slow"), ("outcome", "timed_out")];
    assert_eq!(counted.number("outlast_step_attempts_total", &timed_out), 1.0);
    let duration = counted.histogram("outlast_step_attempt_duration_seconds", &timed_out);
    assert_eq!(duration.sum.round(), 1.0);

    let run = counted.client.start(broken, ()).await.unwrap();
    counted.clock.settle().await;
    assert_eq!(run.view().await.unwrap().status, Status::Stuck);
    assert_eq!(counted.number("outlast_stuck_total", &[("reason", "panicked")]), 1.0);
    counted.worker.stop().await.unwrap();
}

#[tokio::test]
async fn takeovers_and_replays_are_counted() {
    let counted = Counted::new().await;
    let run = counted.client.start(parent, ()).await.unwrap();
    counted.clock.settle().await;
    let world = counted.client.world().clone();
    counted.worker.crash();
    counted.clock.advance(Duration::from_secs(60));
    let code = (checkout, parent, charge);
    let worker = Worker::builder(world).register(code).start().await.unwrap();
    counted.clock.advance(Duration::from_secs(3_600));
    run.output().await.unwrap();
    let families = counted.client.metrics();
    let sum = |name: &str| -> f64 {
        let family = families.iter().find(|family| family.name == name).unwrap();
        let number = |sample: &outlast::MetricSample| match &sample.value {
            MetricValue::Number(number) => *number,
            other => panic!("{other:?}"),
        };
        family.samples.iter().map(number).sum()
    };
    assert_eq!(sum("outlast_replays_total"), 1.0);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn schedules_are_counted() {
    let counted = Counted::new().await;
    let schedule = counted.client.schedule("often").every("1h").start(checkout, 3).await.unwrap();
    counted.clock.settle().await;
    counted.clock.advance(Duration::from_secs(3_600));
    counted.clock.settle().await;
    let firings = |outcome| counted.number("outlast_schedule_firings_total", &[("outcome", outcome)]);
    assert_eq!((firings("started"), firings("completed")), (1.0, 1.0));
    assert_eq!(counted.histogram("outlast_schedule_lag_seconds", &[]).count, 1);
    drop(schedule);
    counted.worker.stop().await.unwrap();
}
