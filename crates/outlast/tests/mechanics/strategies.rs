//! Failure strategies, and the step after the end of a run.

use std::time::Duration;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, FailureStrategy, RunEnd, RunId, RunView, Status};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    a_run_that_fails_begins_again_with_the_same_input,
    the_last_try_decides_how_the_run_ends,
    there_is_no_next_try_after_a_cancel_a_fatal_error_or_the_deadline,
    there_is_no_next_try_after_a_limit,
    a_run_that_waits_for_its_next_try_can_be_terminated,
    children_and_compensations_are_over_before_the_next_try,
    a_payload_that_was_taken_stays_taken_and_others_are_kept,
    a_parent_receives_only_the_end_of_the_last_try,
    a_retry_survives_crashes,
    a_retry_can_be_paused,
    a_failed_try_can_be_paused_while_it_compensates,
    the_end_of_the_last_try_replays,
    a_try_that_waits_for_an_attempt_costs_no_calls,
    a_cascade_cancels_the_run_that_awaits_it,
    a_run_that_fails_in_quarantine_is_not_deleted_until_it_is_released,
    the_default_of_a_worker_applies_where_nothing_is_said,
    a_step_follows_every_end,
    the_step_after_the_end_is_independent_of_the_run,
    a_run_that_ends_without_its_code_starts_its_step,
    explain_tells_of_the_next_try,
    a_key_can_be_refused_or_taken_over,
    children_have_tags_headers_and_deadlines_of_their_own,
    a_workflow_can_be_its_own_child,
}

/// Fails until it was called this often.
#[step(attempts = 1)]
async fn works_from(cx: StepContext<StepState>, call: usize) -> Result<usize, StepError> {
    cx.state().log("work");
    let calls = cx.state().count("work");
    if calls < call { Err(StepError::msg(format!("call {calls} failed"))) } else { Ok(calls) }
}

/// Tells how a run ended.
#[step]
async fn notify(cx: StepContext<StepState>, end: RunEnd) -> Result<(), StepError> {
    cx.state().log(format!("{} {}", end.workflow, end.status));
    Ok(())
}

/// Succeeds with the call of this number.
#[workflow(on_failure = retry)]
async fn stubborn(ctx: Context, call: usize) -> Result<usize, Error> {
    ctx.step(works_from, call).await
}

/// The kinds of the events of a run, without those of steps.
async fn decisions(engine: &TestEngine, run: RunId) -> Vec<&'static str> {
    let turns = engine.turns(run).await;
    let events = turns.iter().flat_map(|turn| turn.events.iter().map(Event::kind));
    events.filter(|kind| !kind.starts_with("step_")).collect()
}

async fn a_run_that_fails_begins_again_with_the_same_input(engine: TestEngine) {
    let _worker = engine.worker((stubborn, works_from)).await;
    let run = engine.client.start(stubborn, 3).await.unwrap();
    engine.settle().await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.is_retrying, view.generation), (Status::Waiting, true, 1));
    let pause = view.wake_at.unwrap().since(engine.time_after_begin("0s"));
    assert!((5_000_000..=5_500_000).contains(&(pause.as_micros() as u64)), "{pause:?}");
    engine.advance("5s500ms").await;
    assert_eq!(engine.view(run.id()).await.generation, 2);
    engine.advance("11s").await;
    assert_eq!(run.output().await.unwrap(), 3);
    let view = engine.view(run.id()).await;
    assert_eq!((view.generation, view.marks.is_empty()), (3, true));
    let kinds =
        ["run_started", "run_retrying", "run_continued", "run_retrying", "run_continued", "run_completed"];
    assert_eq!(decisions(&engine, run.id()).await, kinds);
    assert_eq!(engine.steps.count("work"), 3);
}

async fn the_last_try_decides_how_the_run_ends(engine: TestEngine) {
    #[workflow(on_failure = retry(attempts = 2, initial = "1m", multiplier = 3.0, pause_max = "2m"))]
    async fn hopeless(ctx: Context) -> Result<usize, Error> {
        ctx.step(works_from, 100).await
    }
    let _worker = engine.worker((hopeless, works_from)).await;
    let run = engine.client.start(hopeless, ()).await.unwrap();
    engine.advance("59s").await;
    assert_eq!(engine.steps.count("work"), 1);
    engine.advance("8s").await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.message(), "call 2 failed");
    assert_eq!(engine.view(run.id()).await.status, Status::Failed);
}

async fn there_is_no_next_try_after_a_cancel_a_fatal_error_or_the_deadline(engine: TestEngine) {
    #[workflow(on_failure = retry)]
    async fn fatal(ctx: Context) -> Result<(), Error> {
        ctx.note("fatal").await?;
        Err(Error::of_kind(ErrorKind::Fatal, "no use"))
    }
    #[workflow(on_failure = retry)]
    async fn waits(ctx: Context) -> Result<(), Error> {
        ctx.hook::<()>("go").await?;
        Ok(())
    }
    let _worker = engine.worker((fatal, waits, stubborn, works_from)).await;
    let run = engine.client.start(fatal, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap_err().message(), "no use");
    let cancelled = engine.client.start(waits, ()).await.unwrap();
    engine.client.cancel(cancelled.id(), "enough").await.unwrap();
    assert!(cancelled.output().await.unwrap_err().is_cancelled());
    // A cancel between two tries.
    let between = engine.client.start(stubborn, 100).await.unwrap();
    engine.settle().await;
    engine.client.cancel(between.id(), "enough").await.unwrap();
    engine.settle().await;
    let error = between.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message().contains("enough"), "{error}");
    let kinds = ["run_started", "run_retrying", "cancel_requested", "run_cancelled"];
    assert_eq!(decisions(&engine, between.id()).await, kinds);
    // The deadline between two tries.
    let late = engine.client.start(stubborn, 100).deadline("2s").await.unwrap();
    engine.advance("3s").await;
    assert!(late.output().await.unwrap_err().is_cancelled());
    assert_eq!(decisions(&engine, late.id()).await, kinds);
    engine.advance("1h").await;
    assert_eq!((engine.steps.count("work"), engine.steps.count("fatal")), (2, 1));
}

async fn there_is_no_next_try_after_a_limit(engine: TestEngine) {
    use outlast::core::limits::PAYLOAD_BYTES_MAX;
    #[workflow(on_failure = retry)]
    async fn returns_too_much(ctx: Context) -> Result<String, Error> {
        ctx.note("computed").await?;
        Ok("x".repeat(PAYLOAD_BYTES_MAX + 1))
    }
    #[workflow(on_failure = retry)]
    async fn continues_with_too_much(ctx: Context, _text: String) -> Result<(), Error> {
        ctx.continue_as(&"x".repeat(PAYLOAD_BYTES_MAX + 1))
    }
    let _worker = engine.worker((returns_too_much, continues_with_too_much)).await;
    let run = engine.client.start(returns_too_much, ()).await.unwrap().id();
    let other = engine.client.start(continues_with_too_much, "").await.unwrap().id();
    engine.advance("1h").await;
    for (run, kind) in [(run, "run_failed"), (other, "run_failed")] {
        assert_eq!(decisions(&engine, run).await, ["run_started", kind]);
        assert_eq!(engine.view(run).await.failure.unwrap().kind, outlast::core::FailureKind::Limit);
    }
    assert_eq!(engine.steps.logged(), ["computed"]);
}

async fn a_run_that_waits_for_its_next_try_can_be_terminated(engine: TestEngine) {
    let worker = engine.worker((stubborn, works_from)).await;
    let run = engine.client.start(stubborn, 100).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    engine.client.terminate(run.id(), "now").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.status, Status::Cancelled);
}

async fn children_and_compensations_are_over_before_the_next_try(engine: TestEngine) {
    #[step]
    async fn undo(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
        cx.state().log(format!("undo {}", undo.input));
        Ok(())
    }
    #[workflow]
    async fn slow(ctx: Context) -> Result<(), Error> {
        let waited = ctx.hook::<()>("never").await;
        ctx.shielded().step(super::test_engine::blocked, "child").await?;
        waited
    }
    #[workflow(on_failure = retry(attempts = 2))]
    async fn parent(ctx: Context) -> Result<(), Error> {
        ctx.note("begins").await?;
        ctx.step(super::test_engine::note, "done").undo(undo).await?;
        let _child = ctx.child(slow, ());
        ctx.sleep("1s").await?;
        Err(Error::msg("not today"))
    }
    let _worker = engine.worker((parent, slow, undo)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    engine.clock.advance(Duration::from_secs(1));
    engine.steps.wait_for_log("began child", 1).await;
    engine.clock.advance(Duration::from_secs(60));
    let view = engine.view(run.id()).await;
    assert_eq!((view.shown_status(), view.generation), ("waiting", 1), "it does not end");
    assert_eq!((engine.steps.count("undo done"), engine.steps.count("begins")), (0, 1));
    engine.steps.open("child");
    engine.steps.wait_for_log("undo done", 1).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.generation, 2, "the pause is over already");
    assert_eq!(engine.steps.count("begins"), 2);
    engine.advance("2s").await;
    assert_eq!(run.output().await.unwrap_err().message(), "not today");
    let view = engine.view(run.id()).await;
    assert_eq!(
        (view.status, view.shown_status(), engine.steps.count("undo done")),
        (Status::Failed, "compensated", 2)
    );
}

async fn a_payload_that_was_taken_stays_taken_and_others_are_kept(engine: TestEngine) {
    #[workflow(on_failure = retry)]
    async fn takes(ctx: Context) -> Result<Vec<u32>, Error> {
        let first = ctx.hook::<u32>("a").await?;
        if first == 1 {
            return Err(Error::msg("not the first"));
        }
        Ok(vec![first, ctx.hook::<u32>("a").await?, ctx.hook::<u32>("b").await?])
    }
    let _worker = engine.worker(takes).await;
    let run = engine.client.start(takes, ()).await.unwrap();
    engine.settle().await;
    engine.send(run.id(), "b", 9).await;
    engine.send(run.id(), "a", 1).await;
    engine.settle().await;
    // While it waits for its next try.
    engine.send(run.id(), "a", 2).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.kept, 2);
    engine.advance("6s").await;
    engine.send(run.id(), "a", 3).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), [2, 3, 9]);
}

async fn a_parent_receives_only_the_end_of_the_last_try(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<usize, Error> {
        ctx.child(stubborn, 3).await
    }
    let _worker = engine.worker((parent, stubborn, works_from)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.advance("20s").await;
    assert_eq!(run.output().await.unwrap(), 3);
    let kinds = decisions(&engine, run.id()).await;
    assert_eq!(kinds, ["run_started", "child_started", "child_completed", "run_completed"]);
}

async fn a_retry_survives_crashes(engine: TestEngine) {
    let worker = engine.worker((stubborn, works_from)).await;
    let run = engine.client.start(stubborn, 2).await.unwrap();
    engine.send(run.id(), "early", 1).await;
    engine.settle().await;
    engine.crash(worker);
    engine.send(run.id(), "late", 2).await;
    let worker = engine.worker((stubborn, works_from)).await;
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.kept, 2);
    engine.crash(worker);
    let _worker = engine.worker((stubborn, works_from)).await;
    engine.advance("6s").await;
    assert_eq!(run.output().await.unwrap(), 2);
    let kinds = decisions(&engine, run.id()).await;
    let expected =
        ["run_started", "hook_received", "run_retrying", "hook_received", "run_continued", "run_completed"];
    assert!(kinds == expected, "{kinds:?}");
    assert_eq!(engine.view(run.id()).await.kept, 2);
}

async fn a_retry_can_be_paused(engine: TestEngine) {
    let _worker = engine.worker((stubborn, works_from)).await;
    let run = engine.client.start(stubborn, 2).await.unwrap();
    engine.settle().await;
    engine.client.pause(run.id()).await.unwrap();
    engine.settle().await;
    let claimed = engine.faults.claimed();
    engine.advance("1h").await;
    assert_eq!(engine.faults.claimed(), claimed, "a paused run is not claimed");
    assert_eq!((engine.steps.count("work"), engine.view(run.id()).await.shown_status()), (1, "paused"));
    engine.client.resume(run.id()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.output().await.unwrap(), 2);
}

async fn a_failed_try_can_be_paused_while_it_compensates(engine: TestEngine) {
    #[step]
    async fn undo(cx: StepContext<StepState>, _undo: Undo<String, String>) -> Result<(), StepError> {
        cx.state().log("began undo");
        cx.state().wait_for_gate("undo").await;
        Ok(())
    }
    #[workflow(on_failure = retry(attempts = 2))]
    async fn parent(ctx: Context) -> Result<(), Error> {
        ctx.step(super::test_engine::note, "work").undo(undo).await?;
        Err(Error::msg("not today"))
    }
    let _worker = engine.worker((parent, undo)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.steps.wait_for_log("began undo", 1).await;
    engine.client.pause(run.id()).await.unwrap();
    assert_eq!(engine.view(run.id()).await.shown_status(), "paused");
    engine.steps.open("undo");
    engine.wait_for_view(run.id(), |view| view.owner.is_none()).await;
    let claimed = engine.faults.claimed();
    engine.advance("1h").await;
    assert_eq!(engine.faults.claimed(), claimed, "a paused run is not claimed");
    assert_eq!((engine.view(run.id()).await.generation, engine.steps.count("work")), (1, 1));
    engine.client.resume(run.id()).await.unwrap();
    assert_eq!(run.output().await.unwrap_err().message(), "not today");
    assert_eq!((engine.steps.count("work"), engine.steps.count("began undo")), (2, 2));
}

async fn a_try_that_waits_for_an_attempt_costs_no_calls(engine: TestEngine) {
    #[workflow(on_failure = retry(attempts = 2))]
    async fn drops(ctx: Context) -> Result<(), Error> {
        let (slow, soon) = (ctx.blocked("gate"), ctx.sleep("1s"));
        select! {
            _ = slow => Err(Error::msg("not today")),
            _ = soon => Err(Error::msg("not today")),
        }
    }
    let _worker = engine.worker(drops).await;
    let run = engine.client.start(drops, ()).await.unwrap();
    engine.steps.wait_for_log("began gate", 1).await;
    engine.clock.advance(Duration::from_secs(1));
    engine.wait_for_history(run.id(), |history| history.contains("run_retrying")).await;
    // The pause is over, and the attempt at the dropped step is still running.
    let calls = engine.faults.total();
    engine.clock.advance(Duration::from_secs(60));
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    let calls = engine.faults.total() - calls;
    assert!(calls < 50, "{calls} calls");
    engine.steps.open("gate");
    assert_eq!(run.output().await.unwrap_err().message(), "not today");
}

async fn the_end_of_the_last_try_replays(engine: TestEngine) {
    #[workflow]
    async fn waits(ctx: Context) -> Result<u32, Error> {
        ctx.hook("go").await
    }
    #[workflow(on_failure = retry(attempts = 2))]
    async fn parent(ctx: Context) -> Result<(), Error> {
        let _child = ctx.child(waits, ()).on_parent_end(ParentEnd::Wait);
        ctx.sleep("1s").await?;
        Err(Error::msg("not today"))
    }
    // The worker replays the run after each turn.
    let _worker = engine.worker((parent, waits)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.settle().await;
    engine.advance("1s").await;
    engine.advance("10s").await;
    engine.advance("1s").await;
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.generation, view.stuck), (Status::Waiting, 2, None));
    let children = engine.client.children(run.id()).await.unwrap().runs;
    let child = children.iter().find(|child| !child.status.is_final()).unwrap().id;
    engine.send(child, "go", 1).await;
    assert_eq!(run.output().await.unwrap_err().message(), "not today");
}

async fn a_cascade_cancels_the_run_that_awaits_it(engine: TestEngine) {
    #[workflow(on_failure = cascade)]
    async fn part(ctx: Context) -> Result<(), Error> {
        ctx.note("part").await?;
        Err(Error::msg("broken"))
    }
    #[workflow]
    async fn whole(ctx: Context) -> Result<String, Error> {
        // It would ignore the failure.
        let _ = ctx.child(part, ()).await;
        ctx.note("after").await?;
        Ok("done".into())
    }
    #[workflow]
    async fn indifferent(ctx: Context) -> Result<RunId, Error> {
        ctx.child(part, ()).abandon().await
    }
    let _worker = engine.worker((whole, part, indifferent)).await;
    let run = engine.client.start_json("whole", 1, "null").await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, engine.steps.count("after")), (Status::Cancelled, 0));
    let run = engine.client.start(indifferent, ()).await.unwrap();
    run.output().await.unwrap();
}

async fn a_run_that_fails_in_quarantine_is_not_deleted_until_it_is_released(engine: TestEngine) {
    #[workflow(on_failure = quarantine)]
    async fn fragile(_ctx: Context, fails: bool) -> Result<(), Error> {
        if fails { Err(Error::msg("broken")) } else { Ok(()) }
    }
    #[workflow(on_failure = quarantine)]
    async fn later(ctx: Context) -> Result<(), Error> {
        ctx.note("x").await?;
        Err(Error::msg("broken"))
    }
    let _worker = engine.worker((fragile, later)).await;
    let mut kept = Vec::new();
    // The first fails in its first turn, which also starts it.
    kept.push(engine.client.start(fragile, true).await.unwrap().id());
    kept.push(engine.client.start(later, ()).await.unwrap().id());
    let fine = engine.client.start(fragile, false).await.unwrap().id();
    engine.advance("1d").await;
    for run in &kept {
        let view = engine.view(*run).await;
        assert_eq!((view.status, view.shown_status()), (Status::Failed, "quarantined"));
    }
    assert!(engine.view(fine).await.marks.is_empty());
    let pruned = engine.client.prune(engine.clock.now()).await.unwrap();
    assert_eq!(pruned, 1);
    engine.client.release(kept[0]).await.unwrap();
    assert_eq!(engine.client.prune(engine.clock.now()).await.unwrap(), 1);
    assert_eq!(engine.view(kept[1]).await.shown_status(), "quarantined");
}

async fn the_default_of_a_worker_applies_where_nothing_is_said(engine: TestEngine) {
    #[workflow]
    async fn plain(_ctx: Context) -> Result<(), Error> {
        Err(Error::msg("broken"))
    }
    #[workflow(on_failure = fail)]
    async fn explicit(_ctx: Context) -> Result<(), Error> {
        Err(Error::msg("broken"))
    }
    let builder = engine.builder().register((plain, explicit)).on_failure(FailureStrategy::Quarantine);
    let _worker = builder.start().await.unwrap();
    let run = engine.client.start(plain, ()).await.unwrap();
    run.output().await.unwrap_err();
    assert_eq!(engine.view(run.id()).await.shown_status(), "quarantined");
    let run = engine.client.start(explicit, ()).await.unwrap();
    run.output().await.unwrap_err();
    assert_eq!(engine.view(run.id()).await.shown_status(), "failed");
}

/// Does what its input says, and has a step after its end.
#[workflow(on_end = notify, on_failure = retry(attempts = 2, initial = "1s"))]
async fn told(ctx: Context, what: String) -> Result<(), Error> {
    match &*what {
        "fail" => Err(Error::msg("as told")),
        "wait" => ctx.hook::<()>("never").await,
        _ => Ok(()),
    }
}

async fn a_step_follows_every_end(engine: TestEngine) {
    let worker = engine.worker((told, notify)).await;
    engine.client.start(told, "complete").await.unwrap().output().await.unwrap();
    engine.steps.wait_for_log("told completed", 1).await;
    let failing = engine.client.start(told, "fail").await.unwrap();
    engine.advance("2s").await;
    failing.output().await.unwrap_err();
    engine.steps.wait_for_log("told failed", 1).await;
    for number in 1..=2 {
        let run = engine.client.start(told, "wait").await.unwrap();
        engine.settle().await;
        if number == 1 {
            engine.client.cancel(run.id(), "enough").await.unwrap();
        } else {
            engine.client.terminate(run.id(), "enough").await.unwrap();
        }
        engine.settle().await;
        engine.steps.wait_for_log("told cancelled", number).await;
    }
    // Cancelled before its first turn.
    let run = engine.client.start(told, "wait").after("1h").await.unwrap();
    engine.client.cancel(run.id(), "enough").await.unwrap();
    engine.settle().await;
    engine.steps.wait_for_log("told cancelled", 3).await;
    assert_eq!(engine.steps.logged().len(), 5);
    worker.stop().await.unwrap();
}

async fn the_step_after_the_end_is_independent_of_the_run(engine: TestEngine) {
    #[step]
    async fn slow_notify(cx: StepContext<StepState>, end: RunEnd) -> Result<(), StepError> {
        cx.state().log(format!("notified of {}", end.status));
        cx.state().wait_for_gate("notify").await;
        Err(StepError::fatal("nobody listens"))
    }
    #[workflow(on_end = slow_notify)]
    async fn quick(_ctx: Context) -> Result<u32, Error> {
        Ok(7)
    }
    let _worker = engine.worker((quick, slow_notify)).await;
    let run = engine.client.start(quick, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
    engine.steps.wait_for_log("notified of completed", 1).await;
    engine.steps.open("notify");
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.status, Status::Completed);
    let page = engine.client.list().parent(run.id()).queued_steps().await.unwrap();
    assert_eq!((page.runs.len(), page.runs[0].status), (1, Status::Failed));
}

async fn a_run_that_ends_without_its_code_starts_its_step(engine: TestEngine) {
    // No worker at all: the client ends the run.
    let run = engine.client.start(told, "wait").await.unwrap();
    engine.client.terminate(run.id(), "never mind").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.view(run.id()).await.status, Status::Cancelled);
    // A worker without the workflow ends one that is overdue.
    let overdue = engine.client.start(told, "wait").deadline("1s").await.unwrap();
    let _worker = engine.worker(notify).await;
    engine.steps.wait_for_log("told cancelled", 1).await;
    engine.advance("2m").await;
    assert_eq!(engine.view(overdue.id()).await.status, Status::Cancelled);
    engine.steps.wait_for_log("told cancelled", 2).await;
}

async fn explain_tells_of_the_next_try(engine: TestEngine) {
    let _worker = engine.worker((stubborn, works_from)).await;
    let run = engine.client.start(stubborn, 2).await.unwrap();
    engine.settle().await;
    let text = engine.client.explain(run.id()).await.unwrap().sentence;
    assert!(text.contains("try 2 of 3") && text.contains("call 1 failed"), "{text}");
}

async fn a_key_can_be_refused_or_taken_over(engine: TestEngine) {
    let _worker = engine.worker((told, notify)).await;
    let first = engine.client.start(told, "wait").key("k").key_must_be_new().await.unwrap();
    let again = engine.client.start(told, "wait").key("k");
    assert_eq!(again.await.unwrap().id(), first.id());
    let refused = engine.client.start(told, "wait").key("k").key_must_be_new().await.unwrap_err();
    assert!(refused.is_conflict() && refused.message().contains(&first.id().to_string()), "{refused}");
    let second = engine.client.start(told, "complete").key("k").key_replaces().await.unwrap();
    engine.settle().await;
    let error = first.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.message().contains(&second.id().to_string()), "{error}");
    second.output().await.unwrap();
    assert_eq!(engine.view(first.id()).await.key, None);
    for (call, named) in [
        (engine.client.start(told, "wait").key_replaces(), "key_replaces"),
        (engine.client.start(told, "wait").key_must_be_new(), "key_must_be_new"),
    ] {
        let error = call.await.unwrap_err();
        assert!(error.message().contains(named) && error.message().contains("needs a key"), "{error}");
    }
    let both = engine.client.start(told, "wait").key("x").key_replaces().key_must_be_new();
    assert_eq!(both.await.unwrap_err().kind(), ErrorKind::Invalid);
}

async fn children_have_tags_headers_and_deadlines_of_their_own(engine: TestEngine) {
    #[workflow]
    async fn child(ctx: Context) -> Result<Vec<Option<String>>, Error> {
        let header = |name: &str| ctx.headers().get(name).cloned();
        let texts = vec![header("user"), header("room"), ctx.tags().get("tier").cloned()];
        if header("room").as_deref() == Some("waiting") {
            ctx.hook::<()>("never").await?;
        }
        Ok(texts)
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<Vec<Option<String>>, Error> {
        let texts = ctx.child(child, ()).tag("tier", "gold").header("room", "7").await?;
        let late = ctx.child(child, ()).header("room", "waiting").deadline("1m").await.unwrap_err();
        assert!(late.is_cancelled(), "{late}");
        for (reserved, what) in [
            (ctx.child(child, ()).tag("outlast:x", "1").await, "tag"),
            (ctx.child(child, ()).header("outlast:x", "1").await, "header"),
        ] {
            let error = reserved.unwrap_err();
            assert!(error.message().contains(what), "{error}");
        }
        Ok(texts)
    }
    let _worker = engine.worker((parent, child)).await;
    let run = engine.client.start(parent, ()).header("user", "ada").await.unwrap();
    engine.advance("2m").await;
    let texts = run.output().await.unwrap();
    assert_eq!(texts, [Some("ada".into()), Some("7".into()), Some("gold".into())]);
}

async fn a_workflow_can_be_its_own_child(engine: TestEngine) {
    #[workflow]
    async fn factorial(ctx: Context, number: u64) -> Result<u64, Error> {
        if number == 0 { Ok(1) } else { Ok(number * ctx.child(factorial, number - 1).await?) }
    }
    let _worker = engine.worker(factorial).await;
    let run = engine.client.start(factorial, 5).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 120);
    let page = engine.client.list().root(run.id()).await.unwrap();
    let is_descendant = |child: &&RunView| child.parent.is_some_and(|parent| parent.root == run.id());
    assert_eq!(page.runs.iter().filter(is_descendant).count(), 5);
}
