//! Order and time: facts come in the order in which the world knew them, and a turn has one time.

use outlast::prelude::*;
use outlast::{Status, Timestamp};

use super::rig::{Ask, Rig, on_every_world, trace, traces};

on_every_world! {
    an_approval_in_time_does_not_lose_against_its_timeout_because_nobody_was_up,
    an_approval_that_came_too_late_loses_though_nobody_was_up,
    at_equal_times_messages_come_first,
    facts_are_delivered_in_the_order_in_which_the_world_knew_them,
    after_a_refused_commit_the_run_replays_and_the_message_wins,
    a_refused_commit_does_not_lose_the_attempts_it_was_told_of,
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

/// An approval that is sent after `sent` while nobody is up; a worker comes after `up`.
async fn approve(rig: &Rig, sent: &str, up: &str) -> String {
    let worker = rig.worker(approval).await;
    let run = rig.client.start(approval, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    rig.run_to(sent).await;
    rig.send(run.id(), "approve", 7).await;
    rig.run_to(up).await;
    let _worker = rig.worker(approval).await;
    run.output().await.unwrap()
}

async fn an_approval_in_time_does_not_lose_against_its_timeout_because_nobody_was_up(rig: Rig) {
    assert_eq!(approve(&rig, "59m", "3h").await, "approved by 7");
}

async fn an_approval_that_came_too_late_loses_though_nobody_was_up(rig: Rig) {
    assert_eq!(approve(&rig, "61m", "3h").await, "too late");
}

async fn at_equal_times_messages_come_first(rig: Rig) {
    assert_eq!(approve(&rig, "1h", "1h").await, "approved by 7");
}

async fn facts_are_delivered_in_the_order_in_which_the_world_knew_them(rig: Rig) {
    #[workflow]
    async fn many(ctx: Context) -> Result<u32, Error> {
        let (_, payload, _) = try_join!(ctx.sleep("10m"), ctx.hook::<u32>("x"), ctx.sleep("30m"))?;
        Ok(payload)
    }
    let worker = rig.worker(many).await;
    let run = rig.client.start(many, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    rig.run_to("20m").await;
    rig.send(run.id(), "x", 7).await;
    rig.run_to("1h").await;
    let _worker = rig.worker(many).await;
    run.output().await.unwrap();
    rig.assert_history(
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

async fn after_a_refused_commit_the_run_replays_and_the_message_wins(rig: Rig) {
    let _worker = rig.caching().register(approval_traced).start().await.unwrap();
    let run = rig.client.start(approval_traced, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(traces(run.id(), "began"), 1);
    let (client, id) = (rig.client.clone(), run.id());
    rig.faults.before_a_timer_fires(async move { client.send(id, "approve", &7).await.unwrap() });
    rig.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), "approved by 7");
    assert_eq!(traces(run.id(), "began"), 2, "the future of the refused turn is dropped");
    rig.assert_history(
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

async fn a_refused_commit_does_not_lose_the_attempts_it_was_told_of(rig: Rig) {
    #[workflow]
    async fn beside(ctx: Context) -> Result<(String, String), Error> {
        try_join!(ctx.blocked("slow"), approval_body(&ctx))
    }
    let _worker = rig.worker(beside).await;
    let run = rig.client.start(beside, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    let (client, id) = (rig.client.clone(), run.id());
    rig.faults.before_a_timer_fires(async move { client.send(id, "approve", &7).await.unwrap() });
    // The attempt ends and the timeout is due before the run looks again: one turn has both.
    rig.desk.open("slow");
    rig.clock.advance("1h");
    let (slow, approval) = run.output().await.unwrap();
    assert_eq!((&*slow, &*approval), ("slow", "approved by 7"));
    assert_eq!(rig.desk.count("began slow"), 1);
    assert_eq!(rig.faults.left(), 0);
}

async fn a_refused_commit_ends_though_more_messages_came_than_are_read_at_once(rig: Rig) {
    const MANY: u32 = 1_100; // more than `INBOX_READ_MAX`
    let _worker = rig.worker(approval).await;
    let run = rig.client.start(approval, ()).await.unwrap();
    rig.settle().await;
    let (client, id) = (rig.client.clone(), run.id());
    rig.faults.before_a_timer_fires(async move {
        for payload in 0..MANY {
            client.send(id, "other", &payload).await.unwrap();
        }
    });
    rig.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), "too late");
    let history = rig.history(run.id()).await;
    assert_eq!(
        history.matches("hook_received").count() as u32,
        MANY,
        "what came before the timeout is told before it"
    );
}

async fn now_is_the_time_of_the_turn(rig: Rig) {
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
    let _worker = rig.worker(times).await;
    let run = rig.client.start(times, ()).await.unwrap();
    rig.run_to("90m").await;
    rig.send(run.id(), "x", 0).await;
    let times = run.output().await.unwrap();
    assert_eq!(times, ["0s", "0s", "1h", "90m"].map(|after| rig.moment(after)));
}

async fn timers_count_from_the_time_of_their_turn(rig: Rig) {
    #[workflow]
    async fn twice(ctx: Context) -> Result<Timestamp, Error> {
        ctx.sleep("1h").await?;
        ctx.sleep("1h").await?;
        Ok(ctx.now())
    }
    let worker = rig.worker(twice).await;
    let run = rig.client.start(twice, ()).await.unwrap();
    rig.settle().await;
    worker.stop().await.unwrap();
    rig.run_to("3h").await;
    let _worker = rig.worker(twice).await;
    rig.settle().await;
    assert_eq!(rig.view(run.id()).await.wake_at, Some(rig.moment("4h")));
    rig.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), rig.moment("4h"));
}

async fn the_time_of_a_run_never_goes_back(rig: Rig) {
    #[workflow]
    async fn times(ctx: Context) -> Result<Vec<Timestamp>, Error> {
        ctx.sleep("1h").await?;
        let before = ctx.now();
        ctx.hook::<u32>("x").await?;
        Ok(vec![before, ctx.now()])
    }
    let worker = rig.worker(times).await;
    let run = rig.client.start(times, ()).await.unwrap();
    rig.run_to("1h").await;
    worker.stop().await.unwrap();
    rig.faults.set_clock_back(600);
    let _worker = rig.worker(times).await;
    rig.send(run.id(), "x", 0).await;
    assert_eq!(run.output().await.unwrap(), [rig.moment("1h"), rig.moment("1h")]);
    let times: Vec<_> = rig.turns(run.id()).await.iter().map(|turn| turn.at).collect();
    assert!(times.is_sorted(), "{times:?}");
}

async fn timers_that_are_due_fire_in_the_order_of_their_moments(rig: Rig) {
    #[workflow]
    async fn race(ctx: Context) -> Result<u32, Error> {
        Ok(select! {
            _ = ctx.sleep("3h") => 3,
            _ = ctx.sleep("1h") => 1,
            _ = ctx.sleep("2h") => 2,
        })
    }
    let worker = rig.worker(race).await;
    let run = rig.client.start(race, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    worker.stop().await.unwrap();
    rig.run_to("5h").await;
    let _worker = rig.worker(race).await;
    assert_eq!(run.output().await.unwrap(), 1);
}

async fn random_numbers_are_the_same_in_every_replay(rig: Rig) {
    #[workflow]
    async fn dice(ctx: Context) -> Result<bool, Error> {
        let (number, uuid) = (ctx.random(), ctx.uuid());
        let recorded =
            ctx.call("record", (number, uuid.clone()), async |rolled| Ok::<_, StepError>(rolled)).await?;
        ctx.sleep("1h").await?;
        Ok(recorded == (number, uuid) && ctx.random() != number)
    }
    let _worker = rig.worker(dice).await;
    let run = rig.client.start(dice, ()).await.unwrap();
    rig.clock.run_until_idle().await;
    assert!(run.output().await.unwrap());
}
