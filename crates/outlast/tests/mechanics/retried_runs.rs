//! Retries of whole runs: from the operation that failed, without repeating what has completed.

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{Controlled, ErrorKind, OpNumber, OperationStatus, RunId, Status};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_retry_runs_the_failed_step_and_those_dropped_with_it_and_no_completed_one,
    outcomes_after_the_failure_are_recorded_again,
    a_failure_that_the_workflow_handled_is_not_reopened,
    another_operation_can_be_named,
    a_reopened_step_has_all_its_attempts_again,
    a_reopened_wait_has_its_full_time_again,
    payloads_after_the_failure_are_kept,
    decisions_after_the_failure_are_gone_and_numbers_are_not_used_again,
    an_open_queued_step_starts_again_as_a_new_run,
    the_runs_that_a_retry_has_started_end_with_it,
    a_child_that_failed_starts_again,
    the_end_of_a_child_that_was_replaced_concerns_nobody,
    a_child_with_a_key_is_adopted,
    a_child_that_ended_while_its_parent_had_ended_is_not_lost,
    a_child_of_a_skipped_operation_is_adopted_by_its_key,
    a_cancelled_run_continues_as_if_it_had_not_been_cancelled,
    a_run_can_be_retried_again,
    a_worker_that_is_lost_before_the_retry_is_recorded_changes_nothing,
    a_loop_continues_in_the_iteration_that_failed,
    a_request_to_stop_from_before_the_end_is_forgotten,
    runs_that_cannot_be_retried_say_why,
    a_step_that_is_attempted_at_most_once_needs_force,
    a_deadline_that_has_passed_must_be_replaced,
    a_reopened_run_is_terminated_with_its_compensations_without_its_code,
    a_retry_is_idempotent_and_records_who_asked,
    a_bulk_call_retries_the_failed_runs,
    views_show_what_is_skipped,
}

/// Fails until the test logs `fixed <name>`; waits for the gate of its name if that begins with `slow`.
#[step(attempts = 1)]
async fn work(cx: StepContext<StepState>, name: String) -> Result<String, StepError> {
    cx.state().log(format!("began {name}"));
    if name.starts_with("slow") {
        cx.state().wait_for_gate(&name).await;
    }
    let is_bad = name.contains("bad") && cx.state().count(&format!("fixed {name}")) == 0;
    if is_bad { Err(StepError::msg(format!("{name} failed"))) } else { Ok(name) }
}

async fn retry(engine: &TestEngine, run: RunId) {
    assert_eq!(engine.client.retry(run).await.unwrap(), Controlled::Requested);
}

/// The steps that a retry would run again.
async fn planned(engine: &TestEngine, run: RunId) -> Vec<u64> {
    let plan = engine.client.retry(run).dry_run().await.unwrap();
    plan.steps().map(|step| step.op.0).collect()
}

async fn refusal(engine: &TestEngine, run: RunId) -> String {
    let error = engine.client.retry(run).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    let dry = engine.client.retry(run).dry_run().await.unwrap_err();
    assert_eq!(dry.to_string(), error.to_string());
    error.to_string()
}

async fn a_retry_runs_the_failed_step_and_those_dropped_with_it_and_no_completed_one(engine: TestEngine) {
    #[workflow]
    async fn fan_out(ctx: Context) -> Result<usize, Error> {
        let name = |number: u32| match number {
            0..40 => format!("quick {number}"),
            40 => "slow bad".to_owned(),
            _ => format!("slow {number}"),
        };
        let step = |ctx: Context, number: u32| async move { ctx.step(work, name(number)).await };
        Ok(ctx.parallel(0..50, 50, step).await?.len())
    }
    let _worker = engine.worker((fan_out, work)).await;
    let run = engine.client.start(fan_out, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.matches("step_completed").count() == 40).await;
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    assert_eq!(planned(&engine, run.id()).await, (40..50).collect::<Vec<_>>());
    engine.steps.log("fixed slow bad");
    (41..50).for_each(|number| engine.steps.open(&format!("slow {number}")));
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), 50);
    for number in 0..40 {
        assert_eq!(engine.steps.count(&format!("began quick {number}")), 1, "{number}");
    }
    assert_eq!(engine.steps.count("began slow bad"), 2);
    for number in 41..50 {
        assert_eq!(engine.steps.count(&format!("began slow {number}")), 2, "{number}");
    }
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.failure), (Status::Completed, None));
    let counts = engine.client.counts().await.unwrap();
    assert_eq!((counts[&Status::Completed], counts[&Status::Failed]), (1, 0));
}

#[workflow]
async fn all_of_them(ctx: Context, names: Vec<String>) -> Result<String, Error> {
    let step = |ctx: Context, name: String| async move { ctx.step(work, name).await };
    let all: Result<Vec<_>, _> = ctx.parallel_all(names, 50, step).await.into_iter().collect();
    Ok(all?.join(" "))
}

async fn outcomes_after_the_failure_are_recorded_again(engine: TestEngine) {
    let _worker = engine.worker((all_of_them, work)).await;
    let names = ["bad", "slow a", "slow b"].map(str::to_owned).to_vec();
    let run = engine.client.start(all_of_them, names).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_failed")).await;
    engine.steps.open("slow b");
    engine.steps.wait_for_log("began slow a", 1).await;
    engine.wait_for_history(run.id(), |history| history.contains("2 step_completed")).await;
    engine.steps.open("slow a");
    assert!(run.output().await.is_err());
    assert_eq!(planned(&engine, run.id()).await, [0]);
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad slow a slow b");
    engine
        .assert_history(
            run.id(),
            r#"
            0 step_started work
            1 step_started work
            2 step_started work
            0 step_failed bad failed
            2 step_completed "slow b"
            1 step_completed "slow a"
            run_failed bad failed
            run_retried
            2 step_completed "slow b"
            1 step_completed "slow a"
            0 step_completed "bad"
            run_completed "bad slow a slow b"
            "#,
        )
        .await;
    assert_eq!((engine.steps.count("began slow a"), engine.steps.count("began slow b")), (1, 1));
}

#[workflow]
async fn handled(ctx: Context) -> Result<String, Error> {
    let first = ctx.step(work, "bad one".to_owned()).await.unwrap_or_else(|_| "handled".into());
    let second = ctx.step(work, "bad two".to_owned()).await?;
    Ok(format!("{first}, {second}"))
}

async fn a_failure_that_the_workflow_handled_is_not_reopened(engine: TestEngine) {
    let _worker = engine.worker((handled, work)).await;
    let run = engine.client.start(handled, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad one");
    engine.steps.log("fixed bad two");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "handled, bad two");
    assert_eq!(engine.steps.count("began bad one"), 1);
}

async fn another_operation_can_be_named(engine: TestEngine) {
    let _worker = engine.worker((handled, work)).await;
    let run = engine.client.start(handled, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad one");
    engine.steps.log("fixed bad two");
    let error = engine.client.retry(run.id()).from(OpNumber(9)).await.unwrap_err();
    assert!(error.to_string().contains("it has no operation 9"), "{error}");
    let from = engine.client.retry(run.id()).from(OpNumber(0)).await.unwrap();
    assert_eq!((from, run.output().await.unwrap()), (Controlled::Requested, "bad one, bad two".into()));
    assert_eq!(engine.steps.count("began bad one"), 2);
}

async fn a_reopened_step_has_all_its_attempts_again(engine: TestEngine) {
    #[workflow]
    async fn stubborn(ctx: Context) -> Result<u32, Error> {
        ctx.flaky(99).await
    }
    let _worker = engine.worker(stubborn).await;
    let run = engine.client.start(stubborn, ()).await.unwrap();
    engine.advance("1h").await;
    assert_eq!((engine.status(run.id()).await, engine.steps.count("flaky")), (Status::Failed, 4));
    retry(&engine, run.id()).await;
    engine.advance("1h").await;
    assert_eq!((engine.status(run.id()).await, engine.steps.count("flaky")), (Status::Failed, 8));
    let step = &engine.client.steps(run.id()).await.unwrap()[0];
    let numbers: Vec<_> = step.attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(step.attempt_count, 4);
}

async fn a_reopened_wait_has_its_full_time_again(engine: TestEngine) {
    #[workflow]
    async fn asking(ctx: Context) -> Result<u32, Error> {
        ctx.hook::<u32>("answer").timeout("1h").await
    }
    let _worker = engine.worker(asking).await;
    let run = engine.client.start(asking, ()).await.unwrap();
    engine.advance("90m").await;
    assert_eq!(engine.status(run.id()).await, Status::Failed);
    retry(&engine, run.id()).await;
    engine.advance("50m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.send(run.id(), "answer", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn payloads_after_the_failure_are_kept(engine: TestEngine) {
    #[workflow]
    async fn two(ctx: Context) -> Result<u32, Error> {
        let both = futures_util::future::join(ctx.step(work, "bad".to_owned()), ctx.hook::<u32>("answer"));
        let (step, answer) = both.await;
        step?;
        answer
    }
    let _worker = engine.worker((two, work)).await;
    let run = engine.client.start(two, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_failed")).await;
    engine.send(run.id(), "answer", 7).await;
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn decisions_after_the_failure_are_gone_and_numbers_are_not_used_again(engine: TestEngine) {
    #[workflow]
    async fn cleaning(ctx: Context) -> Result<String, Error> {
        match ctx.step(work, "bad".to_owned()).await {
            Ok(output) => ctx.note(&format!("after {output}")).await,
            Err(error) => {
                ctx.note("clean up").await?;
                ctx.record("when", || 7u32)?;
                Err(error)
            }
        }
    }
    let _worker = engine.worker((cleaning, work)).await;
    let run = engine.client.start(cleaning, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "after bad");
    let history = engine.history(run.id()).await;
    // Number 3 is reserved for the step after the end of the failed run, which leaves no event.
    assert!(
        history.ends_with("4 step_started note\n4 step_completed \"after bad\"\nrun_completed \"after bad\""),
        "{history}"
    );
}

#[workflow]
async fn mixed(ctx: Context) -> Result<String, Error> {
    let both = futures_util::future::try_join(
        ctx.step(work, "slow bad".to_owned()),
        ctx.step(work, "slow queued".to_owned()).queue("gpu"),
    );
    let (here, there) = both.await?;
    Ok(format!("{here} {there}"))
}

async fn gpu_worker(engine: &TestEngine) -> Worker {
    engine.builder().queues(["default", "gpu"]).register((mixed, work)).start().await.unwrap()
}

async fn an_open_queued_step_starts_again_as_a_new_run(engine: TestEngine) {
    let _worker = gpu_worker(&engine).await;
    let run = engine.client.start(mixed, ()).await.unwrap();
    engine.steps.wait_for_log("began slow queued", 1).await;
    let before = engine.client.steps(run.id()).await.unwrap()[1].child.unwrap();
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    engine.wait_for_status(before, Status::Cancelled).await;
    assert_eq!(planned(&engine, run.id()).await, [0, 1]);
    engine.steps.log("fixed slow bad");
    engine.steps.open("slow queued");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "slow bad slow queued");
    let after = engine.client.steps(run.id()).await.unwrap()[1].child.unwrap();
    assert_ne!(before, after);
    assert_eq!(engine.status(after).await, Status::Completed);
}

async fn the_runs_that_a_retry_has_started_end_with_it(engine: TestEngine) {
    let worker = gpu_worker(&engine).await;
    let run = engine.client.start(mixed, ()).await.unwrap();
    engine.steps.wait_for_log("began slow queued", 1).await;
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    engine.steps.log("fixed slow bad");
    retry(&engine, run.id()).await;
    engine.steps.wait_for_log("began slow queued", 2).await;
    let queued = engine.client.steps(run.id()).await.unwrap()[1].child.unwrap();
    engine.crash(worker);
    // A worker without the code of both ends the run.
    let _other = engine.worker(fragile).await;
    engine.settle().await;
    engine.client.terminate(run.id(), "enough").await.unwrap();
    engine.advance("1m").await;
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    engine.wait_for_status(queued, Status::Cancelled).await;
}

#[workflow]
async fn fragile(ctx: Context, name: String) -> Result<String, Error> {
    ctx.step(work, name).await
}

#[workflow]
async fn parent(ctx: Context, key: Option<String>) -> Result<String, Error> {
    ctx.note("before").await?;
    let child = ctx.child(fragile, "bad".to_owned());
    match key {
        Some(key) => child.key(key).await,
        None => child.await,
    }
}

async fn a_child_that_failed_starts_again(engine: TestEngine) {
    let _worker = engine.worker((parent, fragile, work)).await;
    let run = engine.client.start(parent, None).await.unwrap();
    assert!(run.output().await.is_err());
    let before = engine.client.operations(run.id()).await.unwrap()[1].child.unwrap();
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad");
    let after = engine.client.operations(run.id()).await.unwrap()[1].child.unwrap();
    assert_ne!(before, after);
    assert_eq!(
        (engine.status(before).await, engine.status(after).await),
        (Status::Failed, Status::Completed)
    );
    assert_eq!(engine.steps.count("before"), 1);
}

async fn the_end_of_a_child_that_was_replaced_concerns_nobody(engine: TestEngine) {
    #[workflow]
    async fn child(ctx: Context) -> Result<String, Error> {
        let go = ctx.hook::<u32>("go").await?;
        let worked = ctx.step(work, "bad".to_owned()).await?;
        Ok(format!("{worked} {go}"))
    }
    #[workflow]
    async fn over(ctx: Context) -> Result<String, Error> {
        ctx.child(child, ()).await
    }
    let _worker = engine.worker((over, child, work)).await;
    let run = engine.client.start(over, ()).await.unwrap();
    engine.settle().await;
    let first = engine.client.operations(run.id()).await.unwrap()[0].child.unwrap();
    engine.send(first, "go", 1).await;
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    engine.settle().await;
    let second = engine.client.operations(run.id()).await.unwrap()[0].child.unwrap();
    assert_ne!(first, second);
    // The child of the failed operation continues as well, and tells the parent of its end again.
    retry(&engine, first).await;
    engine.wait_for_status(first, Status::Completed).await;
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.send(second, "go", 2).await;
    assert_eq!(run.output().await.unwrap(), "bad 2");
}

async fn a_child_with_a_key_is_adopted(engine: TestEngine) {
    let _worker = engine.worker((parent, fragile, work)).await;
    let run = engine.client.start(parent, Some("child-1".to_owned())).await.unwrap();
    assert!(run.output().await.is_err());
    let child = engine.client.operations(run.id()).await.unwrap()[1].child.unwrap();
    let reason = refusal(&engine, run.id()).await;
    assert!(reason.contains("with the key \"child-1\" is failed; retry the child first"), "{reason}");
    engine.steps.log("fixed bad");
    retry(&engine, child).await;
    engine.wait_for_status(child, Status::Completed).await;
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad");
    assert_eq!(engine.steps.count("began bad"), 2);
}

async fn a_child_that_ended_while_its_parent_had_ended_is_not_lost(engine: TestEngine) {
    #[workflow]
    async fn abandoning(ctx: Context) -> Result<String, Error> {
        let child = ctx.child(fragile, "slow child".to_owned()).on_parent_end(outlast::ParentEnd::Abandon);
        let both = futures_util::future::try_join(ctx.step(work, "slow bad".to_owned()), child);
        let (step, child) = both.await?;
        Ok(format!("{step} {child}"))
    }
    let _worker = engine.worker((abandoning, fragile, work)).await;
    let run = engine.client.start(abandoning, ()).await.unwrap();
    engine.steps.wait_for_log("began slow child", 1).await;
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    engine.steps.open("slow child");
    let child = engine.client.operations(run.id()).await.unwrap()[0].child.unwrap();
    engine.wait_for_status(child, Status::Completed).await;
    engine.steps.log("fixed slow bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "slow bad slow child");
    assert_eq!(engine.steps.count("began slow child"), 1);
}

async fn a_child_of_a_skipped_operation_is_adopted_by_its_key(engine: TestEngine) {
    #[workflow]
    async fn two_branches(ctx: Context) -> Result<String, Error> {
        let other = async {
            ctx.step(work, "slow first".to_owned()).await?;
            ctx.child(fragile, "good".to_owned()).key("good-1").await
        };
        let (step, child) = futures_util::future::join(ctx.step(work, "bad".to_owned()), other).await;
        Ok(format!("{} {}", step?, child?))
    }
    let _worker = engine.worker((two_branches, fragile, work)).await;
    let run = engine.client.start(two_branches, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("step_failed")).await;
    engine.steps.open("slow first");
    assert!(run.output().await.is_err());
    assert_eq!(planned(&engine, run.id()).await, [0]);
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad good");
    assert_eq!((engine.steps.count("began good"), engine.steps.count("began slow first")), (1, 1));
    let operations = engine.client.operations(run.id()).await.unwrap();
    let children: Vec<_> = operations.iter().filter_map(|operation| operation.child).collect();
    assert_eq!(children[0], children[1], "the same child, under another operation");
}

async fn a_cancelled_run_continues_as_if_it_had_not_been_cancelled(engine: TestEngine) {
    #[workflow]
    async fn nap(ctx: Context) -> Result<String, Error> {
        ctx.sleep("1h").await?;
        ctx.note("rested").await
    }
    let _worker = engine.worker(nap).await;
    let run = engine.client.start(nap, ()).await.unwrap();
    engine.advance("10m").await;
    engine.client.cancel(run.id(), "by mistake").await.unwrap();
    assert!(run.output().await.unwrap_err().is_cancelled());
    retry(&engine, run.id()).await;
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.is_cancel_requested), (Status::Waiting, false));
    engine.advance("50m").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "the timer has its full time");
    engine.advance("20m").await;
    assert_eq!(run.output().await.unwrap(), "rested");
}

async fn a_run_can_be_retried_again(engine: TestEngine) {
    let _worker = engine.worker((all_of_them, work)).await;
    let names = ["bad a", "good", "bad b"].map(str::to_owned).to_vec();
    let run = engine.client.start(all_of_them, names).await.unwrap();
    assert!(run.output().await.is_err());
    retry(&engine, run.id()).await;
    assert!(run.output().await.is_err(), "nothing was fixed");
    engine.steps.log("fixed bad a");
    assert_eq!(planned(&engine, run.id()).await, [0]);
    retry(&engine, run.id()).await;
    let error = run.output().await.unwrap_err();
    assert!(error.to_string().contains("bad b failed"), "{error}");
    engine.steps.log("fixed bad b");
    assert_eq!(planned(&engine, run.id()).await, [2]);
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), "bad a good bad b");
    assert_eq!(engine.steps.count("began good"), 1);
}

async fn a_worker_that_is_lost_before_the_retry_is_recorded_changes_nothing(engine: TestEngine) {
    let worker = engine.worker((all_of_them, work)).await;
    let names = ["slow bad", "good"].map(str::to_owned).to_vec();
    let run = engine.client.start(all_of_them, names).await.unwrap();
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    engine.crash(worker);
    engine.steps.log("fixed slow bad");
    retry(&engine, run.id()).await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    let explained = engine.client.explain(run.id()).await.unwrap();
    assert!(explained.sentence.contains("It was retried"), "{}", explained.sentence);
    let worker = engine.worker((all_of_them, work)).await;
    engine.wait_for_history(run.id(), |history| history.contains("run_retried")).await;
    engine.crash(worker);
    let _worker = engine.worker((all_of_them, work)).await;
    assert_eq!(run.output().await.unwrap(), "slow bad good");
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("run_retried").count(), 1, "{history}");
    assert_eq!(engine.steps.count("began good"), 1);
}

async fn a_loop_continues_in_the_iteration_that_failed(engine: TestEngine) {
    #[workflow]
    async fn looping(ctx: Context) -> Result<u32, Error> {
        ctx.note("before").await?;
        let looped = ctx.iterate("loop", 0u32, async |ctx: Context, done: u32| {
            let name = if done == 3 { "bad".to_owned() } else { format!("good {done}") };
            ctx.step(work, name).await?;
            Ok(if done == 5 { Next::Done(done) } else { Next::Again(done + 1) })
        });
        looped.await
    }
    let _worker = engine.worker((looping, work)).await;
    let run = engine.client.start(looping, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    assert_eq!(run.output().await.unwrap(), 5);
    assert_eq!((engine.steps.count("began good 2"), engine.steps.count("before")), (1, 1));
}

async fn a_request_to_stop_from_before_the_end_is_forgotten(engine: TestEngine) {
    let worker = engine.worker((handled, work)).await;
    let run = engine.client.start(handled, ()).await.unwrap();
    assert!(run.output().await.is_err());
    worker.stop().await.unwrap();
    engine.steps.log("fixed bad two");
    retry(&engine, run.id()).await;
    assert_eq!(engine.client.cancel(run.id(), "no").await.unwrap(), outlast::Cancel::Requested);
    let worker = engine.worker((handled, work)).await;
    assert!(run.output().await.unwrap_err().is_cancelled(), "the cancel came after the retry");
    worker.stop().await.unwrap();
    retry(&engine, run.id()).await;
    let _worker = engine.worker((handled, work)).await;
    assert_eq!(run.output().await.unwrap(), "handled, bad two");
}

async fn runs_that_cannot_be_retried_say_why(engine: TestEngine) {
    #[workflow]
    async fn own_failure(ctx: Context) -> Result<(), Error> {
        ctx.note("fine").await?;
        Err(Error::msg("no operation"))
    }
    #[workflow]
    async fn undone(ctx: Context) -> Result<String, Error> {
        let _ = ctx.compensate(work, "undo".to_owned());
        ctx.step(work, "bad".to_owned()).await
    }
    #[workflow]
    async fn with_child(ctx: Context) -> Result<String, Error> {
        let both = futures_util::future::try_join(
            ctx.step(work, "slow bad".to_owned()),
            ctx.child(fragile, "slow child".to_owned()),
        );
        Ok(both.await?.0)
    }
    let code = (own_failure, undone, with_child, fragile, handled, work);
    let _worker = engine.worker(code).await;
    let own = engine.client.start(own_failure, ()).await.unwrap();
    assert!(own.output().await.is_err());
    let reason = refusal(&engine, own.id()).await;
    assert!(reason.contains("did not come from an operation (\"no operation\")"), "{reason}");
    let compensated = engine.client.start(undone, ()).await.unwrap();
    assert!(compensated.output().await.is_err());
    let reason = refusal(&engine, compensated.id()).await;
    assert!(reason.contains("its compensations have undone what it did"), "{reason}");
    let parent = engine.client.start(with_child, ()).await.unwrap();
    engine.steps.wait_for_log("began slow child", 1).await;
    engine.steps.open("slow bad");
    assert!(parent.output().await.is_err());
    let reason = refusal(&engine, parent.id()).await;
    assert!(reason.contains("which had begun; restart it instead"), "{reason}");
    engine.steps.open("slow child");
    let error = engine.client.retry(engine.client.new_id()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let good = engine.client.start(fragile, "good".to_owned()).await.unwrap();
    good.output().await.unwrap();
    let reason = refusal(&engine, good.id()).await;
    assert!(reason.contains("it is completed; only a run that has failed"), "{reason}");
}

async fn a_step_that_is_attempted_at_most_once_needs_force(engine: TestEngine) {
    #[step(at_most_once)]
    async fn pay(cx: StepContext<StepState>) -> Result<u32, StepError> {
        cx.state().log("paid");
        if cx.state().count("paid") == 1 { Err(StepError::msg("no answer")) } else { Ok(7) }
    }
    #[workflow]
    async fn paying(ctx: Context) -> Result<u32, Error> {
        ctx.step(pay, ()).await
    }
    let _worker = engine.worker((paying, pay)).await;
    let run = engine.client.start(paying, ()).await.unwrap();
    assert!(run.output().await.is_err());
    let reason = refusal(&engine, run.id()).await;
    assert!(reason.contains("step `pay` (operation 0) is attempted at most once"), "{reason}");
    assert_eq!(engine.client.retry(run.id()).force().await.unwrap(), Controlled::Requested);
    assert_eq!((run.output().await.unwrap(), engine.steps.count("paid")), (7, 2));
}

async fn a_deadline_that_has_passed_must_be_replaced(engine: TestEngine) {
    let _worker = engine.worker((fragile, work)).await;
    let run = engine.client.start(fragile, "bad".to_owned()).deadline("1h").await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    engine.advance("2h").await;
    let error = engine.client.retry(run.id()).await.unwrap_err();
    assert!(error.to_string().contains("has passed"), "{error}");
    let later = engine.clock.now().plus(std::time::Duration::from_secs(3600));
    assert_eq!(engine.client.retry(run.id()).deadline(later).await.unwrap(), Controlled::Requested);
    assert_eq!(run.output().await.unwrap(), "bad");
}

async fn a_reopened_run_is_terminated_with_its_compensations_without_its_code(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<u32, Error> {
        ctx.hook::<u32>("go").await
    }
    let worker = engine.worker(waits).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    engine.wait_for_status(run.id(), Status::Waiting).await;
    engine.client.cancel(run.id(), "not needed").await.unwrap();
    engine.wait_for_status(run.id(), Status::Cancelled).await;
    worker.stop().await.unwrap();
    retry(&engine, run.id()).await;
    engine.client.terminate(run.id(), "enough").compensating().await.unwrap();
    // It has registered none, so it ends at once.
    let _worker = engine.worker(work).await;
    assert!(run.output().await.is_err());
    let history = engine.history(run.id()).await;
    assert!(history.ends_with("run_retried\nrun_terminated terminated: enough"), "{history}");
}

async fn a_retry_is_idempotent_and_records_who_asked(engine: TestEngine) {
    let worker = engine.worker((fragile, work)).await;
    let run = engine.client.start(fragile, "slow bad".to_owned()).await.unwrap();
    engine.steps.open("slow bad");
    assert!(run.output().await.is_err());
    worker.stop().await.unwrap();
    engine.steps.log("fixed slow bad");
    let client = engine.client.acting_as("ada");
    let call = client.retry(run.id()).reason("the bank is open");
    assert_eq!(call.clone().await.unwrap(), Controlled::Requested);
    assert_eq!(call.await.unwrap(), Controlled::Already);
    assert_eq!(run.retry().await.unwrap(), Controlled::Already);
    let _worker = engine.worker((fragile, work)).await;
    run.output().await.unwrap();
    let turns = engine.turns(run.id()).await;
    let retried = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::RunRetried(retried) => Some(retried),
        _ => None,
    });
    let retried = retried.collect::<Vec<_>>();
    assert_eq!(retried.len(), 1);
    assert_eq!((retried[0].actor.as_deref(), &*retried[0].reason), (Some("ada"), "the bank is open"));
}

async fn a_bulk_call_retries_the_failed_runs(engine: TestEngine) {
    let _worker = engine.worker((fragile, work)).await;
    let mut runs = Vec::new();
    for name in ["bad 1", "bad 2", "good"] {
        let run = engine.client.start(fragile, name.to_owned()).await.unwrap();
        let _ = run.output().await;
        runs.push(run);
    }
    engine.steps.log("fixed bad 1");
    engine.steps.log("fixed bad 2");
    let done = engine.client.bulk(engine.client.list().workflow(fragile)).retry("fixed").await.unwrap();
    assert_eq!((done.selected, done.requested, done.refused), (2, 2, 0));
    for run in runs {
        run.output().await.unwrap();
    }
}

async fn views_show_what_is_skipped(engine: TestEngine) {
    #[workflow]
    async fn cleaning(ctx: Context) -> Result<String, Error> {
        match ctx.step(work, "bad".to_owned()).await {
            Err(error) => {
                ctx.note("clean up").await?;
                Err(error)
            }
            done => done,
        }
    }
    let _worker = engine.worker((cleaning, work)).await;
    let run = engine.client.start(cleaning, ()).await.unwrap();
    assert!(run.output().await.is_err());
    engine.steps.log("fixed bad");
    retry(&engine, run.id()).await;
    run.output().await.unwrap();
    let steps = engine.client.steps(run.id()).await.unwrap();
    let shown: Vec<_> =
        steps.iter().map(|step| (step.status, step.is_skipped, step.attempts.len())).collect();
    assert_eq!(shown, [(OperationStatus::Completed, false, 2), (OperationStatus::Completed, true, 1)]);
    let events = engine.client.events(run.id()).await.unwrap();
    let skipped: Vec<_> =
        events.iter().filter(|event| event.is_skipped).map(|event| event.event.kind()).collect();
    assert_eq!(skipped, ["step_failed", "step_started", "step_completed", "run_failed"]);
}
