//! Input checks: a refused start writes nothing.

use outlast::prelude::*;
use outlast::{ErrorKind, Status, StuckReason};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::test_engine::{TestEngine, on_every_world};

on_every_world! {
    an_input_that_its_workflow_refuses_is_not_written,
    a_handle_refuses_as_well,
    a_start_with_json_is_the_same_as_a_typed_start,
    json_that_is_no_input_is_refused_where_the_code_is,
    json_for_unknown_code_waits_for_it,
    unchecked_json_that_cannot_be_decoded_makes_its_run_stuck,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    id: u64,
    cents: i64,
}

#[derive(Debug, thiserror::Error)]
#[error("order {0} costs nothing")]
struct Free(u64);

#[workflow(check = check_order)]
async fn sell(_ctx: Context, order: Order, times: u32) -> Result<i64, Error> {
    Ok(order.cents * i64::from(times))
}

fn check_order(order: &Order, times: &u32) -> Result<(), Free> {
    if order.cents > 0 && *times > 0 { Ok(()) } else { Err(Free(order.id)) }
}

/// Asserts that nothing was started.
async fn assert_nothing_is_written(engine: &TestEngine) {
    assert_eq!(engine.client.newest(&[], 10).await.unwrap().len(), 0);
}

async fn an_input_that_its_workflow_refuses_is_not_written(engine: TestEngine) {
    let _worker = engine.worker(sell).await;
    let error = engine.client.start(sell, (Order { id: 7, cents: 0 }, 1)).key("7").await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, "order 7 costs nothing"));
    assert_nothing_is_written(&engine).await;
    let run = engine.client.start(sell, (Order { id: 7, cents: 21 }, 2)).key("7").await.unwrap();
    assert_eq!(run.output().await.unwrap(), 42);
}

async fn a_handle_refuses_as_well(engine: TestEngine) {
    const SELL: Workflow<(Order, u32), i64> = Workflow::new("sell").check(|(order, _)| match order.cents {
        0.. => Ok(()),
        _ => Err(Error::msg("a gift").with_code("gift").with_details(order.id)),
    });
    let error = engine.client.start(SELL, (Order { id: 7, cents: -1 }, 1)).await.unwrap_err();
    assert_eq!((error.kind(), error.code(), error.details()), (ErrorKind::Invalid, Some("gift"), Some(7)));
    assert_nothing_is_written(&engine).await;
    let double =
        async |_ctx: Context, (order, times): (Order, u32)| Ok::<_, Error>(order.cents * i64::from(times));
    let _worker = engine.builder().workflow(SELL, double).start().await.unwrap();
    let error = engine.client.start_json("sell", 1, json!([{ "id": 7, "cents": -1 }, 1])).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, "a gift"));
    assert_nothing_is_written(&engine).await;
}

async fn a_start_with_json_is_the_same_as_a_typed_start(engine: TestEngine) {
    let _worker = engine.worker(sell).await;
    let text = r#" [ {"id": 7, "cents": 21}, 2 ] "#;
    let run =
        engine.client.start_json("sell", 1, text).key("order-7").header("by", "a caller").await.unwrap();
    assert_eq!(run.output().await.unwrap(), 42);
    let typed = engine.client.start(sell, (Order { id: 7, cents: 21 }, 2)).key("order-7").await.unwrap();
    assert_eq!((typed.id(), typed.is_new()), (run.id(), false));
}

async fn json_that_is_no_input_is_refused_where_the_code_is(engine: TestEngine) {
    let _worker = engine.worker(sell).await;
    for (input, reason) in [
        (r#"[{"id": 7}, 1]"#, "the input of workflow `sell` does not fit: "),
        (r#"{"id": 7, "cents": 1}"#, "the input of workflow `sell` does not fit: "),
        (r#"[{"id": 7, "cents": 0}, 1]"#, "order 7 costs nothing"),
        (r#"[{"id": 7, "cents": "#, "the input is not JSON: "),
    ] {
        let error = engine.client.start_json("sell", 1, input).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{input}");
        assert!(error.message().starts_with(reason), "{error}");
    }
    assert_nothing_is_written(&engine).await;
}

async fn json_for_unknown_code_waits_for_it(engine: TestEngine) {
    let _worker = engine.worker(sell).await;
    let run = engine.client.start_json("sell", 2, json!(5)).await.unwrap();
    engine.settle().await;
    assert_eq!(engine.status(run.id()).await, Status::Pending);
    let error = engine.client.start_json("", 1, json!(5)).await.unwrap_err();
    assert!(error.message().starts_with("the workflow's name is empty"), "{error}");
}

async fn unchecked_json_that_cannot_be_decoded_makes_its_run_stuck(engine: TestEngine) {
    let run = engine.client.start_json("sell", 1, json!("a chair")).await.unwrap();
    let _worker = engine.worker(sell).await;
    engine.settle().await;
    let stuck = engine.stuck(run.id()).await;
    assert_eq!(stuck.reason, StuckReason::Undecodable);
    assert!(
        stuck.message.starts_with("the recorded input of workflow `sell` cannot be read as "),
        "{}",
        stuck.message
    );
}
