//! Compensations: a run that does not complete undoes what it did, in reverse order, whatever happens meanwhile.

use outlast::core::{Event, OpNumber};
use outlast::prelude::*;
use outlast::{Cancel, OperationKind, OperationStatus, Status};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    compensations_run_in_reverse_order_and_their_failures_are_listed,
    a_run_that_completes_compensates_for_nothing,
    a_step_in_progress_is_undone_after_it_has_ended,
    a_step_that_was_never_attempted_is_not_undone,
    a_cancel_before_an_attempt_and_a_cancel_while_it_compensates,
    compensations_do_not_need_the_code_that_registered_them,
    a_compensation_whose_code_is_missing_waits_for_a_build_that_has_it,
    a_compensation_is_retried_after_a_crash,
    a_deadline_does_not_end_a_run_without_its_compensations,
    terminate_can_compensate_without_the_code_of_the_workflow,
    terminate_ends_a_run_that_compensates,
    queued_steps_and_children_are_over_before_the_first_compensation,
    a_queued_compensation_runs_in_its_queue,
    what_was_kept_is_not_compensated,
    a_saga_compensates_and_the_run_continues,
    a_saga_waits_for_a_step_in_progress,
    a_saga_that_is_dropped_leaves_its_compensations_to_the_run,
    a_compensation_is_retried_for_a_day,
    operations_show_compensations,
}

/// Applies a word.
#[step]
async fn apply(cx: StepContext<StepState>, word: String) -> Result<u32, StepError> {
    cx.state().log(format!("apply {word}"));
    Ok(word.len() as u32)
}

/// Reverts a word. The word `stubborn` cannot be reverted.
#[step]
async fn revert(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
    let output = undo.output.map_or("nothing".to_owned(), |output| output.to_string());
    cx.state().log(format!("revert {}: {output}", undo.input));
    if undo.input == "stubborn" {
        return Err(StepError::fatal("it does not move"));
    }
    Ok(())
}

/// Ends when its gate opens, even if it is asked to stop.
#[step]
async fn charge(cx: StepContext<StepState>, gate: String) -> Result<String, StepError> {
    cx.state().log("charge begins");
    cx.state().wait_for_gate(&gate).await;
    cx.state().log("charge ends");
    Ok("payment".into())
}

#[step]
async fn refund(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
    cx.state().log(format!("refund {:?}", undo.output));
    Ok(())
}

#[step]
async fn fail(cx: StepContext<StepState>, why: String) -> Result<(), StepError> {
    cx.state().log("fail");
    Err(StepError::fatal(why))
}

/// The code of the steps above.
macro_rules! steps {
    () => {
        (apply, revert, charge, refund, fail)
    };
}

async fn compensations_run_in_reverse_order_and_their_failures_are_listed(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        ctx.compensate(super::test_engine::note, "explicit")?;
        ctx.step(apply, "stubborn").undo(revert).await?;
        ctx.step(apply, "three").undo(revert).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.builder().register(order).register(steps!()).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.message().starts_with("sold out (a compensation failed: `revert`, operation 4"), "{error}");
    let failed = error.failed_compensations();
    assert_eq!((failed.len(), failed[0].op, &*failed[0].message), (1, 4, "it does not move"));
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Failed, String::new()));
    assert_eq!(
        engine.steps.logged()[3..],
        ["revert three: 5", "revert stubborn: 8", "explicit", "revert one: 3"]
    );
    engine
        .assert_history(
            run.id(),
            "
            0 step_started apply
            1 compensation_registered revert
            0 step_completed 3
            2 compensation_registered note
            3 step_started apply
            4 compensation_registered revert
            3 step_completed 8
            5 step_started apply
            6 compensation_registered revert
            5 step_completed 5
            run_compensating failed: sold out
            7 compensation_started 6
            7 step_completed null
            8 compensation_started 4
            8 step_failed it does not move
            9 compensation_started 2
            9 step_completed \"explicit\"
            10 compensation_started 1
            10 step_completed null
            run_failed sold out (a compensation failed: `revert`, operation 4: it does not move)
            ",
        )
        .await;
}

async fn a_run_that_completes_compensates_for_nothing(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<u32, Error> {
        ctx.step(apply, "one").undo(revert).await
    }
    let _worker = engine.builder().register(order).register(steps!()).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.steps.logged(), ["apply one"]);
    assert!(engine.view(run.id()).await.marks.is_empty());
}

#[workflow]
async fn siblings(ctx: Context) -> Result<(), Error> {
    try_join!(ctx.step(charge, "bank").undo(refund), ctx.step(fail, "no stock"))?;
    Ok(())
}

async fn a_step_in_progress_is_undone_after_it_has_ended(engine: TestEngine) {
    let _worker = engine.builder().register(siblings).register(steps!()).start().await.unwrap();
    let run = engine.client.start(siblings, ()).await.unwrap();
    engine.steps.wait_for_log("charge begins", 1).await;
    engine.wait_for_view(run.id(), |view| view.marks.is_compensating()).await;
    assert_eq!(engine.status(run.id()).await, Status::Running);
    assert_eq!(engine.steps.count("charge ends"), 0);
    let sentence = engine.client.explain(run.id()).await.unwrap().sentence;
    let expected = "It will end as failed (no stock) after its compensations: 0 done, `refund` is next, when everything \
                    that the run began is over, 1 left.";
    assert!(sentence.ends_with(expected), "{sentence}");
    engine.steps.open("bank");
    assert_eq!(run.output().await.unwrap_err().message(), "no stock");
    let logged = engine.steps.logged();
    assert_eq!(logged[2..], ["charge ends", "refund Some(\"payment\")"], "{logged:?}");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Failed, "compensated".to_owned()));
}

async fn a_step_that_was_never_attempted_is_not_undone(engine: TestEngine) {
    #[step(limit = 1)]
    async fn narrow(cx: StepContext<StepState>, gate: String) -> Result<String, StepError> {
        cx.state().log(format!("narrow {gate}"));
        cx.state().wait_for_gate(&gate).await;
        Ok(gate)
    }
    #[workflow]
    async fn two(ctx: Context) -> Result<(), Error> {
        let first = ctx.step(narrow, "first").undo(refund);
        let second = ctx.step(narrow, "second").undo(refund);
        try_join!(first, second, ctx.step(fail, "enough"))?;
        Ok(())
    }
    let _worker = engine.builder().register((two, narrow)).register(steps!()).start().await.unwrap();
    let run = engine.client.start(two, ()).await.unwrap();
    engine.wait_for_view(run.id(), |view| view.marks.is_compensating()).await;
    engine.steps.open("first");
    engine.steps.open("second");
    run.output().await.unwrap_err();
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("compensation_started").count(), 1, "{history}");
    assert_eq!(engine.steps.logged().iter().filter(|entry| entry.starts_with("narrow")).count(), 1);
}

async fn a_cancel_before_an_attempt_and_a_cancel_while_it_compensates(engine: TestEngine) {
    #[step]
    async fn slow_refund(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
        cx.state().log(format!("refund of {} begins", undo.input));
        cx.state().wait_for_gate("refund").await;
        assert!(!cx.is_cancelled(), "a compensation is shielded");
        Ok(())
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(slow_refund).await?;
        ctx.hook::<()>("never").await
    }
    let _worker = engine.builder().register((order, slow_refund)).register(steps!()).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::Requested);
    engine.steps.wait_for_log("refund of one begins", 1).await;
    assert_eq!(run.cancel("again").await.unwrap(), Cancel::AlreadyRequested);
    engine.client.send(run.id(), "never", &()).await.unwrap();
    engine.steps.open("refund");
    assert!(run.output().await.unwrap_err().is_cancelled());
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Cancelled, "compensated".to_owned()));
    let history = engine.history(run.id()).await;
    assert_eq!(history.matches("cancel_requested").count(), 1, "{history}");
}

async fn compensations_do_not_need_the_code_that_registered_them(engine: TestEngine) {
    #[workflow(name = "order")]
    async fn before(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        ctx.step(charge, "bank").undo(refund).await?;
        Err(Error::msg("sold out"))
    }
    #[workflow(name = "order")]
    async fn after(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1d").await // would diverge
    }
    #[step(name = "refund")]
    async fn broken_refund(cx: StepContext<StepState>, undo: Undo<String, String>) -> Result<(), StepError> {
        cx.state().log(format!("no refund for {}", undo.input));
        Err(StepError::msg("the bank is closed"))
    }
    let builder = engine.builder().build("old").register((before, apply, revert, charge));
    let worker = builder.register(broken_refund).start().await.unwrap();
    let run = engine.client.start(before, ()).await.unwrap();
    engine.steps.wait_for_log("charge begins", 1).await;
    engine.steps.open("bank");
    engine.steps.wait_for_log("no refund for bank", 1).await;
    engine.crash(worker);
    let _worker = engine.builder().build("new").register(after).register(steps!()).start().await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap_err().message(), "sold out");
    assert_eq!(engine.steps.count("refund Some(\"payment\")"), 1);
    assert_eq!(engine.steps.count("revert one: 3"), 1);
}

async fn a_compensation_whose_code_is_missing_waits_for_a_build_that_has_it(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        Err(Error::msg("sold out"))
    }
    let _old = engine.worker_of_build("old", (order, apply)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert!(stuck.message.contains("step `revert` is not registered"), "{}", stuck.message);
    assert!(engine.view(run.id()).await.marks.is_compensating(), "the decision is recorded");
    let _new = engine.worker_of_build("new", (order, apply, revert)).await;
    engine.settle().await;
    assert_eq!(run.output().await.unwrap_err().message(), "sold out");
}

async fn a_compensation_is_retried_after_a_crash(engine: TestEngine) {
    #[step]
    async fn twice(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
        cx.state().log(format!("attempt {} for {}", cx.attempt(), undo.input));
        if cx.attempt() == 1 {
            return Err(StepError::msg("not yet"));
        }
        cx.state().wait_for_gate("second").await;
        Ok(())
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(twice).await?;
        Err(Error::msg("sold out"))
    }
    let worker = engine.worker((order, apply, twice)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting, "between two attempts nobody holds it");
    let why = engine.client.explain(run.id()).await.unwrap();
    assert!(why.sentence.starts_with("It waits for the next attempt at step `twice`"), "{}", why.sentence);
    assert_eq!(why.compensating.unwrap().running.as_deref(), Some("twice"));
    engine.clock.advance("2s");
    engine.steps.wait_for_log("attempt 2 for one", 1).await;
    engine.crash(worker);
    let _worker = engine.worker((order, apply, twice)).await;
    engine.steps.wait_for_log("attempt 2 for one", 2).await;
    engine.steps.open("second");
    run.output().await.unwrap_err();
    assert!(engine.view(run.id()).await.marks.is_compensated());
}

#[workflow]
async fn waits(ctx: Context) -> Result<(), Error> {
    ctx.step(apply, "one").undo(revert).await?;
    ctx.hook::<()>("never").await
}

async fn a_deadline_does_not_end_a_run_without_its_compensations(engine: TestEngine) {
    let worker = engine.worker((waits, apply, revert)).await;
    let in_time = engine.client.start(waits, ()).deadline("10s").await.unwrap();
    engine.settle().await;
    engine.advance("10s").await;
    assert!(in_time.output().await.unwrap_err().message().contains("its deadline"));
    assert!(engine.view(in_time.id()).await.marks.is_compensated());
    let late = engine.client.start(waits, ()).deadline("10s").await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    // Nobody has the code of the workflow, but its step is there.
    let _other = engine.worker((apply, revert)).await;
    engine.advance("10m").await;
    assert!(late.output().await.unwrap_err().message().contains("no worker has its code"));
    let view = engine.view(late.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Cancelled, "compensated".to_owned()));
    assert_eq!((view.deadline, engine.steps.count("revert one: 3")), (None, 2));
}

async fn terminate_can_compensate_without_the_code_of_the_workflow(engine: TestEngine) {
    #[workflow(name = "waits")]
    async fn changed(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1d").await
    }
    let worker = engine.worker_of_build("old", (waits, apply, revert)).await;
    let run = engine.client.start(waits, ()).await.unwrap();
    let plain = engine.client.start(waits, ()).await.unwrap();
    engine.settle().await;
    worker.stop().await.unwrap();
    let nobody = run.terminate("the supplier is gone").compensating().await.unwrap();
    assert_eq!((nobody, engine.status(run.id()).await.is_final()), (Cancel::Requested, false));
    let _worker = engine.worker_of_build("new", (changed, apply, revert)).await;
    engine.settle().await;
    assert!(run.output().await.unwrap_err().message().starts_with("terminated: the supplier is gone"));
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Cancelled, "compensated".to_owned()));
    plain.terminate("at once").await.unwrap();
    engine.settle().await;
    assert_eq!(engine.steps.count("revert one: 3"), 1, "a plain terminate compensates for nothing");
    let none = engine.client.start(changed, ()).await.unwrap();
    engine.settle().await;
    none.terminate("nothing to undo").compensating().await.unwrap();
    engine.settle().await;
    assert_eq!(engine.view(none.id()).await.status, Status::Cancelled);
}

async fn terminate_ends_a_run_that_compensates(engine: TestEngine) {
    #[step]
    async fn never_done(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
        cx.state().log(format!("undo {}", undo.input));
        cx.state().wait_for_gate("never").await;
        Ok(())
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(never_done).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.worker((order, apply, never_done)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.steps.wait_for_log("undo one", 1).await;
    run.terminate("enough").await.unwrap();
    assert_eq!(run.output().await.unwrap_err().message(), "terminated: enough");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.marks.to_string()), (Status::Cancelled, String::new()));
    engine.steps.open("never");
}

async fn queued_steps_and_children_are_over_before_the_first_compensation(engine: TestEngine) {
    #[workflow]
    async fn child(ctx: Context) -> Result<(), Error> {
        let result = ctx.hook::<()>("never").await;
        ctx.shielded().note("child cleaned up").await?;
        result
    }
    #[workflow]
    async fn parent(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        let queued = ctx.step(charge, "bank").undo(refund).queue("money");
        let sleep = async {
            ctx.hook::<()>("go").await?;
            Err::<(), _>(Error::msg("sold out"))
        };
        try_join!(queued, ctx.child(child, ()), sleep)?;
        Ok(())
    }
    let _worker = engine.builder().register((parent, child)).register(steps!()).start().await.unwrap();
    let _serving = engine.builder().queues(["money"]).register(steps!()).start().await.unwrap();
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.steps.wait_for_log("charge begins", 1).await;
    engine.wait_for_view(run.id(), |view| view.waits.len() == 3).await;
    engine.client.send(run.id(), "go", &()).await.unwrap();
    engine.steps.wait_for_log("child cleaned up", 1).await;
    engine.wait_for_view(run.id(), |view| view.marks.is_compensating() && view.waits.len() == 1).await;
    engine.steps.open("bank");
    assert_eq!(run.output().await.unwrap_err().message(), "sold out");
    let logged = engine.steps.logged();
    let (first, later) = logged.split_at(logged.len() - 3);
    assert!(first.contains(&"child cleaned up".into()), "{logged:?}");
    assert_eq!(later, ["charge ends", "refund Some(\"payment\")", "revert one: 3"]);
}

async fn a_queued_compensation_runs_in_its_queue(engine: TestEngine) {
    #[step(queue = "money")]
    async fn far_refund(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
        cx.state().log(format!("far refund of {}", undo.input));
        Ok(())
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(far_refund).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.worker((order, apply, far_refund)).await;
    let run = engine.client.start(order, ()).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    let _serving = engine.builder().queues(["money"]).register(far_refund).start().await.unwrap();
    engine.settle().await;
    run.output().await.unwrap_err();
    assert_eq!(engine.steps.count("far refund of one"), 1);
    assert!(engine.view(run.id()).await.marks.is_compensated());
}

async fn what_was_kept_is_not_compensated(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        ctx.keep();
        ctx.step(apply, "three").undo(revert).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.builder().register(order).register(steps!()).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    run.output().await.unwrap_err();
    assert_eq!(engine.steps.logged()[2..], ["revert three: 5"]);
    let history = engine.history(run.id()).await;
    assert!(history.contains("2 compensations_kept 1"), "{history}");
}

async fn a_saga_compensates_and_the_run_continues(engine: TestEngine) {
    #[workflow]
    async fn travel(ctx: Context) -> Result<String, Error> {
        ctx.step(apply, "outside").undo(revert).await?;
        let booked = ctx.saga(async |ctx| {
            ctx.step(apply, "flight").undo(revert).await?;
            let inner = ctx.saga(async |ctx| {
                ctx.step(apply, "car").undo(revert).await?;
                ctx.step(fail, "no car").await
            });
            assert!(inner.await.is_err());
            ctx.step(apply, "stubborn").undo(revert).await?;
            ctx.step(fail, "no hotel").await
        });
        let error = booked.await.unwrap_err();
        assert_eq!(error.failed_compensations().len(), 1);
        ctx.step(apply, "again").undo(revert).await?;
        Ok(error.message().to_owned())
    }
    let _worker = engine.builder().register(travel).register(steps!()).start().await.unwrap();
    let run = engine.client.start(travel, ()).await.unwrap();
    let output = run.output().await.unwrap();
    assert!(output.starts_with("no hotel (a compensation failed"), "{output}");
    let logged: Vec<_> = engine.steps.logged().into_iter().filter(|entry| entry.contains("revert")).collect();
    assert_eq!(logged, ["revert car: 3", "revert stubborn: 8", "revert flight: 6"]);
}

async fn a_saga_waits_for_a_step_in_progress(engine: TestEngine) {
    #[workflow]
    async fn travel(ctx: Context) -> Result<String, Error> {
        let error = ctx
            .saga(async |ctx| {
                try_join!(ctx.step(charge, "bank").undo(refund), ctx.step(fail, "no stock"))?;
                Ok(())
            })
            .await
            .unwrap_err();
        ctx.note("went on").await?;
        Ok(error.message().to_owned())
    }
    let worker = engine.builder().register(travel).register(steps!()).start().await.unwrap();
    let run = engine.client.start(travel, ()).await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("operation_cancelled")).await;
    assert_eq!(engine.steps.count("went on"), 0);
    engine.steps.open("bank");
    assert_eq!(run.output().await.unwrap(), "no stock");
    assert_eq!(engine.steps.logged()[2..], ["charge ends", "refund Some(\"payment\")", "went on"]);
    drop(worker);
}

async fn a_saga_that_is_dropped_leaves_its_compensations_to_the_run(engine: TestEngine) {
    #[workflow]
    async fn travel(ctx: Context) -> Result<(), Error> {
        let saga = ctx.saga(async |ctx| {
            ctx.step(apply, "flight").undo(revert).await?;
            ctx.hook::<()>("never").await
        });
        select! {
            booked = saga => booked,
            late = ctx.sleep("1h") => late,
        }?;
        Err(Error::msg("too late"))
    }
    let _worker = engine.builder().register(travel).register(steps!()).start().await.unwrap();
    let run = engine.client.start(travel, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap_err().message(), "too late");
    assert_eq!(engine.steps.logged(), ["apply flight", "revert flight: 6"]);
}

async fn a_compensation_is_retried_for_a_day(engine: TestEngine) {
    #[step]
    async fn closed(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
        cx.state().log("closed");
        Err(StepError::msg(format!("the office is closed: {}", undo.input)))
    }
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(closed).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.caching_builder().register((order, apply, closed)).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    engine.clock.run_until_idle().await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.failed_compensations().len(), 1);
    let view = engine.view(run.id()).await;
    let hours = view.ended_at.unwrap().since(view.created_at).as_secs_f64() / 3_600.0;
    assert!((24.0..27.0).contains(&hours), "{hours} hours");
    assert_eq!(engine.steps.count("closed"), 154);
}

async fn operations_show_compensations(engine: TestEngine) {
    #[workflow]
    async fn order(ctx: Context) -> Result<(), Error> {
        ctx.step(apply, "one").undo(revert).await?;
        ctx.step(apply, "stubborn").undo(revert).await?;
        Err(Error::msg("sold out"))
    }
    let _worker = engine.builder().register(order).register(steps!()).start().await.unwrap();
    let run = engine.client.start(order, ()).await.unwrap();
    run.output().await.unwrap_err();
    let operations = engine.client.operations(run.id()).await.unwrap();
    let shown: Vec<_> = operations.iter().map(|view| (view.kind, view.status, view.undoes)).collect();
    use OperationKind::{Compensation, Step};
    use OperationStatus::{Completed, Failed};
    let undoes = |op| Some(OpNumber(op));
    assert_eq!(
        shown,
        [
            (Step, Completed, None),
            (Compensation, Completed, undoes(0)),
            (Step, Completed, None),
            (Compensation, Failed, undoes(2)),
            (Step, Failed, undoes(3)),
            (Step, Completed, undoes(1)),
        ]
    );
    let events: Vec<_> = engine.turns(run.id()).await.into_iter().flat_map(|turn| turn.events).collect();
    assert!(events.iter().any(|event| matches!(event, Event::RunCompensating { .. })));
}
