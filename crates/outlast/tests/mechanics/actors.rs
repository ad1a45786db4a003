//! Who asked a run to stop, or its timers to end, is recorded in its history: its inbox forgets that with the message.

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{RunId, Undo};

use super::test_engine::{StepCalls, StepState, TestEngine, on_every_world};

on_every_world! {
    the_history_names_who_cancelled_a_run,
    the_history_names_who_terminated_a_run,
    the_history_names_who_woke_a_run,
    the_history_names_who_ended_a_run_that_compensates,
}

#[workflow]
async fn sleepy(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1d").await
}

/// The kinds of the events that record what was asked of a run, each with who asked.
async fn who_asked(engine: &TestEngine, run: RunId) -> Vec<(&'static str, Option<String>)> {
    let turns = engine.turns(run).await;
    let asked = turns.iter().flat_map(|turn| &turn.events).filter_map(|event| match event {
        Event::CancelRequested { actor, .. }
        | Event::RunTerminated { actor, .. }
        | Event::RunCompensating { actor, .. }
        | Event::TimerWoken { actor, .. } => Some((event.kind(), actor.as_deref().map(str::to_owned))),
        _ => None,
    });
    asked.collect()
}

fn by(kind: &'static str, actor: &str) -> Vec<(&'static str, Option<String>)> {
    vec![(kind, Some(actor.to_owned()))]
}

async fn the_history_names_who_cancelled_a_run(engine: TestEngine) {
    let ada = engine.client.acting_as("ada");
    // No worker is joined: the client ends the run.
    let pending = engine.client.start(sleepy, ()).await.unwrap();
    ada.cancel(pending.id(), "enough").await.unwrap();
    assert_eq!(who_asked(&engine, pending.id()).await, by("cancel_requested", "ada"));

    let _worker = engine.worker(sleepy).await;
    let [waiting, unnamed] = [(); 2].map(|()| engine.client.start(sleepy, ()));
    let (waiting, unnamed) = (waiting.await.unwrap(), unnamed.await.unwrap());
    let late = engine.client.start(sleepy, ()).deadline("1h").await.unwrap();
    engine.settle().await;
    ada.cancel(waiting.id(), "enough").await.unwrap();
    engine.client.acting_as("bob").cancel(waiting.id(), "me too").await.unwrap();
    unnamed.cancel("enough").await.unwrap();
    engine.run_to("2h").await;
    assert_eq!(who_asked(&engine, waiting.id()).await, by("cancel_requested", "ada"));
    for nobody in [unnamed.id(), late.id()] {
        assert_eq!(who_asked(&engine, nobody).await, [("cancel_requested", None)]);
    }
}

async fn the_history_names_who_terminated_a_run(engine: TestEngine) {
    #[workflow]
    async fn working(ctx: Context) -> Result<String, Error> {
        ctx.stoppable("work").await
    }
    let ada = engine.client.acting_as("ada");
    let worker = engine.worker((sleepy, working)).await;
    let waiting = engine.client.start(sleepy, ()).await.unwrap();
    let held = engine.client.start(working, ()).await.unwrap();
    let without_code = engine.client.start(sleepy, ()).await.unwrap();
    engine.steps.wait_for_log("began work", 1).await;
    ada.terminate(waiting.id(), "enough").await.unwrap();
    ada.terminate(held.id(), "enough").await.unwrap();
    engine.steps.wait_for_log("stopped work", 1).await;
    for run in [waiting.id(), held.id()] {
        engine.wait_for_view(run, |view| view.ended_at.is_some()).await;
        assert_eq!(who_asked(&engine, run).await, by("run_terminated", "ada"));
    }
    worker.stop().await.unwrap();
    let _other = engine.worker(working).await;
    ada.terminate(without_code.id(), "enough").await.unwrap();
    engine.settle().await;
    assert_eq!(who_asked(&engine, without_code.id()).await, by("run_terminated", "ada"));
}

async fn the_history_names_who_woke_a_run(engine: TestEngine) {
    let worker = engine.worker(sleepy).await;
    let run = engine.client.start(sleepy, ()).await.unwrap();
    engine.settle().await;
    engine.client.acting_as("ada").wake(run.id()).await.unwrap();
    engine.settle().await;
    run.output().await.unwrap();
    assert_eq!(who_asked(&engine, run.id()).await, by("timer_woken", "ada"));
    worker.stop().await.unwrap();
}

#[step]
async fn book(_word: String) -> Result<u32, StepError> {
    Ok(7)
}

#[step]
async fn unbook(cx: StepContext<StepState>, undo: Undo<String, u32>) -> Result<(), StepError> {
    cx.state().log(format!("unbooked {}", undo.input));
    Ok(())
}

#[workflow]
async fn travels(ctx: Context) -> Result<(), Error> {
    ctx.step(book, "hotel".to_owned()).undo(unbook).await?;
    ctx.sleep("1d").await
}

async fn the_history_names_who_ended_a_run_that_compensates(engine: TestEngine) {
    let ada = engine.client.acting_as("ada");
    let worker = engine.worker((travels, book, unbook)).await;
    let [here, elsewhere] = [(); 2].map(|()| engine.client.start(travels, ()));
    let (here, elsewhere) = (here.await.unwrap(), elsewhere.await.unwrap());
    engine.settle().await;
    ada.terminate(here.id(), "the supplier is gone").compensating().await.unwrap();
    engine.settle().await;
    assert_eq!(who_asked(&engine, here.id()).await, by("run_compensating", "ada"));
    worker.stop().await.unwrap();
    // A worker that has the code of the steps alone.
    let _other = engine.worker((book, unbook)).await;
    ada.terminate(elsewhere.id(), "the supplier is gone").compensating().await.unwrap();
    engine.settle().await;
    assert_eq!(who_asked(&engine, elsewhere.id()).await, by("run_compensating", "ada"));
    assert_eq!(engine.steps.count("unbooked hotel"), 2);
}
