//! `outlast::current()`: what running code belongs to; and the origin of errors, which is recorded without being passed.

use std::process::Command;

use outlast::prelude::*;

use super::test_engine::{TestEngine, on_every_world};

on_every_world! {
    code_knows_its_run_and_step_without_a_context,
    an_error_of_a_step_names_its_type_after_a_crash,
}

/// As a library would: run, workflow, step and attempt of the code that calls it.
fn label() -> String {
    let Some(current) = outlast::current() else { return "nothing".into() };
    let step = current.step.map(|step| format!("{} {} {}", step.name, step.op, step.attempt));
    format!("{} {}", current.workflow, step.unwrap_or_else(|| "itself".into()))
}

#[step(attempts = 2)]
async fn second_time() -> Result<String, StepError> {
    tokio::task::yield_now().await;
    let label = label();
    if label.ends_with('1') { Err(StepError::msg(label)) } else { Ok(label) }
}

#[step(blocking)]
fn blocks() -> String {
    label()
}

#[step]
async fn spawns() -> String {
    tokio::spawn(async { label() }).await.unwrap()
}

#[workflow]
async fn labels(ctx: Context) -> Result<Vec<String>, Error> {
    let before = label();
    assert_eq!(outlast::current().map(|current| current.run), Some(ctx.run()));
    let steps = [ctx.step(second_time, ()).await?, ctx.step(blocks, ()).await?, ctx.step(spawns, ()).await?];
    let mut labels = vec![before];
    labels.extend(steps);
    labels.push(label());
    Ok(labels)
}

async fn code_knows_its_run_and_step_without_a_context(engine: TestEngine) {
    let _worker = engine.worker((labels, second_time, blocks, spawns)).await;
    let run = engine.client.start(labels, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let expected =
        ["labels itself", "labels second_time 0 2", "labels blocks 1 1", "nothing", "labels itself"];
    assert_eq!(run.output().await.unwrap(), expected);
    assert_eq!(label(), "nothing");
}

#[step(attempts = 1)]
async fn parses() -> Result<u8, StepError> {
    Ok("x".parse()?)
}

#[workflow]
async fn parsing(ctx: Context) -> Result<(), Error> {
    let error = ctx.step(parses, ()).await.unwrap_err();
    ctx.hook::<u32>("go").await?;
    Err(error)
}

async fn an_error_of_a_step_names_its_type_after_a_crash(engine: TestEngine) {
    let worker = engine.worker((parsing, parses)).await;
    let run = engine.client.start(parsing, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker((parsing, parses)).await;
    engine.send(run.id(), "go", 1).await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.type_name(), Some("core::num::error::ParseIntError"));
    assert!(error.backtrace().is_none() || std::env::var_os(VARIABLE).is_some());
}

const VARIABLE: &str = "OUTLAST_BACKTRACE";

/// Prints whether an error of a step has a backtrace that names the step's code.
#[tokio::test]
async fn a_failing_step_for_the_test_of_backtraces() {
    let engine = TestEngine::memory().await;
    let _worker = engine.worker((parsing, parses)).await;
    let run = engine.client.start(parsing, ()).await.unwrap();
    engine.send(run.id(), "go", 1).await;
    let error = run.output().await.unwrap_err();
    let names_the_code = error.backtrace().map(|backtrace| backtrace.contains("parses"));
    println!("backtrace: {names_the_code:?}");
}

/// The variable is read once per process, so the test needs processes of its own.
#[test]
fn a_backtrace_is_recorded_if_a_variable_says_so() {
    for (value, expected) in [("1", "backtrace: Some(true)"), ("0", "backtrace: None")] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let test = "mechanics::current::a_failing_step_for_the_test_of_backtraces";
        let output = child.args(["--exact", test, "--nocapture"]).env(VARIABLE, value).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains(expected), "{VARIABLE}={value}: {text}");
    }
}
