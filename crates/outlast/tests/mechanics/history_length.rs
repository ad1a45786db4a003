//! The length of a history: a run at the limit is cancelled, and has room to clean up.

use outlast::core::limits::{HISTORY_EVENTS_MAX, HISTORY_ROOM_EVENTS};
use outlast::prelude::*;
use outlast::{ErrorKind, Status};

use super::test_engine::{StepCalls, TestEngine, on_every_world};

on_every_world! {
    a_history_at_the_limit_cancels_its_run_which_cleans_up,
    a_run_that_does_not_stop_at_the_limit_fails,
    a_long_history_below_the_limit_continues_after_a_crash,
}

/// `run_started`, and the timer that it waits for.
const ELSE: u64 = 2;

#[workflow]
async fn chatters(ctx: Context, events: u64) -> Result<u64, Error> {
    for number in 0..events {
        ctx.record("number", || number)?;
    }
    if let Err(error) = ctx.sleep("1h").await {
        ctx.shielded().note("cleaned up").await?;
        return Err(error);
    }
    Ok(events)
}

async fn a_history_at_the_limit_cancels_its_run_which_cleans_up(engine: TestEngine) {
    let _worker = engine.caching_builder().register(chatters).start().await.unwrap();
    let run = engine.client.start(chatters, HISTORY_EVENTS_MAX - ELSE).await.unwrap();
    let error = run.output().await.unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert!(error.to_string().contains("its history has 100000 events, the limit is 100000"), "{error}");
    assert_eq!(engine.steps.count("cleaned up"), 1);
    assert_eq!(engine.status(run.id()).await, Status::Cancelled);
}

async fn a_run_that_does_not_stop_at_the_limit_fails(engine: TestEngine) {
    #[workflow]
    async fn babbles(ctx: Context) -> Result<(), Error> {
        for _ in 0..HISTORY_EVENTS_MAX / 2_000 {
            for number in 0..4_000 {
                ctx.record("number", || number)?;
            }
            // It ignores the cancel.
            let _ = ctx.shielded().sleep("1s").await;
        }
        Ok(())
    }
    let _worker = engine.caching_builder().register(babbles).start().await.unwrap();
    let run = engine.client.start(babbles, ()).await.unwrap();
    engine.run_to("1h").await;
    let error = run.output().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Limit, "{error}");
    assert!(error.to_string().contains("split the work into children"), "{error}");
    let turns = engine.turns(run.id()).await;
    let last = turns.last().unwrap();
    let length = last.seq + last.events.len() as u64;
    let most = HISTORY_EVENTS_MAX + HISTORY_ROOM_EVENTS;
    assert!((most..most + 5_000).contains(&length), "{length}");
}

async fn a_long_history_below_the_limit_continues_after_a_crash(engine: TestEngine) {
    let worker = engine.caching_builder().register(chatters).start().await.unwrap();
    let events = HISTORY_EVENTS_MAX - ELSE - 10;
    let run = engine.client.start(chatters, events).await.unwrap();
    engine.settle().await;
    engine.crash(worker);
    let _worker = engine.caching_builder().register(chatters).start().await.unwrap();
    engine.run_to("1h").await;
    assert_eq!(run.output().await.unwrap(), events);
}
