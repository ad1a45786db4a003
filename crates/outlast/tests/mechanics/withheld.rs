//! Attempts that have not begun when their run is told to stop: they never begin, and the record says that nobody
//! attempted their steps.

use outlast::core::{Event, OpNumber};
use outlast::prelude::*;

use super::faulty::Call;
use super::rig::{Desk, Rig, on_every_world};

on_every_world! {
    an_attempt_that_waits_for_its_turn_does_not_begin_after_the_cancel,
    an_attempt_at_a_shielded_step_begins_after_the_cancel,
    a_queued_step_whose_cancel_is_in_its_inbox_does_not_begin,
}

/// One at a time, until the test opens the gate of this name.
#[step(limit = 1)]
async fn narrow(cx: StepContext<Desk>, gate: String) -> String {
    cx.state().leave(format!("began {gate}"));
    cx.state().passed(&gate).await;
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
async fn ended_by_cancel(rig: &Rig, run: outlast::RunId) -> Vec<OpNumber> {
    let turns = rig.turns(run).await;
    let ends = turns.iter().flat_map(|turn| &turn.events).find_map(|event| match event {
        Event::CancelRequested { ends, .. } => Some(ends.clone()),
        _ => None,
    });
    ends.unwrap()
}

async fn an_attempt_that_waits_for_its_turn_does_not_begin_after_the_cancel(rig: Rig) {
    let _worker = rig.worker((two, narrow)).await;
    let run = rig.client.start(two, ()).await.unwrap();
    rig.desk.until("began first", 1).await;
    let commit = rig.faults.hold(Call::Commit);
    run.cancel("enough").await.unwrap();
    commit.arrived().await;
    // The cancel is delivered, and not committed yet: now there is room for the second attempt.
    rig.desk.open("first");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.desk.count("began second"), 0);
    commit.open();
    assert_eq!(run.output().await.unwrap(), "first, cancelled: enough");
    assert_eq!(rig.desk.count("began second"), 0);
    assert_eq!(ended_by_cancel(&rig, run.id()).await, [OpNumber(1)]);
}

async fn an_attempt_at_a_shielded_step_begins_after_the_cancel(rig: Rig) {
    #[workflow]
    async fn spares(ctx: Context) -> Result<String, Error> {
        let first = ctx.step(narrow, "first".to_owned());
        let spared = ctx.shielded().step(narrow, "spared".to_owned());
        let (first, spared) = join!(first, spared);
        Ok(format!("{}, {}", first?, spared?))
    }
    let _worker = rig.worker((spares, narrow)).await;
    let run = rig.client.start(spares, ()).await.unwrap();
    rig.desk.until("began first", 1).await;
    run.cancel("enough").await.unwrap();
    rig.until_history(run.id(), |history| history.contains("cancel_requested")).await;
    assert_eq!(rig.desk.count("began spared"), 0);
    rig.desk.open("first");
    rig.desk.open("spared");
    assert_eq!(run.output().await.unwrap(), "first, spared");
    assert_eq!(ended_by_cancel(&rig, run.id()).await, []);
}

async fn a_queued_step_whose_cancel_is_in_its_inbox_does_not_begin(rig: Rig) {
    #[workflow]
    async fn away(ctx: Context) -> Result<String, Error> {
        ctx.step(narrow, "far".to_owned()).queue("far").await
    }
    let _worker = rig.worker(away).await;
    let run = rig.client.start(away, ()).await.unwrap();
    rig.settle().await;
    run.cancel("enough").await.unwrap();
    rig.settle().await;
    let _far = rig.builder().register(narrow).queues(["far"]).start().await.unwrap();
    rig.clock.run_until_idle().await;
    assert!(run.output().await.unwrap_err().is_cancelled());
    assert_eq!(rig.desk.count("began far"), 0);
}
