//! Views of runs, operation by operation, and of workers.

use outlast::core::{Event, OpNumber, Payload, PayloadError};
use outlast::prelude::*;
use outlast::{Codec, ErrorKind, OperationKind, OperationStatus, OperationView, RunId, Status};

use super::test_engine::{StepCalls, TestEngine, note, on_every_world};

on_every_world! {
    operations_show_the_actions_of_a_run,
    operations_of_a_run_under_way_are_open,
    a_wait_that_timed_out_and_one_that_was_dropped_tell_so,
    a_cancelled_run_shows_the_operations_that_the_cancel_ended,
    steps_timers_and_hooks_are_the_operations_of_their_kind,
    children_are_runs_and_operations,
    an_abandoned_child_is_no_open_operation,
    payloads_can_be_left_out,
    events_of_an_operation_and_of_a_message,
    payloads_pass_the_clients_codec,
    a_payload_of_another_codec_is_as_stored,
    views_of_an_unknown_run_are_refused,
    workers_report_their_code,
}

#[workflow]
async fn everything(ctx: Context, number: u32) -> Result<u32, Error> {
    let rate: u32 = ctx.record("rate", || 3)?;
    ctx.tag("phase", "one")?;
    ctx.note("hello").await?;
    ctx.flaky(2).await?;
    ctx.sleep("1h").await?;
    let answer = ctx.hook::<u32>("answer").timeout("1d").await?;
    let child = ctx.child(double, answer).await?;
    Ok(number * rate + child)
}

#[workflow]
async fn double(_ctx: Context, number: u32) -> Result<u32, Error> {
    if number == 13 { Err(Error::msg("unlucky")) } else { Ok(2 * number) }
}

async fn payloads_can_be_left_out(engine: TestEngine) {
    let _worker = engine.worker((everything, double)).await;
    let run = engine.client.start(everything, 2).await.unwrap();
    engine.run_to("2h").await;
    run.send("answer", &5).await.unwrap();
    run.output().await.unwrap();
    let (whole, bare) = (engine.client.operations(run.id()), engine.client.operations(run.id()));
    let (mut whole, bare) = (whole.await.unwrap(), bare.without_payloads().await.unwrap());
    assert!(whole.iter().any(|view| view.output.is_some()));
    for view in &mut whole {
        (view.input, view.output) = (None, None);
    }
    assert_eq!(bare, whole, "everything else is the same");
    assert_eq!(engine.client.steps(run.id()).without_payloads().await.unwrap(), bare[1..3]);
    let null = Payload::null();
    for event in engine.client.events(run.id()).without_payloads().await.unwrap() {
        match event.event {
            Event::StepStarted { input, .. } => assert_eq!(input, null),
            Event::StepCompleted { output, .. } => assert_eq!(output, null),
            Event::HookReceived { payload, .. } => assert_eq!(payload, null),
            Event::RunStarted(started) => assert_eq!(started.input, null),
            _ => {}
        }
    }
}

async fn events_of_an_operation_and_of_a_message(engine: TestEngine) {
    let _worker = engine.worker((everything, double)).await;
    let run = engine.client.start(everything, 2).await.unwrap();
    engine.run_to("2h").await;
    run.send("answer", &5).await.unwrap();
    run.output().await.unwrap();
    let all = engine.client.events(run.id()).await.unwrap();
    let numbers: Vec<_> = all.iter().map(|event| event.number).collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    let kinds = |events: Vec<outlast::EventView>| {
        events.iter().map(|event| (event.number, event.event.kind())).collect::<Vec<_>>()
    };
    let flaky = engine.client.events(run.id()).operation(OpNumber(2)).await.unwrap();
    let retried: Vec<_> = flaky.iter().map(|event| event.event.kind()).collect();
    assert_eq!(retried, ["step_started", "step_retried", "step_retried", "step_completed"]);
    let hook = kinds(engine.client.events(run.id()).operation(OpNumber(4)).await.unwrap());
    assert_eq!(hook.iter().map(|(_, kind)| *kind).collect::<Vec<_>>(), ["hook_opened", "hook_received"]);
    let message = all.iter().find_map(|event| event.event.message()).unwrap();
    let of_message = engine.client.events(run.id()).message(message).await.unwrap();
    assert_eq!(kinds(of_message), [hook[1]]);
}

fn line(view: &OperationView) -> String {
    format!("{} {} {} {}", view.op, view.kind, view.name, view.status)
}

async fn lines(engine: &TestEngine, run: RunId) -> Vec<String> {
    engine.client.operations(run).await.unwrap().iter().map(line).collect()
}

async fn operations_show_the_actions_of_a_run(engine: TestEngine) {
    let _worker = engine.worker((everything, double)).await;
    let run = engine.client.start(everything, 2).await.unwrap();
    engine.run_to("2h").await;
    run.send("answer", &5).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 16);
    let expected = [
        "0 value rate completed",
        "1 step note completed",
        "2 step flaky completed",
        "3 timer 1h completed",
        "4 hook answer completed",
        "5 child double completed",
    ];
    assert_eq!(lines(&engine, run.id()).await, expected);
    let views = engine.client.operations(run.id()).await.unwrap();
    assert_eq!(views[0].output_as::<u32>().unwrap(), Some(3));
    assert_eq!(engine.view(run.id()).await.tags, [("phase".to_owned(), "one".to_owned())].into());
    assert_eq!(views[1].input_as::<String>().unwrap().as_deref(), Some("hello"));
    assert_eq!(views[1].output_as::<String>().unwrap().as_deref(), Some("hello"));
    assert!(views[1].output_as::<u32>().is_err());
    assert_eq!((views[1].attempt_count, views[2].attempt_count), (1, 3));
    assert_eq!(
        (views[2].started_at, views[2].ended_at),
        (engine.time_after_begin("0s"), Some(engine.time_after_begin("3s")))
    );
    assert_eq!(
        (views[3].until, views[3].ended_at),
        (Some(engine.time_after_begin("1h3s")), Some(engine.time_after_begin("1h3s")))
    );
    assert_eq!(views[4].until, Some(engine.time_after_begin("25h3s")));
    assert_eq!(views[4].output_as::<u32>().unwrap(), Some(5));
    assert_eq!(views[5].output_as::<u32>().unwrap(), Some(10));
    assert_eq!(engine.view(views[5].child.unwrap()).await.status, Status::Completed);
}

async fn operations_of_a_run_under_way_are_open(engine: TestEngine) {
    #[workflow]
    async fn under_way(ctx: Context) -> Result<(), Error> {
        let (blocked, flaky) = join!(ctx.blocked("gate"), ctx.flaky(4));
        blocked?;
        flaky?;
        Ok(())
    }
    let _worker = engine.worker(under_way).await;
    let run = engine.client.start(under_way, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_retried")).await;
    let steps = engine.client.steps(run.id()).await.unwrap();
    assert_eq!((steps[0].status, steps[0].attempt_count), (OperationStatus::Open, 1));
    assert_eq!((steps[1].attempt_count, steps[1].retry_at), (1, Some(engine.time_after_begin("1s"))));
    assert_eq!(steps[1].failure.as_ref().unwrap().message, "failure 1");
    assert!(steps.iter().all(|step| step.ended_at.is_none() && step.output.is_none()));
    engine.steps.open("gate");
    engine.clock.run_until_idle().await;
    let steps = engine.client.steps(run.id()).await.unwrap();
    assert_eq!((steps[1].status, steps[1].attempt_count), (OperationStatus::Failed, 4));
    assert_eq!(steps[1].failure.as_ref().unwrap().message, "failure 4");
}

async fn a_wait_that_timed_out_and_one_that_was_dropped_tell_so(engine: TestEngine) {
    #[workflow]
    async fn races(ctx: Context) -> Result<(), Error> {
        assert!(ctx.hook::<u32>("a").timeout("1h").await.is_err_and(|error| error.is_timeout()));
        select! {
            _ = ctx.hook::<u32>("b") => {}
            slept = ctx.sleep("1h") => slept?,
        }
        select! {
            _ = ctx.hook::<u32>("b") => Ok(()),
            slept = ctx.sleep("1h") => slept,
        }
    }
    let _worker = engine.worker(races).await;
    let run = engine.client.start(races, ()).await.unwrap();
    engine.run_to("150m").await;
    run.send("b", &1).await.unwrap();
    engine.clock.run_until_idle().await;
    run.output().await.unwrap();
    let expected = [
        "0 hook a failed",
        "1 hook b dropped",
        "2 timer 1h completed",
        "3 hook b completed",
        "4 timer 1h dropped",
    ];
    assert_eq!(lines(&engine, run.id()).await, expected);
}

async fn a_cancelled_run_shows_the_operations_that_the_cancel_ended(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<(), Error> {
        let (_, _, flaky) = join!(ctx.sleep("1d"), ctx.hook::<u32>("x"), ctx.flaky(9));
        ctx.shielded().note("cleaned up").await?;
        flaky.map(drop)
    }
    let _worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    let expected =
        ["0 timer 1d cancelled", "1 hook x cancelled", "2 step flaky cancelled", "3 step note completed"];
    assert_eq!(lines(&engine, run.id()).await, expected);
    let hooks = engine.client.hooks(run.id()).await.unwrap();
    assert_eq!(hooks[0].failure.as_ref().unwrap().message, "cancelled: enough");
}

async fn steps_timers_and_hooks_are_the_operations_of_their_kind(engine: TestEngine) {
    let _worker = engine.worker((everything, double)).await;
    let run = engine.client.start(everything, 2).await.unwrap();
    engine.clock.run_until_idle().await;
    let names = |views: Vec<OperationView>| views.iter().map(line).collect::<Vec<_>>();
    let client = &engine.client;
    assert_eq!(
        names(client.steps(run.id()).await.unwrap()),
        ["1 step note completed", "2 step flaky completed"]
    );
    assert_eq!(names(client.timers(run.id()).await.unwrap()), ["3 timer 1h completed"]);
    let hooks = client.hooks(run.id()).await.unwrap();
    assert_eq!((hooks.len(), hooks[0].status), (1, OperationStatus::Failed), "nobody answered for a day");
}

async fn children_are_runs_and_operations(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<u32, Error> {
        let (good, bad) = join!(ctx.child(double, 1), ctx.child(double, 13));
        assert!(bad.is_err());
        good
    }
    let _worker = engine.worker((parent, double)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    run.output().await.unwrap();
    let mut operations = engine.client.operations(run.id()).await.unwrap();
    operations.sort_by_key(|view| view.op);
    let statuses: Vec<_> = operations.iter().map(|view| view.status).collect();
    assert_eq!(statuses, [OperationStatus::Completed, OperationStatus::Failed]);
    assert_eq!(operations[1].failure.as_ref().unwrap().message, "unlucky");
    let children = engine.client.children(run.id()).await.unwrap().runs;
    let status_of = |run| children.iter().find(|child| child.id == run).unwrap().status;
    assert_eq!(children.len(), 2);
    assert_eq!(status_of(operations[0].child.unwrap()), Status::Completed);
    assert_eq!(status_of(operations[1].child.unwrap()), Status::Failed);
    assert!(engine.client.children(children[0].id).await.unwrap().runs.is_empty());
}

async fn an_abandoned_child_is_no_open_operation(engine: TestEngine) {
    #[workflow]
    async fn abandons(ctx: Context) -> Result<(), Error> {
        ctx.child(double, 1).abandon().await?;
        ctx.child(double, 2).key("known").abandon().await?;
        ctx.sleep("1h").await
    }
    let known = engine.client.start(double, 2).key("known").await.unwrap();
    let _worker = engine.worker((abandons, double)).await;
    let run = engine.client.start(abandons, ()).await.unwrap();
    engine.settle().await;
    let expected = ["0 child double abandoned", "1 child double abandoned", "2 timer 1h open"];
    assert_eq!(lines(&engine, run.id()).await, expected);
    assert_eq!(engine.client.operations(run.id()).await.unwrap()[1].child, Some(known.id()));
}

/// Stores each payload backwards.
#[derive(Debug)]
struct Backwards;

impl Codec for Backwards {
    fn encode(&self, plain: Payload) -> Result<Payload, PayloadError> {
        let bytes: Vec<u8> = plain.bytes().iter().rev().copied().collect();
        Ok(Payload::coded("backwards", bytes))
    }

    fn decode(&self, stored: Payload) -> Result<Payload, PayloadError> {
        match stored.codec() {
            None => Ok(stored),
            Some(_) => {
                let bytes: Vec<u8> = stored.bytes().iter().rev().copied().collect();
                Ok(Payload::from_json_text(bytes))
            }
        }
    }
}

#[workflow]
async fn secret(ctx: Context) -> Result<String, Error> {
    ctx.note("a secret").await?;
    ctx.hook::<String>("word").await
}

async fn backwards_worker(engine: &TestEngine) -> Worker {
    let builder = Worker::builder(engine.world.clone()).codec(Backwards).state(engine.steps.clone());
    builder.register((secret, note)).paranoid().start().await.unwrap()
}

async fn payloads_pass_the_clients_codec(engine: TestEngine) {
    let _worker = backwards_worker(&engine).await;
    let client = engine.client.clone().with_codec(Backwards);
    let run = client.start(secret, ()).id(client.new_id()).await.unwrap();
    assert!(!client.start(secret, ()).id(run.id()).await.unwrap().is_new(), "inputs are compared decoded");
    run.send("word", "please").key("1").await.unwrap();
    assert_eq!(run.output().await.unwrap(), "please");
    let views = client.operations(run.id()).await.unwrap();
    assert_eq!(views[0].input_as::<String>().unwrap().as_deref(), Some("a secret"));
    assert_eq!(views[1].output_as::<String>().unwrap().as_deref(), Some("please"));
}

async fn a_payload_of_another_codec_is_as_stored(engine: TestEngine) {
    let _worker = backwards_worker(&engine).await;
    let client = engine.client.clone().with_codec(Backwards);
    let run = client.start(secret, ()).await.unwrap();
    run.send("word", "please").await.unwrap();
    run.output().await.unwrap();
    let views = engine.client.operations(run.id()).await.unwrap();
    assert_eq!(views[0].kind, OperationKind::Step);
    let error = views[0].input_as::<String>().unwrap_err();
    assert!(error.to_string().contains("codec `backwards`"), "{error}");
}

async fn views_of_an_unknown_run_are_refused(engine: TestEngine) {
    let unknown = RunId::from_bits(7);
    let client = &engine.client;
    for error in [
        client.operations(unknown).await.unwrap_err(),
        client.steps(unknown).await.unwrap_err(),
        client.children(unknown).await.unwrap_err(),
        client.explain(unknown).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
}

async fn workers_report_their_code(engine: TestEngine) {
    let worker = engine.worker_of_build("7", (everything, double)).await;
    let workers = engine.client.workers().await.unwrap();
    assert_eq!((workers.len(), workers[0].build.as_str()), (1, "7"));
    let code: Vec<_> = workers[0].workflows().map(|code| (&*code.workflow, code.version)).collect();
    assert_eq!(code, [("double", 1), ("everything", 1)]);
    // Built-in steps depend on the features of the crate.
    let steps: Vec<_> = workers[0].steps().filter(|step| !step.starts_with("outlast:")).collect();
    assert_eq!(steps, ["blocked", "flaky", "note", "stoppable"]);
    worker.stop().await.unwrap();
    assert!(engine.client.workers().await.unwrap().is_empty());
}
