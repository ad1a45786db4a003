//! Queued steps: workers that serve their queue execute them, each as a run of its own.

use std::future::pending;

use outlast::core::{Event, Failure};
use outlast::prelude::*;
use outlast::{ErrorKind, RunId, Status, Step};

use super::test_engine::{StepCalls, StepState, TestEngine, flaky, on_every_world};

on_every_world! {
    a_step_travels_to_a_worker_that_serves_its_queue,
    the_usual_queue_is_one_too,
    many_steps_travel_at_once_and_each_is_made_once,
    a_queued_step_works_for_the_run_that_asked_for_it,
    the_headers_of_a_run_reach_its_steps,
    a_step_of_a_dead_worker_is_attempted_elsewhere_with_the_same_key,
    a_queued_step_continues_while_the_worker_of_its_run_is_dead,
    retries_are_the_same_as_in_place,
    attempt_options_of_the_workflow_reach_the_queued_step,
    a_timeout_counts_from_the_attempts_begin,
    a_silent_attempt_fails_where_it_is_made,
    at_most_once_holds_far_away,
    a_worker_with_the_queue_and_without_the_code_leaves_it_alone,
    a_step_that_was_begun_in_place_stays_there,
    a_step_that_was_queued_stays_queued,
    a_step_that_was_renamed_is_known_by_both_names,
    a_step_by_its_name_alone_has_a_queue,
    lists_leave_queued_steps_out_unless_asked,
    a_queue_without_a_name_is_an_error_that_says_so,
}

/// A worker that serves this queue alone and has the common steps, and no workflow.
pub(super) async fn serving(engine: &TestEngine, queue: &str) -> Worker {
    engine.builder().queues([queue]).start().await.unwrap()
}

/// The run that is the queued step of this operation.
pub(super) async fn step_run(engine: &TestEngine, run: RunId, op: usize) -> RunId {
    engine.client.operations(run).await.unwrap()[op].child.expect("a queued step is a run")
}

#[workflow]
async fn travels(ctx: Context) -> Result<String, Error> {
    let here = ctx.note("here").await?;
    let there = ctx.note("there").queue("gpu").await?;
    Ok(format!("{here} and {there}"))
}

async fn a_step_travels_to_a_worker_that_serves_its_queue(engine: TestEngine) {
    let _here = engine.worker(travels).await;
    let run = engine.client.start(travels, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.logged(), ["here"], "nobody serves the queue");
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    let _there = serving(&engine, "gpu").await;
    assert_eq!(run.output().await.unwrap(), "here and there");
    engine
        .assert_history(
            run.id(),
            r#"
        0 step_started note
        0 step_completed "here"
        1 step_started note
        1 step_completed "there"
        run_completed "here and there"
        "#,
        )
        .await;
    let step = step_run(&engine, run.id(), 1).await;
    engine
        .assert_history(
            step,
            r#"
        0 step_started note
        0 step_completed "there"
        run_completed "there"
        "#,
        )
        .await;
    let view = engine.view(step).await;
    assert_eq!((&*view.workflow, &*view.queue), ("step:note", "gpu"));
}

async fn the_usual_queue_is_one_too(engine: TestEngine) {
    #[workflow]
    async fn beside(ctx: Context) -> Result<String, Error> {
        ctx.note("done").queue("default").await
    }
    let _worker = engine.worker(beside).await;
    let run = engine.client.start(beside, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "done");
    assert_eq!(&*engine.view(step_run(&engine, run.id(), 0).await).await.queue, "default");
}

async fn many_steps_travel_at_once_and_each_is_made_once(engine: TestEngine) {
    #[workflow]
    async fn fan_out(ctx: Context) -> Result<usize, Error> {
        let words = (0..40).map(|number| format!("word {number}"));
        let notes = try_join_all(words.map(|word| ctx.note(&word).queue("gpu"))).await?;
        Ok(notes.len())
    }
    let _here = engine.worker(fan_out).await;
    let (_one, _two) = (serving(&engine, "gpu").await, serving(&engine, "gpu").await);
    let run = engine.client.start(fan_out, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 40);
    let mut notes = engine.steps.logged();
    notes.sort();
    notes.dedup();
    assert_eq!((notes.len(), engine.steps.logged().len()), (40, 40));
}

/// Returns the run that requested it.
#[step(queue = "gpu")]
async fn whose(cx: StepContext<StepState>) -> Vec<String> {
    vec![
        cx.key(),
        cx.run().to_string(),
        cx.op().to_string(),
        cx.step_name().to_owned(),
        cx.attempt().to_string(),
    ]
}

async fn a_queued_step_works_for_the_run_that_asked_for_it(engine: TestEngine) {
    #[workflow]
    async fn both(ctx: Context) -> Result<Vec<String>, Error> {
        ctx.note("first").await?;
        ctx.step(whose, ()).await
    }
    let _here = engine.worker((both, whose)).await;
    let _there = engine.builder().queues(["gpu"]).register(whose).start().await.unwrap();
    let run = engine.client.start(both, ()).await.unwrap();
    let id = run.id().to_string();
    assert_eq!(
        run.output().await.unwrap(),
        [format!("{id}.0.1"), id, "1".into(), "whose".into(), "1".into()]
    );
}

async fn the_headers_of_a_run_reach_its_steps(engine: TestEngine) {
    let _worker = engine.builder().queues(["default", "gpu"]).register(travels).start().await.unwrap();
    let run = engine.client.start(travels, ()).header("who", "ada").priority(4).await.unwrap();
    run.output().await.unwrap();
    let step = step_run(&engine, run.id(), 1).await;
    let turns = engine.turns(step).await;
    let Some(Event::RunStarted(started)) = turns[0].events.first() else { panic!("{turns:?}") };
    assert_eq!(started.headers.get("who").map(String::as_str), Some("ada"));
    let parent = started.parent.unwrap();
    assert_eq!((parent.run, parent.op.0, parent.awaits), (run.id(), 1, true));
    assert_eq!(engine.view(step).await.priority, 4, "a step is as urgent as its run");
}

/// Logs its key, and hangs at the first attempt.
#[step(queue = "gpu")]
async fn keyed(cx: StepContext<StepState>) -> String {
    cx.state().log(format!("{} attempt {}", cx.key(), cx.attempt()));
    if cx.state().logged().len() == 1 {
        pending::<()>().await;
    }
    cx.key()
}

#[workflow]
async fn one_keyed(ctx: Context) -> Result<String, Error> {
    ctx.step(keyed, ()).await
}

async fn a_step_of_a_dead_worker_is_attempted_elsewhere_with_the_same_key(engine: TestEngine) {
    let there = || engine.builder().queues(["gpu"]).register(keyed).start();
    let _here =
        engine.caching_builder().paranoid().session_time("1h").register(one_keyed).start().await.unwrap();
    let doomed = there().await.unwrap();
    let run = engine.client.start(one_keyed, ()).await.unwrap();
    let key = format!("{}.0.0", run.id());
    engine.steps.wait_for_log(&format!("{key} attempt 1"), 1).await;
    engine.crash(doomed);
    let _there = there().await.unwrap();
    assert_eq!(run.output().await.unwrap(), key);
    assert_eq!(engine.steps.count(&format!("{key} attempt 1")), 2, "a lost attempt is not a failed one");
}

async fn a_queued_step_continues_while_the_worker_of_its_run_is_dead(engine: TestEngine) {
    #[workflow]
    async fn slow_there(ctx: Context) -> Result<String, Error> {
        ctx.blocked("slow").queue("gpu").await
    }
    let there = engine.builder().queues(["gpu"]).session_time("1h").start().await.unwrap();
    let here = engine.worker(slow_there).await;
    let run = engine.client.start(slow_there, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.crash(here);
    engine.steps.open("slow");
    let step = step_run(&engine, run.id(), 0).await;
    engine.wait_for_status(step, Status::Completed).await;
    there.stop().await.unwrap();
    let _here = engine.worker(slow_there).await;
    assert_eq!(run.output().await.unwrap(), "slow");
    assert_eq!(engine.steps.count("began slow"), 1);
}

#[workflow]
async fn persistent(ctx: Context, fails: u32, is_queued: bool) -> Result<u32, Error> {
    let step = ctx.flaky(fails);
    if is_queued { step.queue("gpu").await } else { step.await }
}

/// How the first step of a run failed.
async fn step_failure(engine: &TestEngine, run: RunId) -> Failure {
    let turns = engine.turns(run).await;
    let failure = turns.into_iter().flat_map(|turn| turn.events).find_map(|event| match event {
        Event::StepFailed { failure, .. } => Some(failure),
        _ => None,
    });
    failure.expect("the step failed")
}

async fn retries_are_the_same_as_in_place(engine: TestEngine) {
    let steps = engine.steps.clone();
    let worker = engine.builder().queues(["default", "gpu"]).register(persistent);
    let worker = worker.on_retry(move |about| steps.log(format!("{} of {}", about.step, about.run)));
    let _worker = worker.start().await.unwrap();
    let run = engine.client.start(persistent, (3, true)).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 4);
    assert_eq!(engine.steps.count(&format!("flaky of {}", run.id())), 3, "told of the run that asked");
    assert_eq!(engine.steps.times("flaky"), ["0s", "1s", "3s", "7s"]);
    engine
        .assert_history(
            run.id(),
            "0 step_started flaky
         0 step_completed 4
         run_completed 4",
        )
        .await;
    let history = engine.history(step_run(&engine, run.id(), 0).await).await;
    assert_eq!(history.matches("step_retried").count(), 3, "{history}");

    let failed = engine.client.start(persistent, (9, true)).await.unwrap();
    let in_place = engine.client.start(persistent, (9, false)).await.unwrap();
    engine.clock.run_until_idle().await;
    let error = failed.output().await.unwrap_err();
    assert_eq!((error.step(), error.attempts(), error.is_exhausted()), (Some("flaky"), 4, true));
    in_place.output().await.unwrap_err();
    assert_eq!(step_failure(&engine, failed.id()).await, step_failure(&engine, in_place.id()).await);
}

async fn attempt_options_of_the_workflow_reach_the_queued_step(engine: TestEngine) {
    #[workflow]
    async fn twice(ctx: Context) -> Result<u32, Error> {
        ctx.step(flaky, 9).queue("gpu").attempts(2).retry(Retry::constant().attempts(3).initial("5s")).await
    }
    let _here = engine.worker(twice).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(twice, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap_err().attempts(), 3);
    assert_eq!(engine.steps.times("flaky"), ["0s", "5s", "10s"]);
}

async fn a_timeout_counts_from_the_attempts_begin(engine: TestEngine) {
    #[workflow]
    async fn timed(ctx: Context) -> Result<String, Error> {
        ctx.blocked("never").queue("gpu").timeout("10s").attempts(1).await
    }
    let _here = engine.caching_builder().session_time("1h").register(timed).start().await.unwrap();
    let run = engine.client.start(timed, ()).await.unwrap();
    engine.advance("1m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "the line is not part of the attempt");
    let _there = serving(&engine, "gpu").await;
    engine.steps.wait_for_log("began never", 1).await;
    engine.clock.advance("10s");
    let error = run.output().await.unwrap_err();
    assert!(error.message().contains("its timeout of 10s"), "{error}");
}

/// Never sends a heartbeat.
#[step(queue = "gpu", heartbeat_timeout = "10s", attempts = 1)]
async fn silent(cx: StepContext<StepState>) -> Result<(), StepError> {
    cx.state().log("began");
    pending().await
}

async fn a_silent_attempt_fails_where_it_is_made(engine: TestEngine) {
    #[workflow]
    async fn watched(ctx: Context) -> Result<(), Error> {
        ctx.step(silent, ()).await
    }
    let _here = engine.worker(watched).await;
    let _there = engine.builder().queues(["gpu"]).register(silent).start().await.unwrap();
    let run = engine.client.start(watched, ()).await.unwrap();
    engine.steps.wait_for_log("began", 1).await;
    engine.clock.advance("10s");
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.is_exhausted()), (ErrorKind::Timeout, true));
    assert!(error.message().contains("its heartbeat timeout of 10s"), "{error}");
}

/// Charges, and never ends.
#[step(queue = "gpu", at_most_once)]
async fn pay(cx: StepContext<StepState>) -> Result<(), StepError> {
    cx.state().log("paid");
    pending().await
}

async fn at_most_once_holds_far_away(engine: TestEngine) {
    #[workflow]
    async fn paying(ctx: Context) -> Result<(), Error> {
        ctx.step(pay, ()).await
    }
    let there = || engine.builder().queues(["gpu"]).register(pay).start();
    let _here = engine.caching_builder().session_time("1h").register(paying).start().await.unwrap();
    let doomed = there().await.unwrap();
    let run = engine.client.start(paying, ()).await.unwrap();
    engine.steps.wait_for_log("paid", 1).await;
    engine.crash(doomed);
    let _there = there().await.unwrap();
    let error = run.output().await.unwrap_err();
    assert_eq!((error.kind(), error.step(), error.attempts()), (ErrorKind::Unknown, Some("pay"), 1));
    assert_eq!(engine.steps.count("paid"), 1);
}

async fn a_worker_with_the_queue_and_without_the_code_leaves_it_alone(engine: TestEngine) {
    let _here = engine.worker(one_keyed).await;
    let _without = serving(&engine, "gpu").await;
    let run = engine.client.start(one_keyed, ()).await.unwrap();
    engine.settle().await;
    let step = step_run(&engine, run.id(), 0).await;
    assert_eq!(engine.status(step).await, Status::Pending);
    engine.steps.log("so that it does not hang");
    let _with = engine.builder().queues(["gpu"]).register(keyed).start().await.unwrap();
    run.output().await.unwrap();
}

/// The same workflow before and after a deploy that queues its step.
macro_rules! versions_of_moving {
    () => {
        #[workflow(name = "moving")]
        async fn in_place(ctx: Context) -> Result<String, Error> {
            let first = ctx.blocked("slow").await?;
            Ok(format!("{first}, {}", ctx.note("then").await?))
        }
        #[workflow(name = "moving")]
        async fn far_away(ctx: Context) -> Result<String, Error> {
            let first = ctx.blocked("slow").queue("gpu").await?;
            Ok(format!("{first}, {}", ctx.note("then").queue("gpu").await?))
        }
    };
}

async fn a_step_that_was_begun_in_place_stays_there(engine: TestEngine) {
    versions_of_moving!();
    let before = engine.worker_of_build("1", in_place).await;
    let run = engine.client.start(in_place, ()).await.unwrap();
    engine.steps.wait_for_log("began slow", 1).await;
    engine.crash(before);
    let _after = engine.worker_of_build("2", far_away).await;
    engine.steps.wait_for_log("began slow", 2).await;
    engine.steps.open("slow");
    engine.wait_for_status(run.id(), Status::Waiting).await;
    assert_eq!(engine.steps.count("ended slow"), 1, "in place, by the worker that holds the run");
    let _there = serving(&engine, "gpu").await;
    assert_eq!(run.output().await.unwrap(), "slow, then");
}

async fn a_step_that_was_queued_stays_queued(engine: TestEngine) {
    versions_of_moving!();
    let before = engine.worker_of_build("1", far_away).await;
    let run = engine.client.start(far_away, ()).await.unwrap();
    engine.settle().await;
    engine.crash(before);
    let _after = engine.worker_of_build("2", in_place).await;
    engine.settle().await;
    assert_eq!(engine.steps.count("began slow"), 0, "it stands in line");
    engine.steps.open("slow");
    let _there = serving(&engine, "gpu").await;
    assert_eq!(run.output().await.unwrap(), "slow, then");
    assert_eq!(engine.client.list().parent(run.id()).queued_steps().await.unwrap().runs.len(), 1);
}

async fn a_step_that_was_renamed_is_known_by_both_names(engine: TestEngine) {
    #[step(queue = "gpu")]
    async fn shrink(cx: StepContext<StepState>) -> String {
        cx.step_name().to_owned()
    }
    #[step(queue = "gpu", was = "shrink")]
    async fn resize(cx: StepContext<StepState>) -> String {
        cx.step_name().to_owned()
    }
    #[workflow(name = "renamed")]
    async fn before(ctx: Context) -> Result<String, Error> {
        ctx.step(shrink, ()).await
    }
    #[workflow(name = "renamed")]
    async fn after(ctx: Context) -> Result<String, Error> {
        ctx.step(resize, ()).await
    }
    let here = engine.worker_of_build("1", before).await;
    let run = engine.client.start(before, ()).await.unwrap();
    engine.settle().await;
    engine.crash(here);
    let _here = engine.worker_of_build("2", (after, resize)).await;
    let _there = engine.builder().queues(["gpu"]).register(resize).start().await.unwrap();
    assert_eq!(run.output().await.unwrap(), "shrink", "as it was asked for");
}

async fn a_step_by_its_name_alone_has_a_queue(engine: TestEngine) {
    const NOTE: Step<String, String> = Step::new("note").queue("gpu").priority(2);
    #[workflow]
    async fn by_name(ctx: Context) -> Result<String, Error> {
        ctx.step(NOTE, "there".to_owned()).await
    }
    let _here = engine.worker(by_name).await;
    let _there = serving(&engine, "gpu").await;
    let run = engine.client.start(by_name, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "there");
    let view = engine.view(step_run(&engine, run.id(), 0).await).await;
    assert_eq!((&*view.queue, view.priority), ("gpu", 2));
}

async fn lists_leave_queued_steps_out_unless_asked(engine: TestEngine) {
    let _worker = engine.builder().queues(["default", "gpu"]).register(travels).start().await.unwrap();
    let run = engine.client.start(travels, ()).await.unwrap();
    run.output().await.unwrap();
    let step = step_run(&engine, run.id(), 1).await;
    let ids = |page: outlast::Page| page.runs.into_iter().map(|run| run.id).collect::<Vec<_>>();
    assert_eq!(ids(engine.client.list().await.unwrap()), [run.id()]);
    assert_eq!(engine.client.children(run.id()).await.unwrap().runs, []);
    assert_eq!(ids(engine.client.list().root(run.id()).queued_steps().await.unwrap()), [step, run.id()]);
    assert_eq!(ids(engine.client.list().queue("gpu").queued_steps().await.unwrap()), [step]);
    assert_eq!(ids(engine.client.list().workflow_named("step:note").await.unwrap()), [step]);
    let steps = engine.client.steps(run.id()).await.unwrap();
    assert_eq!((steps[0].queue.as_deref(), steps[1].queue.as_deref()), (None, Some("gpu")));
    let refused = engine.client.start_json("step:note", 1, "\"x\"").await.unwrap_err();
    assert!(refused.message().contains("begins with `step:`"), "{refused}");
}

async fn a_queue_without_a_name_is_an_error_that_says_so(engine: TestEngine) {
    #[workflow]
    async fn wrong(ctx: Context) -> Result<Vec<String>, Error> {
        let mut said = Vec::new();
        let mut say = |outcome: Result<String, Error>| said.push(outcome.unwrap_err().message().to_owned());
        say(ctx.note("a").queue("").await);
        say(ctx.note("b").queue("q".repeat(129)).await);
        say(ctx.note("c").queue("gpu").priority(10).await);
        say(ctx.note("d").priority(3).await);
        say(ctx.call("in-place", (), async |()| Ok::<_, StepError>(String::new())).queue("gpu").await);
        Ok(said)
    }
    let _worker = engine.worker(wrong).await;
    let said = engine.client.start(wrong, ()).await.unwrap().output().await.unwrap();
    let expected =
        ["a queue needs a name", "shorten it", "there is no priority 10", "add `.queue(…)`", "`#[step]`"];
    for (said, expected) in said.iter().zip(expected) {
        assert!(said.contains(expected), "{said}");
    }
    assert_eq!(said.len(), expected.len());
    assert!(engine.steps.logged().is_empty());
}
