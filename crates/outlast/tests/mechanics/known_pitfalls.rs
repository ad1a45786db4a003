//! Known pitfalls of such engines: stops, keys and lists.

use std::collections::BTreeMap;

use outlast::prelude::*;
use outlast::{ErrorKind, ListOrder, RunId, RunQuery, Status};
use serde_json::{Value, json};

use super::test_engine::{StepCalls, TestEngine, note, on_every_world};

on_every_world! {
    a_restart_honours_the_remaining_sleep,
    a_sleep_that_is_over_is_not_slept_again_after_a_restart,
    an_early_wake_up_does_not_end_a_sleep,
    two_sleeps_of_the_same_length_are_two,
    the_waiter_for_an_output_ends_with_every_final_status,
    waiting_for_an_output_can_be_limited,
    payloads_keep_what_others_lose,
    a_worker_without_the_code_uses_up_no_attempt,
    a_stop_lets_the_attempt_end_and_hands_the_run_back,
    a_stop_releases_runs_after_the_drain_time,
    a_stopped_worker_has_left,
    a_dropped_worker_has_left,
    the_same_key_is_the_same_run,
    a_key_of_another_input_or_workflow_conflicts_and_is_named,
    runs_are_listed_counted_and_viewed,
    an_unknown_run_is_not_found,
    a_worker_without_code_or_with_a_name_twice_does_not_start,
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1h").await
}

async fn a_restart_honours_the_remaining_sleep(engine: TestEngine) {
    let worker = engine.worker(sleeper).await;
    let run = engine.client.start(sleeper, ()).await.unwrap();
    engine.run_to("40m").await;
    engine.crash(worker);
    engine.run_to("50m").await;
    let _worker = engine.worker(sleeper).await;
    engine.run_to("59m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.clock.run_until_idle().await;
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("1h")));
}

async fn a_sleep_that_is_over_is_not_slept_again_after_a_restart(engine: TestEngine) {
    let worker = engine.worker(sleeper).await;
    let run = engine.client.start(sleeper, ()).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    engine.run_to("5h").await;
    let _worker = engine.worker(sleeper).await;
    run.output().await.unwrap();
    assert_eq!(engine.clock.now(), engine.time_after_begin("5h"));
}

async fn an_early_wake_up_does_not_end_a_sleep(engine: TestEngine) {
    let _worker = engine.worker(sleeper).await;
    let run = engine.client.start(sleeper, ()).await.unwrap();
    for minutes in ["10m", "20m", "20m", "59m"] {
        engine.run_to(minutes).await;
        engine.send(run.id(), "wake", 1).await;
        engine.settle().await;
        let view = engine.view(run.id()).await;
        assert_eq!((view.status, view.wake_at), (Status::Waiting, Some(engine.time_after_begin("1h"))));
    }
    engine.clock.run_until_idle().await;
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("1h")));
    assert_eq!(engine.history(run.id()).await.matches("timer_fired").count(), 1);
}

async fn two_sleeps_of_the_same_length_are_two(engine: TestEngine) {
    #[workflow]
    async fn twins(ctx: Context) -> Result<(), Error> {
        try_join!(ctx.sleep("1h"), ctx.sleep("1h"))?;
        ctx.sleep("1h").await?;
        ctx.sleep("1h").await
    }
    let _worker = engine.worker(twins).await;
    let run = engine.client.start(twins, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(engine.view(run.id()).await.ended_at, Some(engine.time_after_begin("3h")));
    assert_eq!(engine.history(run.id()).await.matches("timer_fired").count(), 4);
}

#[workflow]
async fn choosing(ctx: Context) -> Result<u32, Error> {
    match ctx.hook::<u32>("x").await? {
        0 => Err(Error::msg("zero")),
        number => Ok(number),
    }
}

async fn the_waiter_for_an_output_ends_with_every_final_status(engine: TestEngine) {
    let _worker = engine.worker(choosing).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(engine.client.start(choosing, ()).await.unwrap());
    }
    let end = async {
        engine.settle().await;
        engine.send(runs[0].id(), "x", 7).await;
        engine.send(runs[1].id(), "x", 0).await;
        runs[2].cancel("enough").await.unwrap();
    };
    let (completed, failed, cancelled, ()) = join!(runs[0].output(), runs[1].output(), runs[2].output(), end);
    assert_eq!(completed.unwrap(), 7);
    let failed = failed.unwrap_err();
    assert!(failed.message() == "zero" && !failed.is_cancelled());
    assert!(cancelled.unwrap_err().is_cancelled());
}

async fn waiting_for_an_output_can_be_limited(engine: TestEngine) {
    let _worker = engine.worker(sleeper).await;
    let run = engine.client.start(sleeper, ()).await.unwrap();
    let (waited, ()) = join!(run.output_within("10m"), engine.run_to("10m"));
    let error = waited.unwrap_err();
    assert!(error.is_timeout() && error.message().contains("it is still waiting"), "{error}");
    let (waited, ()) = join!(run.output_within("2h"), engine.run_to("2h"));
    waited.unwrap();
    assert_eq!(run.output_within("soon").await.unwrap_err().kind(), ErrorKind::Invalid);
}

async fn payloads_keep_what_others_lose(engine: TestEngine) {
    #[workflow]
    async fn echo(ctx: Context, input: Value) -> Result<Vec<Value>, Error> {
        let stepped = ctx.call("echo", input.clone(), async |value: Value| Ok::<_, StepError>(value)).await?;
        let sent = ctx.hook::<Value>("x").await?;
        Ok(vec![input, stepped, sent])
    }
    let value = json!({
        "nul": "a\u{0}b", "date": "2026-02-30T25:00:00Z", "null": null, "zero": 0, "empty": "", "no": false,
        "CamelCase": 1, "snake_case": 2, "lists": [[], {}, [null]], "big": 9_007_199_254_740_993_u64,
        "negative": -0.5, "text": "\u{202e}ü💥\"\\/\u{1}", "": "empty key",
    });
    let worker = engine.worker(echo).await;
    let run = engine.client.start(echo, &value).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let _worker = engine.worker(echo).await;
    run.send("x", &value).await.unwrap();
    let output = run.output().await.unwrap();
    assert_eq!(output, [value.clone(), value.clone(), value]);
    assert!(output[0].get("missing").is_none());
}

async fn a_worker_without_the_code_uses_up_no_attempt(engine: TestEngine) {
    let run = engine.client.start(sleeper, ()).await.unwrap();
    let before = (engine.view(run.id()).await, engine.turns(run.id()).await);
    let without = engine.worker(choosing).await;
    engine.advance("1h").await;
    without.stop().await.unwrap();
    assert_eq!((engine.view(run.id()).await, engine.turns(run.id()).await), before);
    let _with = engine.worker(sleeper).await;
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
}

#[workflow]
async fn two_steps(ctx: Context) -> Result<String, Error> {
    let slow = ctx.blocked("slow").await?;
    ctx.note("next").await?;
    Ok(slow)
}

async fn a_stop_lets_the_attempt_end_and_hands_the_run_back(engine: TestEngine) {
    let worker = engine.worker_of_build("one", two_steps).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    let stop = tokio::spawn(worker.stop());
    // On one thread every task has run by then, so the run knows that its worker stops.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!stop.is_finished(), "the attempt is awaited");
    engine.steps.open("slow");
    stop.await.unwrap().unwrap();
    engine
        .assert_history(run.id(), "0 step_started blocked\n 0 step_completed \"slow\"\n 1 step_started note")
        .await;
    assert_eq!(engine.steps.count("next"), 0, "nothing new is started");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.owner, view.crashes), (Status::Pending, None, 0));
    let _worker = engine.worker_of_build("two", two_steps).await;
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!((engine.steps.count("began slow"), engine.steps.count("next")), (1, 1));
}

async fn a_stop_releases_runs_after_the_drain_time(engine: TestEngine) {
    let worker = engine.builder().drain("1ms").register(two_steps).start().await.unwrap();
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    worker.stop().await.unwrap();
    assert_eq!(engine.view(run.id()).await.owner, None);
    let _worker = engine.worker(two_steps).await;
    engine.steps.wait_for_log("began slow", 2).await;
    engine.steps.open("slow");
    run.output().await.unwrap();
}

async fn a_stopped_worker_has_left(engine: TestEngine) {
    let worker = engine.worker(sleeper).await;
    assert_eq!(engine.client.workers().await.unwrap()[0].session, worker.session());
    worker.stop().await.unwrap();
    assert!(engine.client.workers().await.unwrap().is_empty());
    let run = engine.client.start(sleeper, ()).await.unwrap();
    assert_eq!(engine.status(run.id()).await, Status::Pending, "nobody takes it any more");
}

async fn a_dropped_worker_has_left(engine: TestEngine) {
    let worker = engine.worker(two_steps).await;
    let run = engine.client.start(two_steps, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    drop(worker);
    engine.wait_for_view(run.id(), |view| view.owner.is_none()).await;
    assert!(engine.client.workers().await.unwrap().is_empty());
    assert_eq!(engine.view(run.id()).await.crashes, 0);
}

#[workflow]
async fn greet(ctx: Context, name: String) -> Result<String, Error> {
    ctx.note(&name).await
}

async fn the_same_key_is_the_same_run(engine: TestEngine) {
    let first = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    let _worker = engine.worker(greet).await;
    let second = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    assert_eq!(second.output().await.unwrap(), "ada");
    let third = engine.client.start(greet, "ada".to_owned()).key("k").await.unwrap();
    assert_eq!((first.id(), first.id()), (second.id(), third.id()));
    assert_eq!([first.is_new(), second.is_new(), third.is_new()], [true, false, false]);
    assert_eq!(engine.steps.logged(), ["ada"]);
}

async fn a_key_of_another_input_or_workflow_conflicts_and_is_named(engine: TestEngine) {
    let worker = engine.worker((greet, sleeper)).await;
    let run = engine.client.start(greet, "ada".to_owned()).key("order-42").await.unwrap();
    let stopped = engine.client.start(greet, "ada".to_owned()).await.unwrap();
    let handed_over = [
        engine.client.start(greet, "bob".to_owned()).key("order-42").await.unwrap_err(),
        engine.client.start(sleeper, ()).key("order-42").await.unwrap_err(),
    ];
    stopped.output().await.unwrap();
    worker.stop().await.unwrap();
    let plain = engine.client.start(greet, "bob".to_owned()).key("order-42").await.unwrap_err();
    for error in handed_over.into_iter().chain([plain]) {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let message = error.to_string();
        assert!(message.contains("order-42") && message.contains(&run.id().to_string()), "{message}");
    }
    assert_eq!(engine.client.runs(RunQuery::default()).await.unwrap().runs.len(), 2);
}

async fn runs_are_listed_counted_and_viewed(engine: TestEngine) {
    let _worker = engine.worker((greet, sleeper)).await;
    let mut greeted = Vec::new();
    for name in ["ada", "bob", "eve"] {
        greeted.push(engine.client.start(greet, name.to_owned()).key(name).await.unwrap().id());
    }
    let asleep = engine.client.start(sleeper, ()).await.unwrap().id();
    engine.settle().await;
    let counts: BTreeMap<_, _> =
        engine.client.counts().await.unwrap().into_iter().filter(|(_, n)| *n > 0).collect();
    assert_eq!(counts, BTreeMap::from([(Status::Waiting, 1), (Status::Completed, 3)]));

    let query = RunQuery {
        workflow: Some("greet".into()),
        order: ListOrder::OldestFirst,
        limit: 2,
        ..RunQuery::default()
    };
    let first = engine.client.runs(query.clone()).await.unwrap();
    let second = engine.client.runs(RunQuery { after: first.next, ..query }).await.unwrap();
    let listed: Vec<_> = first.runs.iter().chain(&second.runs).map(|run| run.id).collect();
    assert_eq!((listed, second.next), (greeted.clone(), None));

    let newest = engine.client.newest(&[Status::Waiting], 10).await.unwrap();
    assert_eq!(newest.iter().map(|run| run.id).collect::<Vec<_>>(), [asleep]);
    let view = engine.view(greeted[0]).await;
    assert_eq!(
        (&*view.workflow, view.key.as_deref(), view.status),
        ("greet", Some("ada"), Status::Completed)
    );
    assert_eq!(
        (view.created_at, view.ended_at),
        (engine.time_after_begin("0s"), Some(engine.time_after_begin("0s")))
    );
}

async fn an_unknown_run_is_not_found(engine: TestEngine) {
    let unknown = engine.client.handle::<u32>(RunId::from_bits(7));
    let errors = [
        unknown.view().await.unwrap_err(),
        unknown.send("x", &1).await.unwrap_err(),
        unknown.output().await.unwrap_err(),
        engine.client.history(unknown.id()).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.message().contains(&unknown.id().to_string()), "{error}");
    }
}

async fn a_worker_without_code_or_with_a_name_twice_does_not_start(engine: TestEngine) {
    let error = Worker::builder(engine.world.clone()).start().await.unwrap_err();
    assert!(error.message().contains(".register("), "{error}");
    let error = engine.builder().register((sleeper, note)).start().await.unwrap_err();
    assert!(error.message().contains("step `note` is registered twice"), "{error}");
    assert!(engine.client.workers().await.unwrap().is_empty());
}
