//! Step keys that are computed from the input are the same in every run.

use outlast::prelude::*;
use serde::{Deserialize, Serialize};

use super::test_engine::{StepState, TestEngine, on_every_world};

on_every_world! {
    a_unique_key_is_the_same_in_every_run_and_attempt,
    a_key_is_made_of_the_oldest_name,
    a_look_sees_the_same_key,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    note: String,
}

#[step(unique = "order.id, action", initial = "1s")]
async fn notify(cx: StepContext<StepState>, order: Order, _action: String) -> Result<String, StepError> {
    cx.state().log(&order.note);
    if cx.attempt() == 1 { Err(StepError::msg(cx.key())) } else { Ok(cx.key()) }
}

#[workflow]
async fn notifying(ctx: Context, order: Order, action: String) -> Result<String, Error> {
    ctx.step(notify, (order, action)).await
}

async fn a_unique_key_is_the_same_in_every_run_and_attempt(engine: TestEngine) {
    let _worker = engine.worker((notifying, notify)).await;
    let mut keys = Vec::new();
    for (id, note, action) in
        [(7, "one", "paid"), (7, "two", "paid"), (7, "three", "sent"), (8, "four", "paid")]
    {
        let order = Order { id, note: note.to_owned() };
        let run = engine.client.start(notifying, (order, action.to_owned())).await.unwrap();
        engine.settle().await;
        engine.advance("1s").await;
        keys.push(run.output().await.unwrap());
        // The error of the first attempt contains its key.
        let turns = format!("{:?}", engine.turns(run.id()).await);
        assert!(turns.contains(&format!("{:?}", keys.last().unwrap())), "{turns}");
    }
    assert_eq!(
        keys,
        [r#"notify:[7,"paid"]"#, r#"notify:[7,"paid"]"#, r#"notify:[7,"sent"]"#, r#"notify:[8,"paid"]"#]
    );
}

async fn a_key_is_made_of_the_oldest_name(engine: TestEngine) {
    #[step(unique = "id", was = ["inform", "tell"])]
    async fn announce(cx: StepContext, id: u64) -> String {
        format!("{} of {id}", cx.key())
    }
    #[workflow]
    async fn announcing(ctx: Context) -> Result<String, Error> {
        ctx.step(announce, 5).await
    }
    let _worker = engine.worker((announcing, announce)).await;
    let run = engine.client.start(announcing, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "tell:[5] of 5");
}

async fn a_look_sees_the_same_key(engine: TestEngine) {
    #[step(unique = "id", reconcile = find, initial = "1s")]
    async fn book(cx: StepContext, id: u64) -> Result<String, StepError> {
        Err(StepError::msg(format!("{id} {}", cx.key())))
    }
    async fn find(cx: StepContext, _id: u64) -> Result<Option<String>, StepError> {
        Ok(Some(cx.key()))
    }
    #[workflow]
    async fn booking(ctx: Context) -> Result<String, Error> {
        ctx.step(book, 5).await
    }
    let _worker = engine.worker((booking, book)).await;
    let run = engine.client.start(booking, ()).await.unwrap();
    engine.settle().await;
    engine.advance("1s").await;
    assert_eq!(run.output().await.unwrap(), "book:[5]");
}
