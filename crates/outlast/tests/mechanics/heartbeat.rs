//! Heartbeats: an attempt without heartbeats fails, and the next one gets its details.

use std::future::pending;

use outlast::prelude::*;
use outlast::{ErrorKind, Status, WorkerBuilder};

use super::faulty_world::Call;
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    an_attempt_without_a_heartbeat_for_too_long_fails_with_a_timeout,
    an_attempt_with_heartbeats_outlives_its_heartbeat_timeout,
    the_timeout_of_an_attempt_holds_despite_heartbeats,
    the_last_details_are_recorded_and_given_to_the_next_attempt_after_a_crash,
    details_stay_when_the_next_attempt_says_nothing,
    details_that_are_no_payload_are_left_out,
    details_of_an_attempt_that_is_lost_with_its_worker_reach_the_next_one,
    steps_without_a_heartbeat_send_nothing_with_a_beat,
    details_of_an_attempt_are_deleted_after_its_end,
    kept_outcomes_of_a_dropped_step_are_discarded,
    kept_outcomes_are_deleted_when_the_run_ends,
    details_of_a_lost_attempt_are_deleted_when_its_run_is_terminated,
}

/// Sends a heartbeat for each gate that opens.
#[step(heartbeat_timeout = "10s", attempts = 1)]
async fn beating(cx: StepContext<StepState>) -> Result<(), StepError> {
    cx.state().log("began");
    for beat in 1_u32.. {
        cx.state().wait_for_gate(&format!("beat {beat}")).await;
        cx.heartbeat(beat);
        cx.state().log(format!("beat {beat}"));
    }
    Ok(())
}

#[workflow]
async fn watched(ctx: Context) -> Result<(), Error> {
    ctx.step(beating, ()).await
}

async fn an_attempt_without_a_heartbeat_for_too_long_fails_with_a_timeout(engine: TestEngine) {
    let _worker = engine.worker((watched, beating)).await;
    let run = engine.client.start(watched, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("10s");
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.is_exhausted()), (ErrorKind::Timeout, true));
    assert!(error.message().contains("its heartbeat timeout of 10s"), "{error}");
}

async fn an_attempt_with_heartbeats_outlives_its_heartbeat_timeout(engine: TestEngine) {
    let _worker = engine.worker((watched, beating)).await;
    let run = engine.client.start(watched, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    for beat in 1..=5 {
        engine.clock.advance("9s");
        engine.steps.open(&format!("beat {beat}"));
        engine.steps.wait_for_log(&format!("beat {beat}"), 1).await;
    }
    assert_eq!(engine.status(run.id()).await, Status::Running);
    engine.clock.advance("10s");
    assert!(run.output().await.unwrap_err().is_timeout());
    assert_eq!(engine.clock.now(), engine.time_after_begin("55s"));
}

async fn the_timeout_of_an_attempt_holds_despite_heartbeats(engine: TestEngine) {
    #[workflow]
    async fn timed(ctx: Context) -> Result<(), Error> {
        ctx.step(beating, ()).timeout("15s").await
    }
    let _worker = engine.worker((timed, beating)).await;
    let run = engine.client.start(timed, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("9s");
    engine.steps.open("beat 1");
    engine.steps.wait_for_log("beat 1", 1).await;
    engine.clock.advance("6s");
    let error = run.output().await.unwrap_err();
    assert!(error.message().contains("its timeout of 15s"), "{error}");
}

/// Continues from the details of the attempt before, and fails after two more; the last attempt returns where it began.
#[step(attempts = 3, initial = "1m", retry = "constant")]
async fn climbing(cx: StepContext<StepState>, silent: Option<u32>) -> Result<u32, StepError> {
    let from = cx.last_details::<u32>().unwrap_or(0);
    cx.state().log(format!("from {from}"));
    if cx.attempt() == 3 {
        return Ok(from);
    }
    if silent != Some(cx.attempt()) {
        cx.heartbeat(from + 1);
        cx.heartbeat(from + 2);
    }
    Err(StepError::msg("slipped"))
}

#[workflow]
async fn climb(ctx: Context, silent: Option<u32>) -> Result<u32, Error> {
    ctx.step(climbing, silent).await
}

async fn the_last_details_are_recorded_and_given_to_the_next_attempt_after_a_crash(engine: TestEngine) {
    let worker = engine.worker((climb, climbing)).await;
    let run = engine.client.start(climb, None).await.unwrap();
    engine.run_to("20s").await;
    engine.crash(worker);
    let _worker = engine.worker((climb, climbing)).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 4);
    assert_eq!(engine.steps.logged(), ["from 0", "from 2", "from 4"]);
}

async fn details_stay_when_the_next_attempt_says_nothing(engine: TestEngine) {
    let _worker = engine.worker((climb, climbing)).await;
    let run = engine.client.start(climb, Some(2)).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(engine.steps.logged(), ["from 0", "from 2", "from 2"]);
}

async fn details_that_are_no_payload_are_left_out(engine: TestEngine) {
    #[step(attempts = 2, heartbeat_timeout = "10s")]
    async fn huge(cx: StepContext<StepState>) -> Result<Option<String>, StepError> {
        if cx.attempt() == 2 {
            return Ok(cx.last_details());
        }
        cx.state().log("began");
        cx.heartbeat("x".repeat(5 * 1024 * 1024));
        pending().await
    }
    #[workflow]
    async fn large(ctx: Context) -> Result<Option<String>, Error> {
        ctx.step(huge, ()).await
    }
    let _worker = engine.worker((large, huge)).await;
    let run = engine.client.start(large, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("10s");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), None);
}

/// Sends its progress, and ends when the gate of this name opens.
#[step]
async fn carrying(cx: StepContext<StepState>, gate: String) -> u32 {
    let from = cx.last_details::<u32>().unwrap_or(0);
    cx.heartbeat(from + 1);
    cx.state().log(format!("{gate} from {from}"));
    cx.state().wait_for_gate(&gate).await;
    from
}

#[workflow]
async fn carry(ctx: Context) -> Result<u32, Error> {
    let from = ctx.step(carrying, "first".to_owned()).await?;
    ctx.blocked("second").await?;
    Ok(from)
}

async fn details_of_an_attempt_that_is_lost_with_its_worker_reach_the_next_one(engine: TestEngine) {
    let worker = engine.worker((carry, carrying)).await;
    let run = engine.client.start(carry, ()).await.unwrap();
    engine.steps.wait_for_log("first from 0", 1).await;
    worker.beat().await.unwrap();
    engine.crash(worker);
    let worker = engine.worker((carry, carrying)).await;
    engine.steps.wait_for_log("first from 1", 1).await;
    // No heartbeat since: the next attempt gets the details of the attempt before.
    engine.crash(worker);
    let _worker = engine.worker((carry, carrying)).await;
    engine.steps.wait_for_log("first from 1", 2).await;
    engine.steps.open("first");
    engine.steps.open("second");
    assert_eq!(run.output().await.unwrap(), 1);
}

async fn steps_without_a_heartbeat_send_nothing_with_a_beat(engine: TestEngine) {
    #[workflow]
    async fn plain(ctx: Context) -> Result<String, Error> {
        ctx.blocked("plain").await
    }
    let worker = engine.worker(plain).await;
    let run = engine.client.start(plain, ()).await.unwrap();
    engine.steps.wait_for_log("began plain", 1).await;
    worker.beat().await.unwrap();
    engine.steps.open("plain");
    run.output().await.unwrap();
    worker.beat().await.unwrap();
    assert!(engine.faults.sizes(Call::Beat).iter().all(|details| *details == 0));
}

/// A worker whose beats are made by the test: its own come every quarter of an hour of real time.
fn without_beats(engine: &TestEngine) -> WorkerBuilder<StepState> {
    engine.builder().session_time("1h")
}

async fn details_of_an_attempt_are_deleted_after_its_end(engine: TestEngine) {
    let worker = without_beats(&engine).register((carry, carrying)).start().await.unwrap();
    let run = engine.client.start(carry, ()).await.unwrap();
    engine.steps.wait_for_log("first from 0", 1).await;
    worker.beat().await.unwrap();
    // Unchanged details are not sent again.
    worker.beat().await.unwrap();
    engine.steps.open("first");
    engine.steps.wait_for_log("began second", 1).await;
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(engine.faults.sizes(Call::Beat)[1..], [1, 0, 1, 0]);
    engine.steps.open("second");
    run.output().await.unwrap();
}

/// Begins a step with details and continues without it when told to; a second word ends it.
#[workflow]
async fn leaves_a_step_behind(ctx: Context, is_dropped: bool) -> Result<(), Error> {
    let step = ctx.step(carrying, "first".to_owned());
    ctx.hook::<u32>("go").await?;
    if is_dropped {
        drop(step);
        ctx.blocked("second").await?;
    }
    Ok(())
}

async fn kept_outcomes_of_a_dropped_step_are_discarded(engine: TestEngine) {
    let worker = without_beats(&engine).register((leaves_a_step_behind, carrying)).start().await.unwrap();
    let run = engine.client.start(leaves_a_step_behind, true).await.unwrap();
    engine.steps.wait_for_log("first from 0", 1).await;
    worker.beat().await.unwrap();
    engine.send(run.id(), "go", 1).await;
    engine.steps.wait_for_log("began second", 1).await;
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(engine.faults.sizes(Call::Beat)[1..], [1, 1, 0]);
    engine.steps.open("second");
    run.output().await.unwrap();
}

async fn kept_outcomes_are_deleted_when_the_run_ends(engine: TestEngine) {
    let worker = without_beats(&engine).register((leaves_a_step_behind, carrying)).start().await.unwrap();
    let run = engine.client.start(leaves_a_step_behind, false).await.unwrap();
    engine.steps.wait_for_log("first from 0", 1).await;
    worker.beat().await.unwrap();
    engine.send(run.id(), "go", 1).await;
    run.output().await.unwrap();
    while worker.metrics().live_runs > 0 {
        tokio::task::yield_now().await;
    }
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(engine.faults.sizes(Call::Beat)[1..], [1, 1, 0]);
}

async fn details_of_a_lost_attempt_are_deleted_when_its_run_is_terminated(engine: TestEngine) {
    let worker = without_beats(&engine).register((carry, carrying)).start().await.unwrap();
    let run = engine.client.start(carry, ()).await.unwrap();
    engine.steps.wait_for_log("first from 0", 1).await;
    worker.beat().await.unwrap();
    worker.crash();
    engine.clock.advance("1h");
    // Without the code, it can only end the run.
    let worker = without_beats(&engine).register(watched).start().await.unwrap();
    let before = engine.faults.sizes(Call::Beat).len();
    run.terminate("enough").await.unwrap();
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    while worker.metrics().live_runs > 0 {
        tokio::task::yield_now().await;
    }
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(engine.faults.sizes(Call::Beat)[before..], [1, 0]);
}
