//! Shields: a cancel or deadline ends only operations that are not shielded.

use outlast::prelude::*;
use outlast::{Cancel, Status, Wait};

use super::queued::{serving, step_run};
use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    no_attempt_begins_after_the_deadline,
    a_child_that_takes_too_long_stops_after_its_current_step,
    a_cancel_does_not_reach_a_shielded_step,
    a_shielded_step_is_attempted_again_after_the_deadline,
    a_cancel_does_not_reach_a_shielded_child_or_queued_step,
    a_shielded_wait_continues_after_a_crash,
    a_shield_does_not_protect_from_terminate,
    a_tag_added_to_code_does_not_disturb_runs_under_way,
    a_deadline_that_was_delivered_makes_a_cancel_a_repetition,
}

/// Takes 300 milliseconds.
#[step]
async fn takes_a_while(cx: StepContext<StepState>, number: u32) -> u32 {
    cx.state().log("attempt");
    cx.state().sleep("300ms").await;
    number
}

#[workflow]
async fn ten_steps(ctx: Context) -> Result<(), Error> {
    for number in 0..10 {
        if let Err(error) = ctx.step(takes_a_while, number).await {
            ctx.shielded().note("cleaned up").await?;
            return Err(error);
        }
    }
    Ok(())
}

/// A worker whose session outlasts the steps.
async fn patient_worker<R: outlast::Register<StepState, M>, M>(engine: &TestEngine, code: R) -> Worker {
    engine.builder().session_time("1h").register(code).start().await.unwrap()
}

async fn no_attempt_begins_after_the_deadline(engine: TestEngine) {
    let _worker = patient_worker(&engine, (ten_steps, takes_a_while)).await;
    let run = engine.client.start(ten_steps, ()).deadline("500ms").await.unwrap();
    engine.steps.wait_for_log("attempt", 1).await;
    engine.clock.advance("300ms");
    engine.steps.wait_for_log("attempt", 2).await;
    engine.clock.advance("200ms");
    engine.wait_for_history(run.id(), |history| history.contains("cancel_requested")).await;
    engine.clock.advance("100ms");
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled() && error.to_string().contains("its deadline"), "{error}");
    let view = engine.view(run.id()).await;
    assert_eq!((view.status, view.ended_at), (Status::Cancelled, Some(engine.time_after_begin("600ms"))));
    assert_eq!(engine.steps.times("attempt"), ["0s", "300ms"]);
    assert_eq!(engine.steps.times("cleaned up"), ["600ms"]);
}

async fn a_child_that_takes_too_long_stops_after_its_current_step(engine: TestEngine) {
    #[workflow]
    async fn parent(ctx: Context) -> Result<String, Error> {
        let error = ctx.child(ten_steps, ()).timeout("500ms").await.unwrap_err();
        assert!(error.is_timeout(), "{error}");
        // The parent itself was not cancelled.
        ctx.note("parent went on").await
    }
    let _worker = patient_worker(&engine, (parent, ten_steps, takes_a_while)).await;
    let run = engine.client.start(parent, ()).await.unwrap();
    engine.steps.wait_for_log("attempt", 1).await;
    let Wait::Child { run: child, .. } = engine.view(run.id()).await.waits.remove(0) else { panic!() };
    engine.clock.advance("300ms");
    engine.steps.wait_for_log("attempt", 2).await;
    engine.clock.advance("200ms");
    run.output().await.unwrap();
    engine.wait_for_history(child, |history| history.contains("cancel_requested")).await;
    engine.clock.advance("100ms");
    engine.wait_for_status(child, Status::Cancelled).await;
    assert_eq!(engine.steps.times("attempt"), ["0s", "300ms"]);
    assert_eq!(engine.steps.times("cleaned up"), ["600ms"]);
}

async fn a_cancel_does_not_reach_a_shielded_step(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<String, Error> {
        let (kept, told) = join!(ctx.shielded().stoppable("kept"), ctx.stoppable("told"));
        Ok(format!("{} {}", kept?, told?))
    }
    let _worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).await.unwrap();
    engine.steps.wait_for_log("began kept", 1).await;
    engine.steps.wait_for_log("began told", 1).await;
    run.cancel("enough").await.unwrap();
    engine.steps.wait_for_log("stopped told", 1).await;
    engine.steps.open("kept");
    assert_eq!(run.output().await.unwrap(), "done stopped");
    assert_eq!(engine.status(run.id()).await, Status::Completed);
}

async fn a_shielded_step_is_attempted_again_after_the_deadline(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<u32, Error> {
        ctx.shielded().flaky(2).await
    }
    let _worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).deadline("500ms").await.unwrap();
    engine.clock.run_until_idle().await;
    assert_eq!(run.output().await.unwrap(), 3);
    assert_eq!(engine.steps.times("flaky"), ["0s", "1s", "3s"]);
    let history = engine.history(run.id()).await;
    assert!(history.contains("cancel_requested its deadline"), "{history}");
}

async fn a_cancel_does_not_reach_a_shielded_child_or_queued_step(engine: TestEngine) {
    #[workflow]
    async fn child(ctx: Context) -> Result<u32, Error> {
        ctx.hook::<u32>("go").await
    }
    #[workflow]
    async fn careful(ctx: Context) -> Result<String, Error> {
        let ctx = ctx.shielded();
        let (step, child) = join!(ctx.stoppable("work").queue("gpu"), ctx.child(child, ()));
        Ok(format!("{} {}", step?, child?))
    }
    let _there = serving(&engine, "gpu").await;
    let _worker = engine.worker((careful, child)).await;
    let run = engine.client.start(careful, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    run.cancel("enough").await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("cancel_requested")).await;
    let step = step_run(&engine, run.id(), 0).await;
    let child = engine.client.operations(run.id()).await.unwrap()[1].child.unwrap();
    engine.send(child, "go", 7).await;
    engine.steps.open("work");
    assert_eq!(run.output().await.unwrap(), "done 7");
    for told in [step, child] {
        assert!(!engine.history(told).await.contains("cancel_requested"));
    }
}

async fn a_shielded_wait_continues_after_a_crash(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<u32, Error> {
        let (kept, lost) = join!(ctx.shielded().hook::<u32>("kept"), ctx.hook::<u32>("lost"));
        assert!(lost.is_err());
        kept
    }
    let worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.worker(careful).await;
    engine.settle().await;
    engine.send(run.id(), "kept", 7).await;
    assert_eq!(run.output().await.unwrap(), 7);
}

async fn a_shield_does_not_protect_from_terminate(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<String, Error> {
        ctx.shielded().stoppable("work").await
    }
    let _worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    run.terminate("enough").await.unwrap();
    engine.steps.wait_for_log("stopped work", 1).await;
    assert!(run.output().await.unwrap_err().is_cancelled());
}

async fn a_tag_added_to_code_does_not_disturb_runs_under_way(engine: TestEngine) {
    #[workflow(name = "import")]
    async fn before(ctx: Context) -> Result<(), Error> {
        ctx.sleep("1h").await?;
        ctx.hook::<u32>("go").await?;
        ctx.sleep("1h").await
    }
    #[workflow(name = "import")]
    async fn after(ctx: Context) -> Result<(), Error> {
        ctx.tag("phase", "first")?;
        ctx.sleep("1h").await?;
        ctx.tag("phase", "second")?;
        ctx.hook::<u32>("go").await?;
        ctx.tag("done", "yes")?;
        ctx.sleep("1h").await
    }
    let worker = engine.worker_of_build("before", before).await;
    let run = engine.client.start(before, ()).await.unwrap();
    engine.run_to("1h").await;
    worker.stop().await.unwrap();
    let _worker = engine.worker_of_build("after", after).await;
    engine.send(run.id(), "go", 1).await;
    engine.settle().await;
    let tags = [("done".to_owned(), "yes".to_owned()), ("phase".to_owned(), "second".to_owned())];
    assert_eq!(engine.view(run.id()).await.tags, tags.into(), "also those of places that it had passed");
    engine.run_to("3h").await;
    run.output().await.unwrap();
    assert!(!engine.history(run.id()).await.contains("tags_set"));
}

async fn a_deadline_that_was_delivered_makes_a_cancel_a_repetition(engine: TestEngine) {
    #[workflow]
    async fn careful(ctx: Context) -> Result<u32, Error> {
        let error = ctx.sleep("1d").await.unwrap_err();
        ctx.shielded().hook::<u32>("clean").await?;
        Err(error)
    }
    let _worker = engine.worker(careful).await;
    let run = engine.client.start(careful, ()).deadline("1h").await.unwrap();
    engine.run_to("2h").await;
    assert_eq!(run.cancel("enough").await.unwrap(), Cancel::AlreadyRequested);
    engine.send(run.id(), "clean", 1).await;
    assert!(run.output().await.unwrap_err().to_string().contains("its deadline"));
}
