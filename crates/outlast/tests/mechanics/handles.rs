//! Handles without attributes: constants that a worker implements, and others use by name and types.

use outlast::prelude::*;
use outlast::{ErrorKind, Retry};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_handle_has_the_code_that_the_worker_gives_it,
    the_policy_of_a_handle_holds,
    a_handle_that_is_attempted_at_most_once_is_unknown_after_a_crash,
    old_names_of_a_handle_are_accepted,
    a_run_of_a_handle_survives_a_crash,
    a_handle_is_registered_once,
    a_hook_with_a_type_takes_what_is_sent_to_it_by_constant_or_by_name,
}

const SHOUT: Step<String, String> =
    Step::new("shout").retry(Retry::constant()).attempts(2).timeout("10s").limit(1);
const LOUD: Workflow<String, String> = Workflow::new("loud").at_version(3);

async fn loud(ctx: Context, word: String) -> Result<String, Error> {
    ctx.step(SHOUT, word).await
}

async fn shout(cx: StepContext<StepState>, word: String) -> Result<String, std::fmt::Error> {
    cx.state().log("shout");
    if word == "fails" { Err(std::fmt::Error) } else { Ok(word.to_uppercase()) }
}

const RATING: Hook<u8> = Hook::new("rating");
const NOTE: Hook<String> = Hook::new("note");

#[workflow]
async fn survey(ctx: Context) -> Result<String, Error> {
    let first = ctx.hook(RATING).await?;
    let second: u8 = ctx.hook("rating").await?;
    let note = ctx.hook(NOTE).timeout("1d").received().await?;
    let user = note.headers.get("user").map_or("", String::as_str);
    Ok(format!("{first} {second} {} by {user} at {}", note.payload, note.at))
}

async fn a_hook_with_a_type_takes_what_is_sent_to_it_by_constant_or_by_name(engine: TestEngine) {
    let _worker = engine.worker(survey).await;
    let run = engine.client.start(survey, ()).key("k").await.unwrap();
    run.send(RATING, &4).await.unwrap();
    engine.client.by_key("k").send(RATING.name(), &5).await.unwrap();
    engine.settle().await;
    let at = engine.clock.now();
    engine.client.send(run.id(), NOTE, "fine").header("user", "ada").await.unwrap();
    assert_eq!(run.output().await.unwrap(), format!("4 5 fine by ada at {at}"));
}

async fn a_handle_has_the_code_that_the_worker_gives_it(engine: TestEngine) {
    let builder = engine.builder().step(SHOUT, shout).workflow(LOUD, loud);
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(LOUD, "hello".to_owned()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "HELLO");
    let view = engine.view(run.id()).await;
    assert_eq!((&*view.workflow, view.version), ("loud", 3));
}

async fn the_policy_of_a_handle_holds(engine: TestEngine) {
    let _worker = engine.builder().step(SHOUT, shout).workflow(LOUD, loud).start().await.unwrap();
    let run = engine.client.start(LOUD, "fails".to_owned()).await.unwrap();
    engine.settle().await;
    engine.advance("1s").await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.attempts(), error.step(), error.is_exhausted()), (2, Some("shout"), true));
    assert_eq!(engine.steps.times("shout"), ["0s", "200ms"]);
}

async fn a_handle_that_is_attempted_at_most_once_is_unknown_after_a_crash(engine: TestEngine) {
    const ONCE: Step<String, String> = Step::new("once").at_most_once();
    let pay = async |cx: StepContext<StepState>, gate: String| {
        cx.state().log("paid");
        cx.state().wait_for_gate(&gate).await;
        Ok::<_, StepError>(gate)
    };
    let paying = async |ctx: Context, gate: String| ctx.step(ONCE, gate).await;
    const PAYING: Workflow<String, String> = Workflow::new("paying");
    let worker = engine.builder().step(ONCE, pay).workflow(PAYING, paying).start().await.unwrap();
    let run = engine.client.start(PAYING, "never".to_owned()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(worker);
    let _worker = engine.builder().step(ONCE, pay).workflow(PAYING, paying).start().await.unwrap();
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Unknown);
}

async fn old_names_of_a_handle_are_accepted(engine: TestEngine) {
    const OLD: Workflow<(), String> = Workflow::new("old");
    const NEW: Workflow<(), String> = Workflow::new("new").was(&["older", "old"]);
    const NOTE: Step<String, String> = Step::new("note");
    const WRITE: Step<String, String> = Step::new("write").was(&["note"]);
    let before = async |ctx: Context, ()| {
        let noted = ctx.step(NOTE, "noted".to_owned()).await?;
        ctx.blocked("between").await?;
        Ok::<_, Error>(noted)
    };
    let after = async |ctx: Context, ()| {
        let written = ctx.step(WRITE, "written".to_owned()).await?;
        ctx.blocked("between").await?;
        Ok::<_, Error>(written)
    };
    let worker = engine.builder().workflow(OLD, before).start().await.unwrap();
    let run = engine.client.start(OLD, ()).await.unwrap();
    engine.steps.wait_for_log("began between", 1).await;
    engine.crash(worker);
    let _worker = engine.builder().workflow(NEW, after).start().await.unwrap();
    engine.steps.open("between");
    assert_eq!(run.output().await.unwrap(), "noted");
}

async fn a_run_of_a_handle_survives_a_crash(engine: TestEngine) {
    const TRIP: Workflow<u32, u32> = Workflow::new("trip");
    let trip = async |ctx: Context, days: u32| {
        ctx.note("packed").await?;
        ctx.sleep("1d").await?;
        Ok::<_, Error>(days + 1)
    };
    let worker = engine.builder().workflow(TRIP, trip).start().await.unwrap();
    let run = engine.client.start(TRIP, 6).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.builder().workflow(TRIP, trip).start().await.unwrap();
    engine.advance("1d").await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(engine.steps.count("packed"), 1);
}

async fn a_handle_is_registered_once(engine: TestEngine) {
    let refused = |error: Result<Worker, Error>| error.unwrap_err().to_string();
    let twice = refused(engine.builder().step(SHOUT, shout).step(SHOUT, shout).start().await);
    assert!(twice.starts_with("step `shout` is registered twice"), "{twice}");
    let twice = refused(engine.builder().workflow(LOUD, loud).workflow(LOUD, loud).start().await);
    assert!(twice.starts_with("workflow `loud` version 3 is registered twice"), "{twice}");
}
