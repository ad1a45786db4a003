//! Handles without attributes: constants that a worker gives code, and others use by name and types.

use outlast::prelude::*;
use outlast::{ErrorKind, Retry};

use super::rig::{Ask, Desk, Rig, on_every_world};

on_every_world! {
    a_handle_has_the_code_that_the_worker_gives_it,
    the_policy_of_a_handle_holds,
    a_handle_that_is_attempted_at_most_once_is_unknown_after_a_crash,
    old_names_of_a_handle_are_accepted,
    a_run_of_a_handle_survives_a_crash,
    a_handle_is_registered_once,
}

const SHOUT: Step<String, String> =
    Step::new("shout").retry(Retry::constant()).attempts(2).timeout("10s").limit(1);
const LOUD: Workflow<String, String> = Workflow::new("loud").at_version(3);

async fn loud(ctx: Context, word: String) -> Result<String, Error> {
    ctx.step(SHOUT, word).await
}

async fn shout(cx: StepContext<Desk>, word: String) -> Result<String, std::fmt::Error> {
    cx.state().leave("shout");
    if word == "fails" { Err(std::fmt::Error) } else { Ok(word.to_uppercase()) }
}

async fn a_handle_has_the_code_that_the_worker_gives_it(rig: Rig) {
    let builder = rig.builder().step(SHOUT, shout).workflow(LOUD, loud);
    let _worker = builder.start().await.unwrap();
    let run = rig.client.start(LOUD, "hello".to_owned()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "HELLO");
    let view = rig.view(run.id()).await;
    assert_eq!((&*view.workflow, view.version), ("loud", 3));
}

async fn the_policy_of_a_handle_holds(rig: Rig) {
    let _worker = rig.builder().step(SHOUT, shout).workflow(LOUD, loud).start().await.unwrap();
    let run = rig.client.start(LOUD, "fails".to_owned()).await.unwrap();
    rig.settle().await;
    rig.pass("1s").await;
    let error = run.output().await.unwrap_err();
    assert_eq!((error.attempts(), error.step(), error.is_exhausted()), (2, Some("shout"), true));
    assert_eq!(rig.desk.times("shout"), ["0s", "200ms"]);
}

async fn a_handle_that_is_attempted_at_most_once_is_unknown_after_a_crash(rig: Rig) {
    const ONCE: Step<String, String> = Step::new("once").at_most_once();
    let pay = async |cx: StepContext<Desk>, gate: String| {
        cx.state().leave("paid");
        cx.state().passed(&gate).await;
        Ok::<_, StepError>(gate)
    };
    let paying = async |ctx: Context, gate: String| ctx.step(ONCE, gate).await;
    const PAYING: Workflow<String, String> = Workflow::new("paying");
    let worker = rig.builder().step(ONCE, pay).workflow(PAYING, paying).start().await.unwrap();
    let run = rig.client.start(PAYING, "never".to_owned()).await.unwrap();
    rig.desk.until("paid", 1).await;
    rig.crash(worker);
    let _worker = rig.builder().step(ONCE, pay).workflow(PAYING, paying).start().await.unwrap();
    assert_eq!(run.output().await.unwrap_err().kind(), ErrorKind::Unknown);
}

async fn old_names_of_a_handle_are_accepted(rig: Rig) {
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
    let worker = rig.builder().workflow(OLD, before).start().await.unwrap();
    let run = rig.client.start(OLD, ()).await.unwrap();
    rig.desk.until("began between", 1).await;
    rig.crash(worker);
    let _worker = rig.builder().workflow(NEW, after).start().await.unwrap();
    rig.desk.open("between");
    assert_eq!(run.output().await.unwrap(), "noted");
}

async fn a_run_of_a_handle_survives_a_crash(rig: Rig) {
    const TRIP: Workflow<u32, u32> = Workflow::new("trip");
    let trip = async |ctx: Context, days: u32| {
        ctx.note("packed").await?;
        ctx.sleep("1d").await?;
        Ok::<_, Error>(days + 1)
    };
    let worker = rig.builder().workflow(TRIP, trip).start().await.unwrap();
    let run = rig.client.start(TRIP, 6).await.unwrap();
    rig.settle().await;
    rig.crash(worker);
    let _worker = rig.builder().workflow(TRIP, trip).start().await.unwrap();
    rig.pass("1d").await;
    assert_eq!(run.output().await.unwrap(), 7);
    assert_eq!(rig.desk.count("packed"), 1);
}

async fn a_handle_is_registered_once(rig: Rig) {
    let refused = |error: Result<Worker, Error>| error.unwrap_err().to_string();
    let twice = refused(rig.builder().step(SHOUT, shout).step(SHOUT, shout).start().await);
    assert!(twice.starts_with("step `shout` is registered twice"), "{twice}");
    let twice = refused(rig.builder().workflow(LOUD, loud).workflow(LOUD, loud).start().await);
    assert!(twice.starts_with("workflow `loud` version 3 is registered twice"), "{twice}");
}
