//! Heartbeats: a silent attempt fails, and the next one knows how far it had come.

use std::future::pending;

use outlast::prelude::*;
use outlast::{ErrorKind, Status, WorkerBuilder};

use super::faulty::Call;
use super::rig::{Ask, Desk, Rig, on_every_world};

on_every_world! {
    an_attempt_without_a_heartbeat_for_too_long_fails_with_a_timeout,
    an_attempt_with_heartbeats_outlives_its_heartbeat_timeout,
    the_timeout_of_an_attempt_holds_whatever_its_heart_does,
    the_last_details_are_recorded_and_given_to_the_next_attempt_after_a_crash,
    details_stay_when_the_next_attempt_says_nothing,
    details_that_are_no_payload_are_left_out,
    details_of_an_attempt_that_is_lost_with_its_worker_reach_the_next_one,
    steps_without_a_heartbeat_send_nothing_with_a_beat,
    what_is_kept_of_an_attempt_is_forgotten_after_its_end,
    what_is_kept_of_a_dropped_step_is_forgotten,
    what_is_kept_of_a_run_is_forgotten_when_it_ends,
    what_is_kept_of_a_lost_attempt_is_forgotten_when_its_run_is_terminated,
}

/// Beats once for each gate that opens, for ever.
#[step(heartbeat_timeout = "10s", attempts = 1)]
async fn beating(cx: StepContext<Desk>) -> Result<(), StepError> {
    cx.state().leave("began");
    for beat in 1_u32.. {
        cx.state().passed(&format!("beat {beat}")).await;
        cx.heartbeat(beat);
        cx.state().leave(format!("beat {beat}"));
    }
    Ok(())
}

#[workflow]
async fn watched(ctx: Context) -> Result<(), Error> {
    ctx.step(beating, ()).await
}

async fn an_attempt_without_a_heartbeat_for_too_long_fails_with_a_timeout(rig: Rig) {
    let _worker = rig.worker((watched, beating)).await;
    let run = rig.client.start(watched, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    rig.clock.advance("10s");
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.is_exhausted()), (ErrorKind::Timeout, true));
    assert!(error.message().contains("its heartbeat timeout of 10s"), "{error}");
}

async fn an_attempt_with_heartbeats_outlives_its_heartbeat_timeout(rig: Rig) {
    let _worker = rig.worker((watched, beating)).await;
    let run = rig.client.start(watched, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    for beat in 1..=5 {
        rig.clock.advance("9s");
        rig.desk.open(&format!("beat {beat}"));
        rig.desk.until(&format!("beat {beat}"), 1).await;
    }
    assert_eq!(rig.status(run.id()).await, Status::Running);
    rig.clock.advance("10s");
    assert!(run.output().await.unwrap_err().is_timeout());
    assert_eq!(rig.clock.now(), rig.moment("55s"));
}

async fn the_timeout_of_an_attempt_holds_whatever_its_heart_does(rig: Rig) {
    #[workflow]
    async fn timed(ctx: Context) -> Result<(), Error> {
        ctx.step(beating, ()).timeout("15s").await
    }
    let _worker = rig.worker((timed, beating)).await;
    let run = rig.client.start(timed, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    rig.clock.advance("9s");
    rig.desk.open("beat 1");
    rig.desk.until("beat 1", 1).await;
    rig.clock.advance("6s");
    let error = run.output().await.unwrap_err();
    assert!(error.message().contains("its timeout of 15s"), "{error}");
}

/// Goes two further than the attempt before, and then fails; the last attempt tells where it began.
#[step(attempts = 3, initial = "1m", retry = "constant")]
async fn climbing(cx: StepContext<Desk>, silent: Option<u32>) -> Result<u32, StepError> {
    let from = cx.last_details::<u32>().unwrap_or(0);
    cx.state().leave(format!("from {from}"));
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

async fn the_last_details_are_recorded_and_given_to_the_next_attempt_after_a_crash(rig: Rig) {
    let worker = rig.worker((climb, climbing)).await;
    let run = rig.client.start(climb, None).await.unwrap();
    rig.run_to("20s").await;
    rig.crash(worker);
    let _worker = rig.worker((climb, climbing)).await;
    rig.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 4);
    assert_eq!(rig.desk.notes(), ["from 0", "from 2", "from 4"]);
}

async fn details_stay_when_the_next_attempt_says_nothing(rig: Rig) {
    let _worker = rig.worker((climb, climbing)).await;
    let run = rig.client.start(climb, Some(2)).await.unwrap();
    rig.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 2);
    assert_eq!(rig.desk.notes(), ["from 0", "from 2", "from 2"]);
}

async fn details_that_are_no_payload_are_left_out(rig: Rig) {
    #[step(attempts = 2, heartbeat_timeout = "10s")]
    async fn huge(cx: StepContext<Desk>) -> Result<Option<String>, StepError> {
        if cx.attempt() == 2 {
            return Ok(cx.last_details());
        }
        cx.state().leave("began");
        cx.heartbeat("x".repeat(5 * 1024 * 1024));
        pending().await
    }
    #[workflow]
    async fn large(ctx: Context) -> Result<Option<String>, Error> {
        ctx.step(huge, ()).await
    }
    let _worker = rig.worker((large, huge)).await;
    let run = rig.client.start(large, ()).await.unwrap();
    rig.desk.until("began", 1).await;
    rig.clock.advance("10s");
    rig.until(run.id(), Status::Waiting).await;
    rig.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), None);
}

/// Says how far it is, and ends when the gate of this name opens.
#[step]
async fn carrying(cx: StepContext<Desk>, gate: String) -> u32 {
    let from = cx.last_details::<u32>().unwrap_or(0);
    cx.heartbeat(from + 1);
    cx.state().leave(format!("{gate} from {from}"));
    cx.state().passed(&gate).await;
    from
}

#[workflow]
async fn carry(ctx: Context) -> Result<u32, Error> {
    let from = ctx.step(carrying, "first".to_owned()).await?;
    ctx.blocked("second").await?;
    Ok(from)
}

async fn details_of_an_attempt_that_is_lost_with_its_worker_reach_the_next_one(rig: Rig) {
    let worker = rig.worker((carry, carrying)).await;
    let run = rig.client.start(carry, ()).await.unwrap();
    rig.desk.until("first from 0", 1).await;
    worker.beat().await.unwrap();
    rig.crash(worker);
    let worker = rig.worker((carry, carrying)).await;
    rig.desk.until("first from 1", 1).await;
    // No beat since: the details of the attempt before are what the next one gets.
    rig.crash(worker);
    let _worker = rig.worker((carry, carrying)).await;
    rig.desk.until("first from 1", 2).await;
    rig.desk.open("first");
    rig.desk.open("second");
    assert_eq!(run.output().await.unwrap(), 1);
}

async fn steps_without_a_heartbeat_send_nothing_with_a_beat(rig: Rig) {
    #[workflow]
    async fn plain(ctx: Context) -> Result<String, Error> {
        ctx.blocked("plain").await
    }
    let worker = rig.worker(plain).await;
    let run = rig.client.start(plain, ()).await.unwrap();
    rig.desk.until("began plain", 1).await;
    worker.beat().await.unwrap();
    rig.desk.open("plain");
    run.output().await.unwrap();
    worker.beat().await.unwrap();
    assert!(rig.faults.sizes(Call::Beat).iter().all(|details| *details == 0));
}

/// A worker whose beats are those of the test: its own come every quarter of an hour of real time.
fn without_beats(rig: &Rig) -> WorkerBuilder<Desk> {
    rig.builder().session_time("1h")
}

async fn what_is_kept_of_an_attempt_is_forgotten_after_its_end(rig: Rig) {
    let worker = without_beats(&rig).register((carry, carrying)).start().await.unwrap();
    let run = rig.client.start(carry, ()).await.unwrap();
    rig.desk.until("first from 0", 1).await;
    worker.beat().await.unwrap();
    // What has not changed is not sent again.
    worker.beat().await.unwrap();
    rig.desk.open("first");
    rig.desk.until("began second", 1).await;
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(rig.faults.sizes(Call::Beat)[1..], [1, 0, 1, 0]);
    rig.desk.open("second");
    run.output().await.unwrap();
}

/// Begins a step with details and goes on without it when told to; a second word ends it.
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

async fn what_is_kept_of_a_dropped_step_is_forgotten(rig: Rig) {
    let worker = without_beats(&rig).register((leaves_a_step_behind, carrying)).start().await.unwrap();
    let run = rig.client.start(leaves_a_step_behind, true).await.unwrap();
    rig.desk.until("first from 0", 1).await;
    worker.beat().await.unwrap();
    rig.send(run.id(), "go", 1).await;
    rig.desk.until("began second", 1).await;
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(rig.faults.sizes(Call::Beat)[1..], [1, 1, 0]);
    rig.desk.open("second");
    run.output().await.unwrap();
}

async fn what_is_kept_of_a_run_is_forgotten_when_it_ends(rig: Rig) {
    let worker = without_beats(&rig).register((leaves_a_step_behind, carrying)).start().await.unwrap();
    let run = rig.client.start(leaves_a_step_behind, false).await.unwrap();
    rig.desk.until("first from 0", 1).await;
    worker.beat().await.unwrap();
    rig.send(run.id(), "go", 1).await;
    run.output().await.unwrap();
    while worker.metrics().live_runs > 0 {
        tokio::task::yield_now().await;
    }
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(rig.faults.sizes(Call::Beat)[1..], [1, 1, 0]);
}

async fn what_is_kept_of_a_lost_attempt_is_forgotten_when_its_run_is_terminated(rig: Rig) {
    let worker = without_beats(&rig).register((carry, carrying)).start().await.unwrap();
    let run = rig.client.start(carry, ()).await.unwrap();
    rig.desk.until("first from 0", 1).await;
    worker.beat().await.unwrap();
    worker.crash();
    rig.clock.advance("1h");
    // Without the code: it can only end the run.
    let worker = without_beats(&rig).register(watched).start().await.unwrap();
    let before = rig.faults.sizes(Call::Beat).len();
    run.terminate("enough").await.unwrap();
    rig.until(run.id(), Status::Cancelled).await;
    while worker.metrics().live_runs > 0 {
        tokio::task::yield_now().await;
    }
    worker.beat().await.unwrap();
    worker.beat().await.unwrap();
    assert_eq!(rig.faults.sizes(Call::Beat)[before..], [1, 0]);
}
