//! Steps that are attempted at most once: after a crash their outcome is unknown, and that is said.

use outlast::prelude::*;
use outlast::{ErrorKind, Step};

use super::rig::{Ask, Desk, Rig, on_every_world};

on_every_world! {
    after_a_crash_the_outcome_is_unknown_and_no_attempt_is_made,
    an_unknown_outcome_is_recorded_and_stays,
    whoever_asks_for_it_by_name_gets_at_most_once_too,
    a_failed_attempt_is_not_followed_by_another,
    a_worker_that_stops_attempts_what_it_announced,
    a_recorded_outcome_is_not_unknown_after_a_crash,
}

/// Takes the money, and ends when the test opens the gate.
#[step(at_most_once)]
async fn pay(cx: StepContext<Desk>, gate: String) -> Result<String, StepError> {
    cx.state().leave("paid");
    cx.state().passed(&gate).await;
    if gate == "fails" { Err(StepError::msg("no answer")) } else { Ok(gate) }
}

#[workflow]
async fn paying(ctx: Context, gate: String) -> Result<String, Error> {
    match ctx.step(pay, gate).await {
        Err(error) if error.kind() == ErrorKind::Unknown => {
            ctx.hook::<u32>("looked").await?;
            Ok(format!("{error}, after {} attempt", error.attempts()))
        }
        other => other,
    }
}

async fn after_a_crash_the_outcome_is_unknown_and_no_attempt_is_made(rig: Rig) {
    let worker = rig.worker((paying, pay)).await;
    let run = rig.client.start(paying, "open".to_owned()).await.unwrap();
    rig.desk.until("paid", 1).await;
    rig.crash(worker);
    let _worker = rig.worker((paying, pay)).await;
    rig.send(run.id(), "looked", 1).await;
    let output = run.output().await.unwrap();
    assert!(output.contains("step `pay` failed") && output.contains("the outcome is unknown"), "{output}");
    assert!(output.ends_with("after 1 attempt"), "{output}");
    assert_eq!(rig.desk.count("paid"), 1);
}

async fn an_unknown_outcome_is_recorded_and_stays(rig: Rig) {
    let mut worker = rig.worker((paying, pay)).await;
    let run = rig.client.start(paying, "open".to_owned()).await.unwrap();
    rig.desk.until("paid", 1).await;
    for _ in 0..2 {
        rig.crash(worker);
        worker = rig.worker((paying, pay)).await;
        rig.settle().await;
    }
    let history = rig.history(run.id()).await;
    assert_eq!(history.matches("step_failed").count(), 1, "{history}");
    rig.send(run.id(), "looked", 1).await;
    run.output().await.unwrap();
    assert_eq!(rig.desk.count("paid"), 1);
}

async fn whoever_asks_for_it_by_name_gets_at_most_once_too(rig: Rig) {
    const PAY: Step<String, String> = Step::new("pay");
    #[workflow]
    async fn by_name(ctx: Context) -> Result<String, Error> {
        ctx.step(PAY, "open".to_owned()).attempts(3).await
    }
    let worker = rig.worker((by_name, pay)).await;
    let run = rig.client.start(by_name, ()).await.unwrap();
    rig.desk.until("paid", 1).await;
    rig.crash(worker);
    let _worker = rig.worker((by_name, pay)).await;
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(rig.desk.count("paid"), 1);
}

async fn a_failed_attempt_is_not_followed_by_another(rig: Rig) {
    let _worker = rig.worker((paying, pay)).await;
    rig.desk.open("fails");
    let run = rig.client.start(paying, "fails".to_owned()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts(), error.message()), (ErrorKind::Error, 1, "no answer"));
    assert_eq!(rig.desk.count("paid"), 1);
}

async fn a_worker_that_stops_attempts_what_it_announced(rig: Rig) {
    #[workflow]
    async fn long(ctx: Context) -> Result<String, Error> {
        ctx.blocked("before").await?;
        let paid = ctx.step(pay, "open".to_owned()).await?;
        ctx.note("after").await?;
        Ok(paid)
    }
    let worker = rig.worker((long, pay)).await;
    let run = rig.client.start(long, ()).await.unwrap();
    rig.desk.until("began before", 1).await;
    let stopping = tokio::spawn(worker.stop());
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    rig.desk.open("before");
    rig.desk.until("paid", 1).await;
    rig.desk.open("open");
    stopping.await.unwrap().unwrap();
    assert_eq!(rig.desk.count("after"), 0, "only what cannot be left to others is attempted");
    let _worker = rig.worker((long, pay)).await;
    assert_eq!(run.output().await.unwrap(), "open");
    assert_eq!(rig.desk.count("paid"), 1);
}

async fn a_recorded_outcome_is_not_unknown_after_a_crash(rig: Rig) {
    #[workflow]
    async fn paid_before(ctx: Context) -> Result<String, Error> {
        let paid = ctx.step(pay, "open".to_owned()).await?;
        ctx.blocked("slow").await?;
        Ok(paid)
    }
    rig.desk.open("open");
    let worker = rig.worker((paid_before, pay)).await;
    let run = rig.client.start(paid_before, ()).await.unwrap();
    rig.desk.until("began slow", 1).await;
    rig.crash(worker);
    let _worker = rig.worker((paid_before, pay)).await;
    rig.desk.open("slow");
    assert_eq!(run.output().await.unwrap(), "open");
}
