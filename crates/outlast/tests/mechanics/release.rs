//! Release and live runs: a waiting run costs a row, and goes on without replay while it is cached.

use outlast::core::{MessageBody, MessageId, NewMessage};
use outlast::prelude::*;
use outlast::{Headers, Payload, Status, Wait};

use super::faulty::Call;
use super::rig::{Ask, Rig, on_every_world, trace, traces};

on_every_world! {
    histories_that_a_claim_left_out_are_read_together,
    a_run_that_only_waits_is_released,
    a_run_with_an_attempt_under_way_stays_owned,
    a_cached_run_goes_on_without_replay,
    an_evicted_run_goes_on_with_a_replay,
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

async fn a_run_that_only_waits_is_released(rig: Rig) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<(), Error> {
        join!(ctx.sleep("1h"), ctx.hook::<u32>("x").timeout("2h"), ctx.flaky(1)).0
    }
    let worker = rig.worker(waits).await;
    let run = rig.client.start(waits, ()).await.unwrap();
    rig.settle().await;
    let view = rig.view(run.id()).await;
    assert_eq!((view.status, view.owner), (Status::Waiting, None));
    assert_eq!(view.wake_at, Some(rig.moment("1s")));
    assert_eq!(
        view.waits,
        [
            Wait::Timer { op: 0, until: rig.moment("1h") },
            Wait::Hook { op: 1, name: "x".into(), until: Some(rig.moment("2h")) },
            Wait::Retry { op: 2, name: "flaky".into(), until: rig.moment("1s") },
        ]
    );
    assert_eq!(rig.client.workers().await.unwrap()[0].held, 0);
    worker.stop().await.unwrap();
}

async fn a_run_with_an_attempt_under_way_stays_owned(rig: Rig) {
    #[workflow]
    async fn works(ctx: Context) -> Result<(), Error> {
        let _step = ctx.blocked("slow");
        ctx.hook::<u32>("x").await.map(drop)
    }
    let worker = rig.worker(works).await;
    let run = rig.client.start(works, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    let view = rig.view(run.id()).await;
    assert_eq!((view.status, view.owner), (Status::Running, Some(worker.session())));
    rig.send(run.id(), "x", 1).await;
    run.output().await.unwrap();
}

async fn a_cached_run_goes_on_without_replay(rig: Rig) {
    let _worker = rig.caching().register(sum).start().await.unwrap();
    let run = rig.client.start(sum, ()).await.unwrap();
    for payload in [1, 2, 3] {
        rig.send(run.id(), "x", payload).await;
        rig.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 1);
}

async fn an_evicted_run_goes_on_with_a_replay(rig: Rig) {
    let _worker = rig.caching().cached_futures(0).register(sum).start().await.unwrap();
    let run = rig.client.start(sum, ()).await.unwrap();
    for payload in [1, 2, 3] {
        rig.settle().await;
        rig.send(run.id(), "x", payload).await;
        rig.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 4);
}

async fn the_run_used_least_recently_is_evicted_first(rig: Rig) {
    let _worker = rig.caching().cached_futures(2).register(sum).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(rig.client.start(sum, ()).await.unwrap().id());
        rig.settle().await;
    }
    // The cache has 1 and 2. Waking 0 makes room by evicting 1.
    for run in [0, 2, 1] {
        rig.send(runs[run], "x", 1).await;
        rig.settle().await;
    }
    let began: Vec<_> = runs.iter().map(|run| traces(*run, "began")).collect();
    assert_eq!(began, [2, 2, 1]);
}

#[workflow]
async fn slow(ctx: Context) -> Result<(), Error> {
    ctx.blocked("slow").await.map(drop)
}

async fn no_more_runs_are_held_than_the_limit(rig: Rig) {
    let worker = rig.builder().live_runs(2).register(slow).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(rig.client.start(slow, ()).await.unwrap());
    }
    rig.desk.until("began slow", 2).await;
    let counts = rig.client.counts().await.unwrap();
    assert_eq!((counts[&Status::Running], counts[&Status::Pending]), (2, 3));
    assert_eq!(rig.client.workers().await.unwrap()[0].held, 2);
    assert_eq!(rig.desk.count("began slow"), 2);
    rig.desk.open("slow");
    for run in runs {
        run.output().await.unwrap();
    }
    worker.stop().await.unwrap();
}

async fn no_more_runs_are_held_than_the_limit_though_one_starts_during_a_claim(rig: Rig) {
    let first = rig.client.start(slow, ()).await.unwrap();
    let claim = rig.faults.hold(Call::Claim);
    let _worker = rig.builder().live_runs(1).register(slow).start().await.unwrap();
    claim.arrived().await;
    let second = rig.client.start(slow, ()).await.unwrap();
    claim.open();
    rig.desk.until("began slow", 1).await;
    rig.until(first.id(), Status::Running).await;
    assert_eq!(rig.status(second.id()).await, Status::Pending);
    rig.desk.open("slow");
    first.output().await.unwrap();
    second.output().await.unwrap();
}

async fn a_woken_run_is_offered_first_to_the_worker_that_has_its_future(rig: Rig) {
    let _first = rig.caching().register(sum).start().await.unwrap();
    let run = rig.client.start(sum, ()).await.unwrap();
    rig.settle().await;
    let _second = rig.caching().register(sum).start().await.unwrap();
    rig.settle().await;
    for payload in [1, 2, 3] {
        rig.send(run.id(), "x", payload).await;
        rig.settle().await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 1, "the second worker did not get it");
}

async fn a_woken_run_is_taken_by_another_worker_when_its_own_is_gone(rig: Rig) {
    let first = rig.caching().register(sum).start().await.unwrap();
    let run = rig.client.start(sum, ()).await.unwrap();
    rig.settle().await;
    let _second = rig.caching().register(sum).start().await.unwrap();
    first.stop().await.unwrap();
    for payload in [1, 2, 3] {
        rig.send(run.id(), "x", payload).await;
    }
    assert_eq!(run.output().await.unwrap(), 6);
    assert_eq!(traces(run.id(), "began"), 2);
}

async fn a_thousand_runs_pass_through_a_worker_that_holds_ten(rig: Rig) {
    #[workflow]
    async fn short(ctx: Context, number: u32) -> Result<u32, Error> {
        ctx.note("one").await?;
        ctx.sleep("1m").await?;
        ctx.note("two").await?;
        Ok(number)
    }
    let worker = rig.builder().live_runs(10).register(short).start().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..1_000 {
        runs.push(rig.client.start(short, number).await.unwrap());
    }
    rig.clock.run_until_idle().await;
    for (number, run) in runs.into_iter().enumerate() {
        assert_eq!(run.output().await.unwrap(), number as u32);
    }
    assert_eq!((rig.desk.count("one"), rig.desk.count("two")), (1_000, 1_000));
    assert!(rig.desk.crowd() <= 10, "{} steps at the same time", rig.desk.crowd());
    worker.stop().await.unwrap();
}

async fn histories_that_a_claim_left_out_are_read_together(rig: Rig) {
    #[workflow]
    async fn hooked(ctx: Context) -> Result<u32, Error> {
        ctx.hook("x").await
    }
    const RUNS: usize = 20;
    let _worker = rig.caching().cached_futures(0).register(hooked).start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(rig.client.start(hooked, ()).await.unwrap());
    }
    rig.settle().await;
    let before = rig.faults.count(Call::Histories);
    let message = |(number, run): (usize, &RunHandle<u32>)| NewMessage {
        id: MessageId::from_bits(number as u128 + 1),
        run: run.id(),
        body: MessageBody::Hook { name: "x".into(), payload: Payload::json(&7).unwrap() },
        headers: Headers::new(),
    };
    for sent in rig.world.send(runs.iter().enumerate().map(message).collect()).await.unwrap() {
        sent.unwrap();
    }
    for run in runs {
        assert_eq!(run.output().await.unwrap(), 7);
    }
    assert_eq!(rig.faults.sizes(Call::Histories)[before..], [RUNS]);
}
