//! Bounded parallelism, and races in loops.

use outlast::ErrorKind;
use outlast::prelude::*;

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    no_more_than_the_limit_are_under_way_and_outputs_are_in_order,
    parallel_work_continues_after_a_crash,
    the_first_error_is_returned,
    a_race_in_a_loop_keeps_its_operations,
    nested_races_replay,
}

#[workflow]
async fn crowd(ctx: Context, size: u32) -> Result<Vec<String>, Error> {
    ctx.parallel(0..size, 3, |ctx, number| async move { ctx.note(&number.to_string()).await }).await
}

async fn no_more_than_the_limit_are_under_way_and_outputs_are_in_order(engine: TestEngine) {
    let _worker = engine.worker(crowd).await;
    let run = engine.client.start(crowd, 20).await.unwrap();
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(run.output().await.unwrap(), expected);
    assert!((2..=3).contains(&engine.steps.concurrent_max()), "{}", engine.steps.concurrent_max());
}

async fn parallel_work_continues_after_a_crash(engine: TestEngine) {
    #[workflow]
    async fn gates(ctx: Context) -> Result<Vec<String>, Error> {
        let gates = ["a", "b", "c", "d"];
        ctx.parallel(gates, 2, |ctx, gate| async move { ctx.blocked(gate).await }).await
    }
    let worker = engine.worker(gates).await;
    let run = engine.client.start(gates, ()).await.unwrap();
    engine.steps.open("b");
    engine.steps.wait_for_log("began c", 1).await;
    engine.crash(worker);
    let _worker = engine.worker(gates).await;
    for gate in ["a", "c", "d"] {
        engine.steps.open(gate);
    }
    assert_eq!(run.output().await.unwrap(), ["a", "b", "c", "d"]);
    assert_eq!((engine.steps.count("began b"), engine.steps.count("began d")), (1, 1));
}

async fn the_first_error_is_returned(engine: TestEngine) {
    #[workflow]
    async fn hasty(ctx: Context) -> Result<u32, Error> {
        let wait =
            |ctx: Context, hook: &'static str| async move { ctx.hook::<u32>(hook).timeout("1h").await };
        let error = ctx.parallel(["x", "y", "z"], 2, wait).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        let all = ctx.parallel_all(["x", "y"], 1, wait).await;
        Ok(all.into_iter().flatten().sum())
    }
    let _worker = engine.worker(hasty).await;
    let run = engine.client.start(hasty, ()).await.unwrap();
    engine.advance("90m").await;
    engine.send(run.id(), "y", 7).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_race_in_a_loop_keeps_its_operations(engine: TestEngine) {
    #[workflow]
    async fn collector(ctx: Context) -> Result<Vec<u32>, Error> {
        let mut seen = Vec::new();
        let mut end = ctx.sleep("1h");
        loop {
            let mut next = ctx.hook::<u32>("n");
            select! {
                number = &mut next => seen.push(number?),
                over = &mut end => {
                    over?;
                    return Ok(seen);
                }
            }
        }
    }
    let _worker = engine.worker(collector).await;
    let run = engine.client.start(collector, ()).await.unwrap();
    for number in 0..5 {
        engine.advance("10m").await;
        engine.send(run.id(), "n", number).await;
    }
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), [0, 1, 2, 3, 4]);
}

async fn nested_races_replay(engine: TestEngine) {
    #[workflow]
    async fn nested(ctx: Context) -> Result<String, Error> {
        let mut trail = String::new();
        for round in 0..4_u32 {
            let inner = async {
                select! {
                    number = ctx.hook::<u32>("a") => number.map(|number| format!("a{number}")),
                    slept = ctx.sleep("20m") => slept.map(|()| "slept".to_owned()),
                }
            };
            let mut inner = std::pin::pin!(inner);
            let seen = select! {
                seen = &mut inner => seen?,
                number = ctx.hook::<u32>("b") => format!("b{}", number?),
            };
            trail += &format!("{round}{seen} ");
        }
        Ok(trail)
    }
    let _worker = engine.worker(nested).await;
    let run = engine.client.start(nested, ()).await.unwrap();
    engine.advance("1m").await;
    engine.send(run.id(), "b", 1).await;
    engine.advance("1m").await;
    engine.send(run.id(), "a", 2).await;
    engine.send(run.id(), "b", 3).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "0b1 1a2 2b3 3slept ");
}
