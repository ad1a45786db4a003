//! Release and live runs: a waiting run uses only a row, and continues without replay while it is cached.

use outlast::core::{MessageBody, MessageId, NewMessage};
use outlast::prelude::*;
use outlast::{Headers, Payload, Status, Wait};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    histories_that_a_claim_left_out_are_read_together,
    a_run_that_only_waits_is_released,
    a_run_with_an_attempt_under_way_stays_owned,
    a_cached_run_continues_without_replay,
    an_evicted_run_continues_with_a_replay,
    the_run_used_least_recently_is_evicted_first,
    no_more_runs_are_held_than_the_limit,
    no_more_runs_are_held_than_the_limit_though_one_starts_during_a_claim,
    a_woken_run_is_offered_first_to_the_worker_that_has_its_future,
    a_woken_run_is_taken_by_another_worker_when_its_own_is_gone,
}
on_every_world! { threads: a_thousand_runs_pass_through_a_worker_that_holds_ten }

#[workflow]
async fn sum(ctx: Context) -> Result<u32, Error> {
    trace(ctx.run(), "began");
    let mut sum = 0;
    for _ in 0..3 {
        sum += ctx.hook::<u32>("x").await?;
    }
    Ok(sum)
}

async fn a_run_that_only_waits_is_released(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<(), Error> {
        join!(ctx.sleep("1h"), ctx.hook::<u32>("x").timeout("2h"), ctx.flaky(1)).0
    }
    let worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.owner), (Status::Waiting, None));
    assert_eq!(view.wake_at, Some(engine.time_after_begin("1s")));
    assert_eq!(
        view.waits,
        [
            Wait::Timer { op: 0, until: engine.time_after_begin("1h") },
            Wait::Hook { op: 1, name: "x".into(), until: Some(engine.time_after_begin("2h")), token: None },
            Wait::Retry { op: 2, name: "flaky".into(), until: engine.time_after_begin("1s") },
        ]
    );
    assert_eq!(engine.client.workers().await.unwrap()[0].held, 0);
    worker.stop().await.unwrap();
}

async fn a_run_with_an_attempt_under_way_stays_owned(engine: TestEngine) {
    #[workflow]
    async fn works(ctx: Context) -> Result<(), Error> {
        let _step = ctx.blocked("slow");
        ctx.hook::<u32>("x").await.map(drop)
    }
    let worker = engine.worker(works).await;
    let run = engine.client.start(works, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(worker.session())));
    engine.send(run.id(), "x", 1).await;
    run.output().await.unwrap();
}

async fn a_cached_run_continues_without_replay(engine: TestEngine) {
    let _worker = engine.caching_builder().register(sum).start().await.unwrap();
    let run = engine.client.start(sum, ()).await.unwrap();
    for payload in [1, 2, 3] {
        engine.send(run.id(), "x", payload).await;
        engine.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 1);
}

async fn an_evicted_run_continues_with_a_replay(engine: TestEngine) {
    let _worker = engine.caching_builder().cached_futures(0).register(sum).start().await.unwrap();
    let run = engine.client.start(sum, ()).await.unwrap();
    for payload in [1, 2, 3] {
        engine.settle().await;
        engine.send(run.id(), "x", payload).await;
        engine.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 4);
}

async fn the_run_used_least_recently_is_evicted_first(engine: TestEngine) {
    let _worker = engine.caching_builder().cached_futures(2).register(sum).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(engine.client.start(sum, ()).await.unwrap().id());
        engine.settle().await;
    }
    // The cache has 1 and 2. Waking 0 makes room by evicting 1.
    for run in [0, 2, 1] {
        engine.send(runs[run], "x", 1).await;
        engine.settle().await;
    }
    let began: Vec<_> = runs.iter().map(|run| traces(*run, "began")).collect();
    assert_eq!(began, [2, 2, 1]);
}

#[workflow]
async fn slow(ctx: Context) -> Result<(), Error> {
    ctx.blocked("slow").await.map(drop)
}

async fn no_more_runs_are_held_than_the_limit(engine: TestEngine) {
    let worker = engine.builder().live_runs(2).register(slow).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(engine.client.start(slow, ()).await.unwrap());
    }
    engine.steps.wait_for_log("began slow", 2).await;
    let counts = engine.client.counts().await.unwrap();
    assert_eq!((counts[&Status::Running], counts[&Status::Pending]), (2, 3));
    assert_eq!(engine.client.workers().await.unwrap()[0].held, 2);
    assert_eq!(engine.steps.count("began slow"), 2);
    engine.steps.open("slow");
    for run in runs {
        run.output().await.unwrap();
    }
    worker.stop().await.unwrap();
}

async fn no_more_runs_are_held_than_the_limit_though_one_starts_during_a_claim(engine: TestEngine) {
    let first = engine.client.start(slow, ()).await.unwrap();
    let claim = engine.faults.hold(Call::Claim);
    let _worker = engine.builder().live_runs(1).register(slow).start().await.unwrap();
    claim.wait_for_call().await;
    let second = engine.client.start(slow, ()).await.unwrap();
    claim.open();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.wait_for_status(first.id(), Status::Running).await;
    assert_eq!(engine.status(second.id()).await, Status::Pending);
    engine.steps.open("slow");
    first.output().await.unwrap();
    second.output().await.unwrap();
}

async fn a_woken_run_is_offered_first_to_the_worker_that_has_its_future(engine: TestEngine) {
    let _first = engine.caching_builder().register(sum).start().await.unwrap();
    let run = engine.client.start(sum, ()).await.unwrap();
    engine.settle().await;
    let _second = engine.caching_builder().register(sum).start().await.unwrap();
    engine.settle().await;
    for payload in [1, 2, 3] {
        engine.send(run.id(), "x", payload).await;
        engine.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 1, "the second worker did not get it");
}

async fn a_woken_run_is_taken_by_another_worker_when_its_own_is_gone(engine: TestEngine) {
    let first = engine.caching_builder().register(sum).start().await.unwrap();
    let run = engine.client.start(sum, ()).await.unwrap();
    engine.settle().await;
    let _second = engine.caching_builder().register(sum).start().await.unwrap();
    first.stop().await.unwrap();
    for payload in [1, 2, 3] {
        engine.send(run.id(), "x", payload).await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 2);
}

async fn a_thousand_runs_pass_through_a_worker_that_holds_ten(engine: TestEngine) {
    #[workflow]
    async fn short(ctx: Context, number: u32) -> Result<u32, Error> {
        ctx.note("one").await?;
        ctx.sleep("1m").await?;
        ctx.note("two").await?;
        Ok(number)
    }
    let worker = engine.builder().live_runs(10).register(short).start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..1_000 {
        runs.push(engine.client.start(short, number).await.unwrap());
    }
    engine.clock.run_until_idle().await;
    for (number, run) in runs.into_iter().enumerate() {
        assert_eq!(run.output().await.unwrap(), number as u32);
    }
    assert_eq!((engine.steps.count("one"), engine.steps.count("two")), (1_000, 1_000));
    assert!(engine.steps.concurrent_max() <= 10, "{} steps at the same time", engine.steps.concurrent_max());
    worker.stop().await.unwrap();
}

async fn histories_that_a_claim_left_out_are_read_together(engine: TestEngine) {
    #[workflow]
    async fn hooked(ctx: Context) -> Result<u32, Error> {
        ctx.hook("x").await
    }
    const RUNS: usize = 20;
    let _worker = engine.caching_builder().cached_futures(0).register(hooked).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(engine.client.start(hooked, ()).await.unwrap());
    }
    engine.settle().await;
    let before = engine.faults.count(Call::Histories);
    let message = |(number, run): (usize, &RunHandle<u32>)| NewMessage {
        id: MessageId::from_bits(number as u128 + 1),
        run: run.id(),
        body: MessageBody::Hook {
            name: "x".into(),
            payload: Payload::json(&7).unwrap(),
            to: Default::default(),
        },
        headers: Headers::new(),
    };
    for sent in engine.world.send(runs.iter().enumerate().map(message).collect()).await.unwrap() {
        sent.unwrap();
    }
    for run in runs {
        assert_eq!(run.output().await.unwrap(), 7);
    }
    assert_eq!(engine.faults.sizes(Call::Histories)[before..], [RUNS]);
}
