//! What a step knows about the run that requested it, and runs that it starts.

use outlast::prelude::*;

use super::queued::serving;
use super::test_engine::{StepState, TestEngine, on_every_world};

on_every_world! {
    a_step_knows_the_workflow_tags_and_headers_of_its_run,
    a_queued_step_knows_the_run_that_requested_it,
    a_run_that_a_step_starts_is_started_once,
}

#[step]
async fn about(cx: StepContext<StepState>) -> String {
    format!("{} {:?} {:?} {}", cx.workflow(), cx.tags(), cx.headers(), cx.step_name())
}

#[workflow]
async fn asks(ctx: Context, is_queued: bool) -> Result<String, Error> {
    ctx.tag("phase", "asking")?;
    let step = ctx.step(about, ());
    if is_queued { step.queue("gpu").await } else { step.await }
}

const ANSWER: &str = r#"asks {"phase": "asking", "team": "sales"} {"user": "ada"} about"#;

async fn a_step_knows_the_workflow_tags_and_headers_of_its_run(engine: TestEngine) {
    let _worker = engine.worker((asks, about)).await;
    let start = engine.client.start(asks, false).tag("team", "sales").header("user", "ada");
    assert_eq!(start.await.unwrap().output().await.unwrap(), ANSWER);
}

async fn a_queued_step_knows_the_run_that_requested_it(engine: TestEngine) {
    let _worker = engine.worker((asks, about)).await;
    let _there = engine.builder().queues(["gpu"]).register(about).start().await.unwrap();
    let start = engine.client.start(asks, true).tag("team", "sales").header("user", "ada");
    assert_eq!(start.await.unwrap().output().await.unwrap(), ANSWER);
}

#[workflow]
async fn welcome(ctx: Context, user: String) -> Result<String, Error> {
    Ok(format!("hello {user} from {}", ctx.headers()["trace"]))
}

/// Fails after the first start, so that it is attempted twice.
#[step(initial = "1ms")]
async fn sign_up(cx: StepContext<StepState>, user: String) -> Result<String, StepError> {
    let run = cx.start(welcome, &user).await?;
    cx.state().log(run.id().to_string());
    if cx.attempt() == 1 {
        return Err(StepError::msg("out of luck"));
    }
    Ok(run.output().await?)
}

#[workflow]
async fn registers(ctx: Context, user: String) -> Result<String, Error> {
    ctx.step(sign_up, user).await
}

async fn a_run_that_a_step_starts_is_started_once(engine: TestEngine) {
    let _worker = engine.worker((registers, sign_up, welcome)).await;
    let _there = serving(&engine, "gpu").await;
    let start = engine.client.start(registers, "ada".to_owned()).header("trace", "7");
    let run = start.await.unwrap();
    engine.advance("1s").await;
    assert_eq!(run.output().await.unwrap(), "hello ada from 7");
    let logged = engine.steps.logged();
    assert_eq!((logged.len(), &logged[0]), (2, &logged[1]), "both attempts get the same run");
    let started = engine.client.list().workflow(welcome).await.unwrap().runs;
    assert_eq!(started.len(), 1);
    assert_eq!(started[0].key.as_deref(), Some(&*format!("{}.0.0:welcome", run.id())));
    assert!(engine.world.run(started[0].id).await.unwrap().parent.is_none());
}
