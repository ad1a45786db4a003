//! The inbox: every message becomes an event, and every payload reaches its hook.

use outlast::core::limits::HOOK_BUFFER_MAX;
use outlast::core::{Headers, MessageBody, MessageId, NewMessage, Payload};
use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    messages_become_events_in_arrival_order_awaited_or_not,
    a_payload_sent_before_anyone_waits_is_kept,
    payloads_are_taken_first_in_first_out,
    the_oldest_open_hook_takes_the_payload,
    two_hooks_of_one_name_in_a_join_take_one_payload_each,
    a_payload_that_a_dropped_hook_did_not_return_stays,
    a_hook_that_lost_its_race_leaves_later_payloads_to_the_next,
    the_buffer_survives_a_crash,
    payloads_that_no_hook_has_taken_are_counted_in_the_row,
    the_sender_of_one_payload_too_many_is_refused_and_the_run_is_unharmed,
    a_run_that_keeps_too_many_payloads_takes_the_one_it_waits_for,
    a_message_that_arrives_between_check_and_park_wakes_the_run,
    a_payload_while_a_sleep_is_pending_in_the_same_turn_is_delivered_and_the_sleep_continues,
    messages_to_a_run_whose_step_is_under_way_are_read_at_once,
    more_messages_than_one_read_are_all_delivered_in_order,
}

#[workflow]
async fn take_one(ctx: Context) -> Result<u32, Error> {
    ctx.hook::<u32>("x").await
}

async fn messages_become_events_in_arrival_order_awaited_or_not(engine: TestEngine) {
    let run = engine.client.start(take_one, ()).await.unwrap();
    for (hook, payload) in [("a", 1), ("b", 2), ("a", 3), ("x", 4)] {
        engine.send(run.id(), hook, payload).await;
    }
    let _worker = engine.worker(take_one).await;
    assert_eq!(run.output().await.unwrap(), 4);
    engine
        .assert_history(
            run.id(),
            "0 hook_opened x
         hook_received a 1
         hook_received b 2
         hook_received a 3
         hook_received x 4
         run_completed 4",
        )
        .await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.sent, view.consumed), (4, 4));
}

#[workflow]
async fn sleep_then_take(ctx: Context) -> Result<u32, Error> {
    ctx.sleep("1h").await?;
    ctx.hook::<u32>("x").await
}

async fn a_payload_sent_before_anyone_waits_is_kept(engine: TestEngine) {
    let _worker = engine.worker(sleep_then_take).await;
    let run = engine.client.start(sleep_then_take, ()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
    engine
        .assert_history(
            run.id(),
            "0 timer_started 1h
         hook_received x 7
         0 timer_fired
         1 hook_opened x
         1 hook_taken
         run_completed 7",
        )
        .await;
}

async fn payloads_are_taken_first_in_first_out(engine: TestEngine) {
    #[workflow]
    async fn take_three(ctx: Context) -> Result<Vec<u32>, Error> {
        let mut taken = vec![ctx.hook::<u32>("x").await?];
        ctx.note("between").await?;
        taken.push(ctx.hook::<u32>("x").await?);
        taken.push(ctx.hook::<u32>("x").await?);
        Ok(taken)
    }
    let _worker = engine.worker(take_three).await;
    let run = engine.client.start(take_three, ()).await.unwrap();
    for payload in [1, 2, 3] {
        engine.send(run.id(), "x", payload).await;
    }
    assert_eq!(run.output().await.unwrap(), [1, 2, 3]);
}

async fn the_oldest_open_hook_takes_the_payload(engine: TestEngine) {
    #[workflow]
    async fn take_reversed(ctx: Context) -> Result<(u32, u32), Error> {
        let (older, younger) = (ctx.hook::<u32>("x"), ctx.hook::<u32>("x"));
        let (younger, older) = try_join!(younger, older)?;
        Ok((older, younger))
    }
    let _worker = engine.worker(take_reversed).await;
    let run = engine.client.start(take_reversed, ()).await.unwrap();
    engine.send(run.id(), "x", 1).await;
    engine.settle().await;
    engine.send(run.id(), "x", 2).await;
    assert_eq!(run.output().await.unwrap(), (1, 2));
}

async fn two_hooks_of_one_name_in_a_join_take_one_payload_each(engine: TestEngine) {
    #[workflow]
    async fn take_both(ctx: Context) -> Result<(u32, u32), Error> {
        try_join!(ctx.hook::<u32>("x"), ctx.hook::<u32>("x"))
    }
    let run = engine.client.start(take_both, ()).await.unwrap();
    engine.send(run.id(), "x", 1).await;
    engine.send(run.id(), "x", 2).await;
    let _worker = engine.worker(take_both).await;
    assert_eq!(run.output().await.unwrap(), (1, 2));
}

async fn a_payload_that_a_dropped_hook_did_not_return_stays(engine: TestEngine) {
    #[workflow]
    async fn change_mind(ctx: Context) -> Result<u32, Error> {
        let unpolled = ctx.hook::<u32>("x");
        ctx.hook::<u32>("go").await?;
        drop(unpolled);
        ctx.sleep("1h").await?;
        ctx.hook::<u32>("x").await
    }
    let _worker = engine.worker(change_mind).await;
    let run = engine.client.start(change_mind, ()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    engine.settle().await;
    engine.send(run.id(), "go", 0).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
    engine
        .assert_history(
            run.id(),
            "0 hook_opened x
         1 hook_opened go
         hook_received x 7
         hook_received go 0
         0 hook_closed
         2 timer_started 1h
         2 timer_fired
         3 hook_opened x
         3 hook_taken
         run_completed 7",
        )
        .await;
}

async fn a_hook_that_lost_its_race_leaves_later_payloads_to_the_next(engine: TestEngine) {
    #[workflow]
    async fn late(ctx: Context) -> Result<u32, Error> {
        select! {
            _ = ctx.hook::<u32>("x") => return Err(Error::msg("too early")),
            slept = ctx.sleep("1h") => slept?,
        }
        ctx.sleep("1h").await?;
        ctx.hook::<u32>("x").await
    }
    let _worker = engine.worker(late).await;
    let run = engine.client.start(late, ()).await.unwrap();
    engine.run_to("90m").await;
    engine.send(run.id(), "x", 7).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn the_buffer_survives_a_crash(engine: TestEngine) {
    #[workflow]
    async fn wait_then_take(ctx: Context) -> Result<(u32, u32), Error> {
        ctx.hook::<u32>("go").await?;
        Ok((ctx.hook::<u32>("x").await?, ctx.hook::<u32>("x").await?))
    }
    let worker = engine.worker(wait_then_take).await;
    let run = engine.client.start(wait_then_take, ()).await.unwrap();
    engine.send(run.id(), "x", 1).await;
    engine.send(run.id(), "x", 2).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.consumed, 2);
    engine.crash(worker);
    let _worker = engine.worker(wait_then_take).await;
    engine.send(run.id(), "go", 0).await;
    assert_eq!(run.output().await.unwrap(), (1, 2));
}

async fn a_message_that_arrives_between_check_and_park_wakes_the_run(engine: TestEngine) {
    let run = engine.client.start(take_one, ()).await.unwrap();
    let park = engine.faults.hold(Call::Commit);
    let _worker = engine.worker(take_one).await;
    park.wait_for_call().await;
    engine.send(run.id(), "x", 7).await;
    park.open();
    assert_eq!(run.output().await.unwrap(), 7);
    engine.assert_history(run.id(), "0 hook_opened x\n hook_received x 7\n run_completed 7").await;
}

async fn a_payload_while_a_sleep_is_pending_in_the_same_turn_is_delivered_and_the_sleep_continues(
    engine: TestEngine,
) {
    #[workflow]
    async fn both(ctx: Context) -> Result<u32, Error> {
        let (payload, ()) = try_join!(ctx.hook::<u32>("x"), ctx.sleep("1h"))?;
        Ok(payload)
    }
    let run = engine.client.start(both, ()).await.unwrap();
    engine.send(run.id(), "x", 7).await;
    let _worker = engine.worker(both).await;
    engine.run_to("30m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("1h")));
}

async fn messages_to_a_run_whose_step_is_under_way_are_read_at_once(engine: TestEngine) {
    #[workflow]
    async fn beside(ctx: Context) -> Result<u32, Error> {
        let (_, payload) = try_join!(ctx.blocked("slow"), async {
            let payload = ctx.hook::<u32>("x").await?;
            ctx.note("heard").await?;
            Ok(payload)
        })?;
        Ok(payload)
    }
    let _worker = engine.worker(beside).await;
    let run = engine.client.start(beside, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.send(run.id(), "x", 7).await;
    engine.steps.wait_for_log("heard", 1).await;
    assert_eq!(engine.steps.count("ended slow"), 0);
    engine.steps.open("slow");
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn more_messages_than_one_read_are_all_delivered_in_order(engine: TestEngine) {
    const MANY: u32 = 1_100; // more than `INBOX_READ_MAX`
    #[workflow]
    async fn take_many(ctx: Context) -> Result<bool, Error> {
        for expected in 0..MANY {
            if ctx.hook::<u32>("x").await? != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
    let run = engine.client.start(take_many, ()).await.unwrap();
    for payload in 0..MANY {
        engine.send(run.id(), "x", payload).await;
    }
    let _worker = engine.worker(take_many).await;
    assert!(run.output().await.unwrap());
}

async fn payloads_that_no_hook_has_taken_are_counted_in_the_row(engine: TestEngine) {
    let worker = engine.worker(sleep_then_take).await;
    engine.settle().await;
    let run = engine.client.start(sleep_then_take, ()).await.unwrap();
    for payload in 1..=3 {
        engine.send(run.id(), "x", payload).await;
    }
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.kept, 3);
    worker.stop().await.unwrap();
    let _worker = engine.worker(sleep_then_take).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 1);
    assert_eq!(engine.view(run.id()).await.kept, 2, "the hook has taken one");
}

/// Sends as many payloads for hook `x` as a run keeps.
async fn send_all_that_it_keeps(engine: &TestEngine, run: RunId) {
    for part in 0..HOOK_BUFFER_MAX / 1_000 {
        let message = |number: usize| NewMessage {
            id: MessageId::from_bits((part * 1_000 + number) as u128),
            run,
            body: MessageBody::Hook {
                name: "x".into(),
                payload: Payload::json(&(part * 1_000 + number)).unwrap(),
                to: Default::default(),
            },
            headers: Headers::new(),
        };
        let sent = engine.world.send((0..1_000).map(message).collect()).await.unwrap();
        assert!(sent.iter().all(Result::is_ok));
        engine.settle().await;
    }
}

async fn a_run_that_keeps_too_many_payloads_takes_the_one_it_waits_for(engine: TestEngine) {
    #[workflow]
    async fn gated(ctx: Context) -> Result<u32, Error> {
        let first = ctx.hook::<u32>("go").await?;
        Ok(first + ctx.hook::<u32>("x").await?)
    }
    let _worker = engine.caching_builder().register(gated).start().await.unwrap();
    let run = engine.client.start(gated, ()).await.unwrap();
    engine.settle().await;
    send_all_that_it_keeps(&engine, run.id()).await;
    assert_eq!(engine.view(run.id()).await.kept, HOOK_BUFFER_MAX as u64);
    let text = engine.client.explain(run.id()).await.unwrap().sentence;
    let keeps = "It keeps 10000 payloads that no hook has taken, and 0 messages are unread; the limit is 10000 together. \
                 Sends for hooks that are not open are refused";
    assert!(text.contains(keeps), "{text}");
    let refused = run.send("g0", &7_u32).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    assert!(refused.message().contains("`g0` is none of them"), "{refused}");
    run.send("go", &7_u32).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7, "with the first one that it keeps, which is 0");
}

async fn the_sender_of_one_payload_too_many_is_refused_and_the_run_is_unharmed(engine: TestEngine) {
    #[workflow]
    async fn late(ctx: Context) -> Result<u32, Error> {
        ctx.sleep("1h").await?;
        let first = ctx.hook::<u32>("x").await?;
        ctx.sleep("1h").await?;
        Ok(first)
    }
    let _worker = engine.caching_builder().register(late).start().await.unwrap();
    let run = engine.client.start(late, ()).await.unwrap();
    engine.settle().await;
    send_all_that_it_keeps(&engine, run.id()).await;
    for hook in ["x", "another"] {
        let refused = run.send(hook, &7_u32).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Limit, "{refused}");
    }
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "only the sender is told");
    engine.run_to("90m").await;
    run.send("x", &7_u32).await.unwrap();
    engine.run_to("3h").await;
    assert_eq!(run.output().await.unwrap(), 0);
}
