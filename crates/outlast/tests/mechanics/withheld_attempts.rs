//! Attempts that have not begun when their run is cancelled: they never begin, and the history records that their steps
//! were not attempted.

use outlast::core::{Event, OpNumber};
use outlast::prelude::*;

use super::faulty_world::Call;
use super::test_engine::{StepState, TestEngine, on_every_world};

on_every_world! {
    an_attempt_that_waits_for_its_turn_does_not_begin_after_the_cancel,
    an_attempt_at_a_shielded_step_begins_after_the_cancel,
    a_queued_step_whose_cancel_is_in_its_inbox_does_not_begin,
}

/// One attempt at a time, until the test opens the gate of this name.
#[step(limit = 1)]
async fn narrow(cx: StepContext<StepState>, gate: String) -> String {
    cx.state().log(format!("began {gate}"));
    cx.state().wait_for_gate(&gate).await;
    gate
}

#[workflow]
async fn two(ctx: Context) -> Result<String, Error> {
    let step = |gate: &str| ctx.step(narrow, gate.to_owned());
    let (first, second) = join!(step("first"), step("second"));
    let text = |ended: Result<String, Error>| ended.unwrap_or_else(|error| error.message().to_owned());
    Ok(format!("{}, {}", text(first), text(second)))
}

/// The operations that the cancel ended, as recorded.
async fn ended_by_cancel(engine: &TestEngine, run: outlast::RunId) -> Vec<OpNumber> {
    let turns = engine.turns(run).await;
    let ends = turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
        Event::CancelRequested { ends, .. } => Some(ends.clone()),
        _ => None,
    });
    ends.unwrap()
}

async fn an_attempt_that_waits_for_its_turn_does_not_begin_after_the_cancel(engine: TestEngine) {
    let _worker = engine.worker((two, narrow)).await;
    let run = engine.client.start(two, ()).await.unwrap();
    engine.steps.wait_for_log("began first", 1).await;
    let commit = engine.faults.hold(Call::Commit);
    run.cancel("enough").await.unwrap();
    commit.wait_for_call().await;
    // The cancel is delivered, but not committed yet: now the limit allows the second attempt.
    engine.steps.open("first");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.steps.count("began second"), 0);
    commit.open();
    assert_eq!(run.output().await.unwrap(), "first, cancelled: enough");
    assert_eq!(engine.steps.count("began second"), 0);
    assert_eq!(ended_by_cancel(&engine, run.id()).await, [OpNumber(1)]);
}

async fn an_attempt_at_a_shielded_step_begins_after_the_cancel(engine: TestEngine) {
    #[workflow]
    async fn spares(ctx: Context) -> Result<String, Error> {
        let first = ctx.step(narrow, "first".to_owned());
        let spared = ctx.shielded().step(narrow, "spared".to_owned());
        let (first, spared) = join!(first, spared);
        Ok(format!("{}, {}", first?, spared?))
    }
    let _worker = engine.worker((spares, narrow)).await;
    let run = engine.client.start(spares, ()).await.unwrap();
    engine.steps.wait_for_log("began first", 1).await;
    run.cancel("enough").await.unwrap();
    engine.wait_for_history(run.id(), |history| history.contains("cancel_requested")).await;
    assert_eq!(engine.steps.count("began spared"), 0);
    engine.steps.open("first");
    engine.steps.open("spared");
    assert_eq!(run.output().await.unwrap(), "first, spared");
    assert_eq!(ended_by_cancel(&engine, run.id()).await, []);
}

async fn a_queued_step_whose_cancel_is_in_its_inbox_does_not_begin(engine: TestEngine) {
    #[workflow]
    async fn away(ctx: Context) -> Result<String, Error> {
        ctx.step(narrow, "far".to_owned()).queue("far").await
    }
    let _worker = engine.worker(away).await;
    let run = engine.client.start(away, ()).await.unwrap();
    engine.settle().await;
    run.cancel("enough").await.unwrap();
    engine.settle().await;
    let _far = engine.builder().register(narrow).queues(["far"]).start().await.unwrap();
    engine.clock.run_until_idle().await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(engine.steps.count("began far"), 0);
}
