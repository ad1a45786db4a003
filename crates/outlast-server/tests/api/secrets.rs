//! Secrets in payloads are used, and never shown.

use outlast::Secret;
use outlast::prelude::*;
use outlast_api::ProblemCode;
use outlast_server::Config;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{Api, sqlite};

/// What must not be in any response.
const CANARY: &str = "4242-canary";

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Payment {
    card: Secret<String>,
    cents: u64,
}

/// The bank returns the number of the card, and a token.
#[step(attempts = 2, initial = "1ms")]
async fn charge(payment: Payment) -> Result<Secret<String>, StepError> {
    assert_eq!(payment.card.expose(), CANARY, "the step gets the value");
    Ok(payment.card)
}

const PIN: Hook<Secret<String>, Secret<String>> = Hook::new("pin");

#[workflow]
async fn pay(ctx: Context, payment: Payment) -> Result<Payment, Error> {
    let card = ctx.step(charge, &payment).await?;
    let message = ctx.hook(PIN).received().await?;
    assert_eq!(message.payload.expose(), CANARY);
    PIN.reply(&message, &message.payload)?;
    ctx.publish(&payment);
    ctx.stream("log").write(&payment);
    let _: Secret<String> = ctx.record("card", || card)?;
    Ok(payment)
}

fn secret() -> Value {
    json!({ "outlast:secret": CANARY })
}

async fn api() -> Api {
    let (world, folder) = sqlite().await;
    let builder = Worker::builder(world.clone()).register((pay, charge));
    Api::of(builder, world, Config::local()).await.keeping(folder)
}

#[tokio::test]
async fn a_secret_reaches_the_workflow_and_no_response() {
    let api = api().await;
    let run = api.start("pay", json!({ "card": secret(), "cents": 1970670598291982290_u64 })).await;
    let hook = format!("/api/runs/{run}/hooks/pin");
    let answer = api.post(&hook, json!({ "payload": secret(), "reply_within": "20s" })).await.expect(200);
    assert_eq!(answer.json()["reply"], "•••");
    assert_eq!(
        api.output(&run).await["output"]["json"],
        json!({ "card": "•••", "cents": 1970670598291982290_u64 })
    );
    let mut shown = String::new();
    for path in [
        "",
        "/operations?payloads=full",
        "/operations/0",
        "/operations/1",
        "/events?payloads=full",
        "/export",
        "/explain",
        "/output",
        "/state",
        "/streams/log",
        "/streams/log/live",
        "/live",
    ] {
        let text = api.get(&format!("/api/runs/{run}{path}")).await.expect(200).text;
        assert!(!text.contains(CANARY), "{path}: {text}");
        shown += &text;
    }
    // Of the input, the step, the hook, the reply, the value, the state, the chunk and the output.
    assert!(shown.matches("•••").count() > 12, "{shown}");
    api.stop().await;
}

/// What is not marked would be stored as it is, and shown.
#[tokio::test]
async fn a_secret_that_is_not_marked_is_refused() {
    let api = api().await;
    let start = json!({ "workflow": "pay", "input": { "card": CANARY, "cents": 1 } });
    let refused = api.post("/api/runs", start).await.expect(422);
    assert!(!refused.text.contains(CANARY), "{refused:?}");
    let detail = refused.refused(ProblemCode::InputInvalid).detail.clone();
    assert!(detail.contains("outlast:secret"), "{detail}");
    api.stop().await;
}

#[tokio::test]
async fn a_schedule_that_is_replaced_as_it_was_shown_keeps_its_secret() {
    let api = api().await;
    let input = json!({ "card": secret(), "cents": 1 });
    let created = json!({ "id": "monthly", "every": "1h", "workflow": "pay", "input": input });
    api.post("/api/schedules", created).await.expect(201);
    let schedule = api.get("/api/schedules/monthly").await.expect(200);
    assert!(!schedule.text.contains(CANARY), "{}", schedule.text);
    let mut definition = schedule.json()["definition"].clone();
    definition["every"] = json!("2h");
    let mut put = crate::common::request(
        axum::http::Method::PUT,
        "/api/schedules/monthly",
        Some(definition.to_string()),
    );
    put.headers_mut().insert("if-match", schedule.header("etag").parse().unwrap());
    api.send(put).await.expect(200);
    api.post("/api/schedules/monthly/trigger", json!({})).await.expect(200);
    let run = loop {
        let firings = api.get("/api/schedules/monthly/firings").await.json();
        if let Some(run) = firings["items"][0]["run"]["id"].as_str() {
            break run.to_owned();
        }
        tokio::task::yield_now().await;
    };
    // The step has got the value, otherwise the hook would not be open.
    api.post(&format!("/api/runs/{run}/hooks/pin"), json!({ "payload": secret() })).await.expect(200);
    assert_eq!(api.output(&run).await["status"], "completed");
    let of_schedule = schedule.json()["run"].as_str().unwrap().to_owned();
    for path in ["events?payloads=full", "export", "state"] {
        let text = api.get(&format!("/api/runs/{of_schedule}/{path}")).await.expect(200).text;
        assert!(!text.contains(CANARY), "{path}: {text}");
    }
    api.stop().await;
}
