//! Polling is a function of history: with any combinator, a replay polls in the same order.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use outlast::prelude::*;
use outlast::{Error, StuckReason};

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    a_future_that_wakes_itself_is_polled_again,
    a_future_that_wakes_itself_for_ever_is_stuck,
    the_future_is_polled_once_after_each_delivery,
    join_replays_the_same,
    try_join_returns_the_first_failure_and_drops_the_rest,
    futures_unordered_replays_the_same,
    select_replays_the_same,
    of_two_ready_branches_the_first_wins,
    an_outcome_is_returned_once_and_the_operation_is_over,
}
on_every_world! { threads: parallel_steps_replay_in_the_order_they_ended }

/// Wakes itself this often before it is ready.
async fn yield_now(mut times: u32) {
    poll_fn(move |cx| {
        if times == 0 {
            return Poll::Ready(());
        }
        times -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[workflow]
async fn yielding(ctx: Context, times: u32) -> Result<String, Error> {
    yield_now(times).await;
    let word = ctx.note("a").await?;
    yield_now(times).await;
    Ok(word)
}

async fn a_future_that_wakes_itself_is_polled_again(engine: TestEngine) {
    let _worker = engine.worker(yielding).await;
    for times in [1, 999] {
        let run = engine.client.start(yielding, times).await.unwrap();
        assert_eq!(run.output().await.unwrap(), "a", "{times}");
    }
}

async fn a_future_that_wakes_itself_for_ever_is_stuck(engine: TestEngine) {
    let _worker = engine.worker(yielding).await;
    let run = engine.client.start(yielding, 1_001).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::ForeignAwait);
    assert!(stuck.message.contains("woke itself 1000 times"), "{}", stuck.message);
}

async fn the_future_is_polled_once_after_each_delivery(engine: TestEngine) {
    #[workflow]
    async fn counted(ctx: Context) -> Result<(), Error> {
        let run = ctx.run();
        let mut body = pin!(async {
            ctx.flaky(2).await?;
            ctx.hook::<u32>("x").await
        });
        poll_fn(|cx| {
            trace(run, "polled");
            body.as_mut().poll(cx)
        })
        .await
        .map(drop)
    }
    let _worker = engine.caching_builder().register(counted).start().await.unwrap();
    let run = engine.client.start(counted, ()).await.unwrap();
    engine.advance("1m").await;
    assert_eq!(
        traces(run.id(), "polled"),
        2,
        "the start and the step's outcome; attempts that failed are no news"
    );
    engine.send(run.id(), "other", 1).await;
    engine.settle().await;
    assert_eq!(traces(run.id(), "polled"), 3, "a payload that nobody awaits is delivered, too");
    engine.send(run.id(), "x", 1).await;
    run.output().await.unwrap();
    assert_eq!(traces(run.id(), "polled"), 4);
}

async fn join_replays_the_same(engine: TestEngine) {
    #[workflow]
    async fn joined(ctx: Context) -> Result<String, Error> {
        let (a, b, c) = join!(
            async {
                ctx.sleep("2m").await?;
                ctx.note("a").await
            },
            async {
                ctx.hook::<u32>("x").await?;
                ctx.note("b").await
            },
            ctx.note("c"),
        );
        Ok(format!("{}{}{}", a?, b?, c?))
    }
    let _worker = engine.worker(joined).await;
    let run = engine.client.start(joined, ()).await.unwrap();
    engine.run_to("1m").await;
    engine.send(run.id(), "x", 1).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "abc");
    assert_eq!(engine.steps.logged(), ["c", "b", "a"]);
}

async fn try_join_returns_the_first_failure_and_drops_the_rest(engine: TestEngine) {
    #[workflow]
    async fn failing(ctx: Context) -> Result<String, Error> {
        let error = try_join!(ctx.sleep("1h"), ctx.flaky(9), ctx.hook::<u32>("x")).unwrap_err();
        ctx.note("after").await?;
        Ok(error.message().to_owned())
    }
    let _worker = engine.worker(failing).await;
    let run = engine.client.start(failing, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), "failure 4");
    let history = engine.history(run.id()).await;
    assert!(history.contains("0 timer_cancelled") && history.contains("2 hook_closed"), "{history}");
}

async fn futures_unordered_replays_the_same(engine: TestEngine) {
    #[workflow]
    async fn unordered(ctx: Context) -> Result<Vec<u32>, Error> {
        let mut open = FuturesUnordered::new();
        for minutes in [5_u32, 3, 4, 1, 2] {
            let sleep = ctx.sleep(std::time::Duration::from_secs(60 * u64::from(minutes)));
            open.push(async move { sleep.await.map(|()| minutes) });
        }
        let mut ended = Vec::new();
        while let Some(minutes) = open.next().await {
            ended.push(minutes?);
            ctx.note("between").await?;
        }
        Ok(ended)
    }
    let _worker = engine.worker(unordered).await;
    let run = engine.client.start(unordered, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), [1, 2, 3, 4, 5]);
}

async fn select_replays_the_same(engine: TestEngine) {
    #[workflow]
    async fn selecting(ctx: Context) -> Result<Vec<String>, Error> {
        let mut won = Vec::new();
        let mut step = ctx.blocked("slow");
        for _ in 0..3 {
            won.push(select! {
                word = &mut step => word?,
                payload = ctx.hook::<u32>("x") => payload?.to_string(),
                slept = ctx.sleep("1m") => slept.map(|()| "slept".to_owned())?,
            });
            ctx.note("between").await?;
            if won.iter().any(|word| word == "slow") {
                break;
            }
        }
        Ok(won)
    }
    let _worker = engine.worker(selecting).await;
    let run = engine.client.start(selecting, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.send(run.id(), "x", 7).await;
    engine.wait_for_history(run.id(), |history| history.matches("timer_started").count() == 2).await;
    engine.clock.advance("1m");
    engine.steps.wait_for_log("between", 2).await;
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), ["7", "slept", "slow"]);
}

async fn of_two_ready_branches_the_first_wins(engine: TestEngine) {
    #[workflow]
    async fn race(ctx: Context) -> Result<u32, Error> {
        let (first, second) = (ctx.hook::<u32>("a"), ctx.hook::<u32>("b"));
        ctx.hook::<u32>("go").await?;
        select! {
            payload = second => payload,
            payload = first => payload,
        }
    }
    let _worker = engine.worker(race).await;
    let run = engine.client.start(race, ()).await.unwrap();
    for (hook, payload) in [("a", 1), ("b", 2), ("go", 0)] {
        engine.send(run.id(), hook, payload).await;
    }
    assert_eq!(run.output().await.unwrap(), 2, "the order of the branches is the whole rule");
}

async fn an_outcome_is_returned_once_and_the_operation_is_over(engine: TestEngine) {
    #[workflow]
    async fn polls_again(ctx: Context) -> Result<String, Error> {
        let mut step = ctx.note("a");
        (&mut step).await?;
        step.await
    }
    let _worker = engine.worker(polls_again).await;
    let run = engine.client.start(polls_again, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert!(stuck.message.contains("operation 0 was polled after it completed"), "{}", stuck.message);
}

async fn parallel_steps_replay_in_the_order_they_ended(engine: TestEngine) {
    #[workflow]
    async fn parallel(ctx: Context) -> Result<Vec<String>, Error> {
        let mut open: FuturesUnordered<_> = (0..50).map(|number| ctx.note(&number.to_string())).collect();
        let mut ended = Vec::new();
        while let Some(word) = open.next().await {
            ended.push(word?);
        }
        Ok(ended)
    }
    let _worker = engine.worker(parallel).await;
    let run = engine.client.start(parallel, ()).await.unwrap();
    let ended = run.output().await.unwrap();
    let history = engine.history(run.id()).await;
    let recorded =
        history.lines().filter_map(|line| line.split_once(" step_completed ")).map(|(_, word)| word);
    let recorded: Vec<_> = recorded.map(|word| word.trim_matches('"').to_owned()).collect();
    assert_eq!(ended, recorded);
    assert_eq!(engine.steps.logged().len(), 50);
}
