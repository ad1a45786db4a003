//! Payloads keep all their digits, and are shown as far as is wanted.

use serde_json::{Value, json};

use crate::common::Api;

const LARGE: &str = r#"{"id":1970670598291982290,"huge":123456789012345678901234567890,"exact":1.10}"#;

/// Check 31.
#[tokio::test]
async fn large_numbers_pass_through_unchanged() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let hook = format!("/api/runs/{id}/hooks/decision");
    api.post_text(&hook, &format!(r#"{{"payload": {LARGE}}}"#)).await.expect(200);
    api.output(&id).await;
    let events = api.get(&format!("/api/runs/{id}/events?payloads=full")).await;
    assert!(events.text.contains(LARGE), "{}", events.text);
    let export = api.get(&format!("/api/runs/{id}/export")).await;
    assert!(export.text.contains(LARGE), "{}", export.text);

    let nap = format!(r#"{{"workflow":"nap","input":{LARGE}}}"#);
    let nap = api.post_text("/api/runs", &nap).await.expect(201).json()["id"].as_str().unwrap().to_owned();
    let events = api.get(&format!("/api/runs/{nap}/events")).await;
    assert!(events.text.contains(LARGE), "{}", events.text);
    api.stop().await;
}

#[tokio::test]
async fn payloads_are_left_out_previewed_or_shown() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let text = "é".repeat(4_000);
    api.post(&format!("/api/runs/{id}/hooks/decision"), json!({ "payload": text })).await.expect(200);
    api.output(&id).await;
    let output = async |amount: &str| {
        let page = api.get(&format!("/api/runs/{id}/operations?payloads={amount}")).await.expect(200).json();
        page["items"][0]["output"].clone()
    };
    let none = output("none").await;
    assert_eq!(none, json!({ "codec": "json", "bytes": 8_002, "omitted": true }));
    let preview = output("preview").await;
    assert!(preview["preview"].as_str().unwrap().starts_with("\"éé") && preview["json"].is_null());
    assert_eq!((preview["preview"].as_str().unwrap().len(), &preview["omitted"]), (4_095, &json!(true)));
    assert_eq!(output("full").await["json"], json!(text));
    let event = async |amount: &str| {
        let page =
            api.get(&format!("/api/runs/{id}/events?kind=hook_received&payloads={amount}")).await.json();
        page["items"][0].clone()
    };
    assert_eq!(event("preview").await["omitted"], true);
    assert_eq!(event("full").await["data"]["payload"], json!(text));
    api.get(&format!("/api/runs/{id}/events?payloads=all")).await.expect(400).problem();
    api.stop().await;
}
