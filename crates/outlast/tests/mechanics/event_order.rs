//! Order and time: events have the order in which the world learned of them, and a turn has one time.

use outlast::prelude::*;
use outlast::{Status, Timestamp};

use super::test_engine::{StepCalls, TestEngine, on_every_world, trace, traces};

on_every_world! {
    an_approval_in_time_wins_over_its_timeout_although_no_worker_was_running,
    an_approval_after_its_timeout_loses_although_no_worker_was_running,
    at_equal_times_messages_come_first,
    facts_are_delivered_in_the_order_in_which_the_world_knew_them,
    after_a_refused_commit_the_run_replays_and_the_message_wins,
    a_refused_commit_does_not_lose_outcomes_of_attempts,
    a_refused_commit_ends_though_more_messages_came_than_are_read_at_once,
    now_is_the_time_of_the_turn,
    timers_count_from_the_time_of_their_turn,
    the_time_of_a_run_never_goes_back,
    timers_that_are_due_fire_in_the_order_of_their_moments,
    random_numbers_are_the_same_in_every_replay,
}

#[workflow]
async fn approval(ctx: Context) -> Result<String, Error> {
    match ctx.hook::<u32>("approve").timeout("1h").await {
        Ok(by) => Ok(format!("approved by {by}")),
        Err(error) if error.is_timeout() => Ok("too late".into()),
        Err(error) => Err(error),
    }
}

/// An approval that is sent after `sent`, before a worker starts after `up`.
async fn approve(engine: &TestEngine, sent: &str, up: &str) -> String {
    let worker = engine.worker(approval).await;
    let run = engine.client.start(approval, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to(sent).await;
    engine.send(run.id(), "approve", 7).await;
    engine.run_to(up).await;
    let _worker = engine.worker(approval).await;
    run.output().await.unwrap()
}

async fn an_approval_in_time_wins_over_its_timeout_although_no_worker_was_running(engine: TestEngine) {
    assert_eq!(approve(&engine, "59m", "3h").await, "approved by 7");
}

async fn an_approval_after_its_timeout_loses_although_no_worker_was_running(engine: TestEngine) {
    assert_eq!(approve(&engine, "61m", "3h").await, "too late");
}

async fn at_equal_times_messages_come_first(engine: TestEngine) {
    assert_eq!(approve(&engine, "1h", "1h").await, "approved by 7");
}

async fn facts_are_delivered_in_the_order_in_which_the_world_knew_them(engine: TestEngine) {
    #[workflow]
    async fn many(ctx: Context) -> Result<u32, Error> {
        let (_, payload, _) = try_join!(ctx.sleep("10m"), ctx.hook::<u32>("x"), ctx.sleep("30m"))?;
        Ok(payload)
    }
    let worker = engine.worker(many).await;
    let run = engine.client.start(many, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to("20m").await;
    engine.send(run.id(), "x", 7).await;
    engine.run_to("1h").await;
    let _worker = engine.worker(many).await;
    run.output().await.unwrap();
    engine
        .assert_history(
            run.id(),
            "0 timer_started 10m
         1 hook_opened x
         2 timer_started 30m
         0 timer_fired
         hook_received x 7
         2 timer_fired
         run_completed 7",
        )
        .await;
}

async fn after_a_refused_commit_the_run_replays_and_the_message_wins(engine: TestEngine) {
    let _worker = engine.caching_builder().register(approval_traced).start().await.unwrap();
    let run = engine.client.start(approval_traced, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(traces(run.id(), "began"), 1);
    let (client, id) = (engine.client.clone(), run.id());
    engine.faults.before_a_timer_fires(async move { client.send(id, "approve", &7).await.unwrap() });
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), "approved by 7");
    assert_eq!(traces(run.id(), "began"), 2, "the future of the refused turn is dropped");
    engine
        .assert_history(
            run.id(),
            "0 hook_opened approve\n hook_received approve 7\n run_completed \"approved by 7\"",
        )
        .await;
}

#[workflow]
async fn approval_traced(ctx: Context) -> Result<String, Error> {
    trace(ctx.run(), "began");
    approval_body(&ctx).await
}

async fn approval_body(ctx: &Context) -> Result<String, Error> {
    match ctx.hook::<u32>("approve").timeout("1h").await {
        Ok(by) => Ok(format!("approved by {by}")),
        Err(_) => Ok("too late".into()),
    }
}

async fn a_refused_commit_does_not_lose_outcomes_of_attempts(engine: TestEngine) {
    #[workflow]
    async fn beside(ctx: Context) -> Result<(String, String), Error> {
        try_join!(ctx.blocked("slow"), approval_body(&ctx))
    }
    let _worker = engine.worker(beside).await;
    let run = engine.client.start(beside, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    let (client, id) = (engine.client.clone(), run.id());
    engine.faults.before_a_timer_fires(async move { client.send(id, "approve", &7).await.unwrap() });
    // The attempt ends and the timeout is due before the run's next turn: one turn has both.
    engine.steps.open("slow");
    engine.clock.advance("1h");
    let (slow, approval) = run.output().await.unwrap();
    assert_eq!((&*slow, &*approval), ("slow", "approved by 7"));
    assert_eq!(engine.steps.count("began slow"), 1);
    assert_eq!(engine.faults.left(), 0);
}

async fn a_refused_commit_ends_though_more_messages_came_than_are_read_at_once(engine: TestEngine) {
    const MANY: u32 = 1_100; // more than `INBOX_READ_MAX`
    let _worker = engine.worker(approval).await;
    let run = engine.client.start(approval, ()).await.unwrap();
    engine.settle().await;
    let (client, id) = (engine.client.clone(), run.id());
    engine.faults.before_a_timer_fires(async move {
        for payload in 0..MANY {
            client.send(id, "other", &payload).await.unwrap();
        }
    });
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), "too late");
    let history = engine.history(run.id()).await;
    assert_eq!(
        history.matches("hook_received").count() as u32,
        MANY,
        "what came before the timeout is told before it"
    );
}

async fn now_is_the_time_of_the_turn(engine: TestEngine) {
    #[workflow]
    async fn times(ctx: Context) -> Result<Vec<Timestamp>, Error> {
        let mut times = vec![ctx.now()];
        ctx.note("a").await?;
        times.push(ctx.now());
        ctx.sleep("1h").await?;
        times.push(ctx.now());
        ctx.hook::<u32>("x").await?;
        times.push(ctx.now());
        Ok(times)
    }
    let _worker = engine.worker(times).await;
    let run = engine.client.start(times, ()).await.unwrap();
    engine.run_to("90m").await;
    engine.send(run.id(), "x", 0).await;
    let times = run.output().await.unwrap();
    assert_eq!(times, ["0s", "0s", "1h", "90m"].map(|after| engine.time_after_begin(after)));
}

async fn timers_count_from_the_time_of_their_turn(engine: TestEngine) {
    #[workflow]
    async fn twice(ctx: Context) -> Result<Timestamp, Error> {
        ctx.sleep("1h").await?;
        ctx.sleep("1h").await?;
        Ok(ctx.now())
    }
    let worker = engine.worker(twice).await;
    let run = engine.client.start(twice, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.run_to("3h").await;
    let _worker = engine.worker(twice).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.wake_at, Some(engine.time_after_begin("4h")));
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), engine.time_after_begin("4h"));
}

async fn the_time_of_a_run_never_goes_back(engine: TestEngine) {
    #[workflow]
    async fn times(ctx: Context) -> Result<Vec<Timestamp>, Error> {
        ctx.sleep("1h").await?;
        let before = ctx.now();
        ctx.hook::<u32>("x").await?;
        Ok(vec![before, ctx.now()])
    }
    let worker = engine.worker(times).await;
    let run = engine.client.start(times, ()).await.unwrap();
    engine.run_to("1h").await;
    worker.stop().await.unwrap();
    engine.faults.set_clock_back(600);
    let _worker = engine.worker(times).await;
    engine.send(run.id(), "x", 0).await;
    assert_eq!(run.output().await.unwrap(), [engine.time_after_begin("1h"), engine.time_after_begin("1h")]);
    let times: Vec<_> = engine.turns(run.id()).await.iter().map(|turn| turn.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

async fn timers_that_are_due_fire_in_the_order_of_their_moments(engine: TestEngine) {
    #[workflow]
    async fn race(ctx: Context) -> Result<u32, Error> {
        Ok(select! {
            _ = ctx.sleep("3h") => 3,
            _ = ctx.sleep("1h") => 1,
            _ = ctx.sleep("2h") => 2,
        })
    }
    let worker = engine.worker(race).await;
    let run = engine.client.start(race, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    engine.run_to("5h").await;
    let _worker = engine.worker(race).await;
    assert_eq!(run.output().await.unwrap(), 1);
}

async fn random_numbers_are_the_same_in_every_replay(engine: TestEngine) {
    #[workflow]
    async fn dice(ctx: Context) -> Result<bool, Error> {
        let (number, uuid) = (ctx.random(), ctx.uuid());
        let recorded =
            ctx.call("record", (number, uuid.clone()), async |rolled| Ok::<_, StepError>(rolled)).await?;
        ctx.sleep("1h").await?;
        Ok(recorded == (number, uuid) && ctx.random() != number)
    }
    let _worker = engine.worker(dice).await;
    let run = engine.client.start(dice, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert!(run.output().await.unwrap());
}
