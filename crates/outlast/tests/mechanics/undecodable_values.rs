//! Values that cannot be decoded: the run is stuck until a build can decode them, and no code after them runs.

use std::time::Duration;

use outlast::prelude::*;
use outlast::{RunId, Status, StuckReason};
use serde::{Deserialize, Serialize};

use super::queued::step_run;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world, trace, traces};

on_every_world! {
    an_input_that_gained_a_required_field_makes_the_run_stuck_until_a_build_can_read_it,
    a_child_output_that_cannot_be_read_makes_its_parent_stuck_and_nothing_is_undone,
    a_step_output_that_cannot_be_read_is_kept_for_a_build_that_can,
    a_recorded_value_that_cannot_be_read_stops_the_code_at_once,
    a_step_input_that_cannot_be_read_does_not_count_as_an_attempt,
    a_queued_step_that_cannot_read_its_input_is_stuck_and_its_parent_waits,
    a_step_attempted_at_most_once_is_not_announced_when_its_input_cannot_be_read,
    a_taken_payload_that_a_new_build_cannot_read_makes_the_run_stuck,
    why_a_value_cannot_be_read_does_not_repeat_it,
    running_attempts_are_awaited_before_a_run_is_marked_stuck,
    attempts_of_a_stuck_run_are_awaited_for_the_drain_time_at_most,
}

/// An order as it was stored.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: u32,
}

/// An order with a field that stored ones do not have.
#[derive(Debug, Serialize, Deserialize)]
struct UrgentOrder {
    id: u32,
    priority: u32,
}

/// An order that can be decoded from both.
#[derive(Debug, Serialize, Deserialize)]
struct AnyOrder {
    id: u32,
    #[serde(default)]
    priority: u32,
}

/// Asserts why the run is stuck: the message names the type, the field and the remedy.
async fn assert_undecodable(engine: &TestEngine, run: RunId, what: &str) {
    let stuck = engine.stuck(run).await;
    assert_eq!(stuck.reason, StuckReason::Undecodable, "{}", stuck.message);
    for part in [what, "`UrgentOrder`", "missing field `priority`", "`#[serde(default)]`"] {
        assert!(stuck.message.contains(part), "{part} is not in: {}", stuck.message);
    }
    let sentence = engine.client.explain(run).await.unwrap().sentence;
    assert!(sentence.starts_with("Stuck (undecodable): build `"), "{sentence}");
    assert!(sentence.contains("missing field `priority`"), "{sentence}");
}

async fn an_input_that_gained_a_required_field_makes_the_run_stuck_until_a_build_can_read_it(
    engine: TestEngine,
) {
    #[workflow(name = "order")]
    async fn before(ctx: Context, order: Order) -> Result<u32, Error> {
        ctx.note("reserved").await?;
        Ok(order.id + ctx.hook::<u32>("paid").await?)
    }
    #[workflow(name = "order")]
    async fn gained(ctx: Context, order: UrgentOrder) -> Result<u32, Error> {
        ctx.note("reserved").await?;
        Ok(order.id + ctx.hook::<u32>("paid").await?)
    }
    #[workflow(name = "order")]
    async fn mended(ctx: Context, order: AnyOrder) -> Result<u32, Error> {
        ctx.note("reserved").await?;
        Ok(order.id + order.priority + ctx.hook::<u32>("paid").await?)
    }
    let worker = engine.worker_of_build("a", before).await;
    let run = engine.client.start(before, Order { id: 1 }).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.send(run.id(), "paid", 10).await;
    let history = engine.history(run.id()).await;
    let worker = engine.worker_of_build("b", gained).await;
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the recorded input of workflow `order`").await;
    assert_eq!(engine.history(run.id()).await, history, "the history is untouched");
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("c", mended).await;
    assert_eq!(engine.output_after_fix(&run).await, 11);
    assert_eq!(engine.steps.count("reserved"), 1);
}

async fn a_child_output_that_cannot_be_read_makes_its_parent_stuck_and_nothing_is_undone(engine: TestEngine) {
    #[workflow(name = "ship")]
    async fn ship(_ctx: Context) -> Result<Order, Error> {
        Ok(Order { id: 7 })
    }
    #[workflow(name = "sell")]
    async fn gained(ctx: Context) -> Result<u32, Error> {
        match ctx.child(Workflow::<(), UrgentOrder>::new("ship"), ()).await {
            Ok(order) => Ok(order.id),
            Err(error) => {
                ctx.note("undone").await?;
                Err(error)
            }
        }
    }
    #[workflow(name = "sell")]
    async fn mended(ctx: Context) -> Result<u32, Error> {
        Ok(ctx.child(Workflow::<(), AnyOrder>::new("ship"), ()).await?.id)
    }
    let worker = engine.worker_of_build("a", (gained, ship)).await;
    let run = engine.client.start(gained, ()).await.unwrap();
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "output of child `ship` (operation 0)").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (mended, ship)).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
    assert_eq!(engine.steps.count("undone"), 0);
}

#[step(name = "fetch")]
async fn fetch(cx: StepContext<StepState>) -> Order {
    cx.state().log("fetched");
    Order { id: 7 }
}

async fn a_step_output_that_cannot_be_read_is_kept_for_a_build_that_can(engine: TestEngine) {
    #[workflow(name = "reads")]
    async fn gained(ctx: Context) -> Result<u32, Error> {
        let order = ctx.step(Step::<(), UrgentOrder>::new("fetch"), ()).await;
        ctx.note("after").await?;
        Ok(order?.id)
    }
    #[workflow(name = "reads")]
    async fn mended(ctx: Context) -> Result<u32, Error> {
        Ok(ctx.step(Step::<(), AnyOrder>::new("fetch"), ()).await?.id)
    }
    let worker = engine.worker_of_build("a", (gained, fetch)).await;
    let run = engine.client.start(gained, ()).await.unwrap();
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "output of step `fetch` (operation 0)").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (mended, fetch)).await;
    assert_eq!(engine.output_after_fix(&run).await, 7);
    assert_eq!(engine.steps.logged(), ["fetched"], "it is attempted once, and no code after it ran");
}

async fn a_recorded_value_that_cannot_be_read_stops_the_code_at_once(engine: TestEngine) {
    #[workflow(name = "records")]
    async fn before(ctx: Context) -> Result<u32, Error> {
        let order = ctx.record("order", || Order { id: 1 })?;
        Ok(order.id + ctx.hook::<u32>("go").await?)
    }
    #[workflow(name = "records")]
    async fn gained(ctx: Context) -> Result<u32, Error> {
        let order = ctx.record("order", || UrgentOrder { id: 1, priority: 1 });
        trace(ctx.run(), "went on");
        Ok(order?.id + ctx.hook::<u32>("go").await?)
    }
    #[workflow(name = "records")]
    async fn mended(ctx: Context) -> Result<u32, Error> {
        let order = ctx.record("order", || AnyOrder { id: 1, priority: 1 })?;
        Ok(order.id + order.priority + ctx.hook::<u32>("go").await?)
    }
    let worker = engine.worker_of_build("a", before).await;
    let run = engine.client.start(before, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.send(run.id(), "go", 10).await;
    let worker = engine.worker_of_build("b", gained).await;
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the recorded value `order` (operation 0)").await;
    assert_eq!(traces(run.id(), "went on"), 0);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("c", mended).await;
    assert_eq!(engine.output_after_fix(&run).await, 11);
}

const CHARGE: Step<Order, u32> = Step::new("charge");

#[step(name = "charge")]
async fn charge_urgent(cx: StepContext<StepState>, order: UrgentOrder) -> u32 {
    cx.state().log("charged");
    order.id + cx.attempt()
}

#[step(name = "charge")]
async fn charge_any(cx: StepContext<StepState>, order: AnyOrder) -> u32 {
    cx.state().log("charged");
    order.id + order.priority + cx.attempt()
}

async fn a_step_input_that_cannot_be_read_does_not_count_as_an_attempt(engine: TestEngine) {
    #[workflow]
    async fn pays(ctx: Context) -> Result<u32, Error> {
        ctx.step(CHARGE, Order { id: 10 }).attempts(1).await
    }
    let worker = engine.worker_of_build("a", (pays, charge_urgent)).await;
    let run = engine.client.start(pays, ()).await.unwrap();
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the input of step `charge`").await;
    engine.assert_history(run.id(), "0 step_started charge").await;
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the input of step `charge`").await;
    assert_eq!(worker.metrics().attempts_failed, 0);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (pays, charge_any)).await;
    assert_eq!(engine.output_after_fix(&run).await, 11, "it is the first attempt");
    assert_eq!(engine.steps.count("charged"), 1);
}

async fn a_queued_step_that_cannot_read_its_input_is_stuck_and_its_parent_waits(engine: TestEngine) {
    #[workflow]
    async fn pays_far_away(ctx: Context) -> Result<u32, Error> {
        ctx.step(CHARGE, Order { id: 10 }).queue("bank").await
    }
    let _here = engine.worker(pays_far_away).await;
    let there = engine.builder().build("a").queues(["bank"]).register(charge_urgent).start().await.unwrap();
    let run = engine.client.start(pays_far_away, ()).await.unwrap();
    engine.settle().await;
    let step = step_run(&engine, run.id(), 0).await;
    assert_undecodable(&engine, step, "the input of step `charge`").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    there.stop().await.unwrap();
    let _there = engine.builder().build("b").queues(["bank"]).register(charge_any).start().await.unwrap();
    assert_eq!(engine.output_after_fix(&run).await, 11);
}

async fn a_step_attempted_at_most_once_is_not_announced_when_its_input_cannot_be_read(engine: TestEngine) {
    #[step(name = "charge", at_most_once)]
    async fn urgent_once(cx: StepContext<StepState>, order: UrgentOrder) -> u32 {
        cx.state().log("charged");
        order.id
    }
    #[step(name = "charge", at_most_once)]
    async fn any_once(cx: StepContext<StepState>, order: AnyOrder) -> u32 {
        cx.state().log("charged");
        order.id + order.priority
    }
    #[workflow]
    async fn pays_once(ctx: Context) -> Result<u32, Error> {
        ctx.step(CHARGE, Order { id: 10 }).await
    }
    let worker = engine.worker_of_build("a", (pays_once, urgent_once)).await;
    let run = engine.client.start(pays_once, ()).await.unwrap();
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the input of step `charge`").await;
    engine.assert_history(run.id(), "").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", (pays_once, any_once)).await;
    assert_eq!(engine.output_after_fix(&run).await, 10, "its outcome is not unknown");
    assert_eq!(engine.steps.count("charged"), 1);
}

async fn a_taken_payload_that_a_new_build_cannot_read_makes_the_run_stuck(engine: TestEngine) {
    #[workflow(name = "review")]
    async fn before(ctx: Context) -> Result<u32, Error> {
        let order = ctx.hook::<Order>("order").await?;
        Ok(order.id + ctx.hook::<u32>("go").await?)
    }
    #[workflow(name = "review")]
    async fn gained(ctx: Context) -> Result<u32, Error> {
        let order = ctx.hook::<UrgentOrder>("order").await?;
        Ok(order.id + ctx.hook::<u32>("go").await?)
    }
    let worker = engine.worker_of_build("a", before).await;
    let run = engine.client.start(before, ()).await.unwrap();
    run.send("order", &Order { id: 1 }).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.send(run.id(), "go", 10).await;
    let worker = engine.worker_of_build("b", gained).await;
    engine.settle().await;
    assert_undecodable(&engine, run.id(), "the recorded payload of hook `order` (operation 0)").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("c", before).await;
    assert_eq!(engine.output_after_fix(&run).await, 11);
}

async fn why_a_value_cannot_be_read_does_not_repeat_it(engine: TestEngine) {
    #[workflow(name = "greets")]
    async fn greets(ctx: Context, _number: u32) -> Result<u32, Error> {
        ctx.hook::<u32>("go").await
    }
    let _worker = engine.worker(greets).await;
    let run = engine.client.start(Workflow::<String, u32>::new("greets"), "alice".to_owned()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
    for text in [stuck.message, sentence] {
        assert!(!text.contains("alice"), "{text}");
        assert!(text.contains("`u32`: invalid type: string, expected u32 at line 1 column 7"), "{text}");
    }
}

#[workflow(name = "beside")]
async fn panics_beside_a_step(ctx: Context) -> Result<String, Error> {
    let slow = ctx.blocked("slow");
    ctx.hook::<u32>("go").await?;
    panic!("no way to go on with {slow:?}");
}

#[workflow(name = "beside")]
async fn goes_on_beside_a_step(ctx: Context) -> Result<String, Error> {
    let slow = ctx.blocked("slow");
    ctx.hook::<u32>("go").await?;
    slow.await
}

async fn running_attempts_are_awaited_before_a_run_is_marked_stuck(engine: TestEngine) {
    let worker = engine.worker_of_build("a", panics_beside_a_step).await;
    let run = engine.client.start(panics_beside_a_step, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.send(run.id(), "go", 1).await;
    engine.steps.open("slow");
    engine.wait_for_status(run.id(), Status::Stuck).await;
    assert_eq!(engine.steps.count("ended slow"), 1);
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("b", goes_on_beside_a_step).await;
    assert_eq!(engine.output_after_fix(&run).await, "slow");
    assert_eq!(engine.steps.count("began slow"), 1, "its outcome was stored");
}

async fn attempts_of_a_stuck_run_are_awaited_for_the_drain_time_at_most(engine: TestEngine) {
    let builder = engine.builder().build("a").drain("10s").register(panics_beside_a_step);
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(panics_beside_a_step, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.send(run.id(), "go", 1).await;
    while engine.clock.next_sleeper() != Some(engine.time_after_begin("10s")) {
        tokio::task::yield_now().await;
    }
    assert_ne!(engine.status(run.id()).await, Status::Stuck);
    engine.clock.advance(Duration::from_secs(10));
    engine.wait_for_status(run.id(), Status::Stuck).await;
    assert_eq!(engine.steps.count("ended slow"), 0);
}
