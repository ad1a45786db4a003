//! Names that begin with `outlast:` or `step:` belong to the engine, in every namespace.

use outlast::prelude::*;
use outlast::{ErrorKind, Status};

use super::test_engine::{StepState, TestEngine, on_every_world};

on_every_world! {
    a_workflow_gets_an_error_for_each_reserved_name,
    a_client_gets_an_error_for_each_reserved_name,
    a_worker_with_reserved_names_does_not_start,
    a_reserved_patch_makes_the_run_stuck,
}

const RESERVED: [&str; 2] = ["outlast:x", "step:x"];

#[track_caller]
fn assert_reserved(what: &str, error: &str) {
    assert!(error.contains("which is reserved for the engine; choose another one"), "{what}: {error}");
}

#[workflow]
async fn idle(ctx: Context) -> Result<(), Error> {
    ctx.hook::<()>("end").await
}

/// Requests something of every namespace with a reserved name.
#[workflow]
async fn greedy(ctx: Context, name: String) -> Result<Vec<String>, Error> {
    let name = name.as_str();
    let message = |error: Error| error.message().to_owned();
    let mut errors = vec![
        format!("hook: {}", ctx.hook::<u32>(name).await.map_err(message).unwrap_err()),
        format!("step: {}", ctx.call(name, 1u32, plus_one).await.map_err(message).unwrap_err()),
        format!("value: {}", ctx.record(name, || 1u32).map_err(message).unwrap_err()),
        format!("tag: {}", ctx.tag(name, "x").map_err(message).unwrap_err()),
        format!("key: {}", ctx.child(idle, ()).key(name).await.map_err(message).unwrap_err()),
        format!("child's tag: {}", ctx.child(idle, ()).tag(name, "x").await.map_err(message).unwrap_err()),
        format!(
            "child's header: {}",
            ctx.child(idle, ()).header(name, "x").await.map_err(message).unwrap_err()
        ),
        format!("child's queue: {}", ctx.child(idle, ()).queue(name).await.map_err(message).unwrap_err()),
    ];
    errors.push(format!("stream: {}", ctx.step(write_to, name).await.map_err(message).unwrap_err()));
    for open in [ctx.open_hook::<u32>(name), ctx.open_hook::<u32>("named").token(name)] {
        errors.push(format!("open hook: {}", open.await.map(drop).map_err(message).unwrap_err()));
    }
    let looped = ctx.iterate(name, 0u32, async |_: Context, done: u32| Ok(Next::Done(done)));
    errors.push(format!("loop: {}", looped.await.map_err(message).unwrap_err()));
    Ok(errors)
}

#[step(attempts = 1)]
async fn write_to(cx: StepContext<StepState>, stream: String) -> Result<(), StepError> {
    cx.stream(&stream).write(&1).await
}

async fn plus_one(number: u32) -> Result<u32, StepError> {
    Ok(number + 1)
}

async fn a_workflow_gets_an_error_for_each_reserved_name(engine: TestEngine) {
    let _worker = engine.worker((greedy, idle, write_to)).await;
    for name in RESERVED {
        let errors = engine.client.start(greedy, name.to_owned()).await.unwrap().output().await.unwrap();
        assert_eq!(errors.len(), 12);
        errors.iter().for_each(|error| assert_reserved(name, error));
    }
}

async fn a_client_gets_an_error_for_each_reserved_name(engine: TestEngine) {
    let client = &engine.client;
    let run = client.start(idle, ()).await.unwrap().id();
    let start = || client.start(idle, ());
    for name in RESERVED {
        let refused = [
            start().key(name).await.map(drop),
            start().tag(name, "x").await.map(drop),
            start().header(name, "x").await.map(drop),
            start().queue(name).await.map(drop),
            start().key("k").and_send(name, &1).await.map(drop),
            start().key("k").and_send("end", &()).send_key(name).await.map(drop),
            client.send(run, name, &1).await,
            client.send(run, "end", &()).key(name).await,
            client.send(run, "end", &()).header(name, "x").await,
            client.ask_as::<u32>(run, name, &1).await.map(drop),
            client.ask_as::<u32>(run, "end", &1).key(name).await.map(drop),
            client.ask_token::<u32, _>("token", &1).key(name).await.map(drop),
            client.send_to_token("token", &1).key(name).await.map(drop),
            client.schedule(name).every("1d").start(idle, ()).await.map(drop),
            client.schedule("s").every("1d").tag(name, "x").start(idle, ()).await.map(drop),
        ];
        for (nth, refused) in refused.into_iter().enumerate() {
            let error = refused.expect_err(&format!("call {nth} with `{name}`"));
            assert_eq!(error.kind(), ErrorKind::Invalid, "call {nth}: {error}");
            assert_reserved(&format!("call {nth}"), &error.to_string());
        }
    }
    assert_eq!(engine.client.list().await.unwrap().runs.len(), 1, "nothing was started");
}

async fn a_worker_with_reserved_names_does_not_start(engine: TestEngine) {
    #[workflow(name = "outlast:mine")]
    async fn built_in(_ctx: Context) -> Result<(), Error> {
        Ok(())
    }
    #[step(name = "outlast:mine")]
    async fn built_in_step(number: u32) -> u32 {
        number
    }
    let refused = [
        engine.builder().register(built_in).start().await,
        engine.builder().register(built_in_step).start().await,
        engine.builder().register(idle).queues(["outlast:q"]).start().await,
    ];
    for refused in refused {
        assert_reserved("worker", &refused.unwrap_err().to_string());
    }
}

async fn a_reserved_patch_makes_the_run_stuck(engine: TestEngine) {
    #[workflow]
    async fn patching(ctx: Context) -> Result<bool, Error> {
        Ok(ctx.patched("outlast:new"))
    }
    let _worker = engine.worker(patching).await;
    let run = engine.client.start(patching, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Stuck).await;
    assert_reserved("patch", &engine.stuck(run.id()).await.message);
}
