//! Payloads keep all their digits, and are shown as far as is wanted.

use axum::http::Method;
use outlast_api::{ProblemCode, Role};
use outlast_server::{AccessKey, AccessKeys, Config};
use serde_json::{Value, json};

use crate::common::{Api, request};

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

/// Callers below the role that sees payloads get none of them, whatever they ask for.
#[tokio::test]
async fn only_callers_with_the_role_see_payloads() {
    const CANARY: &str = "hidden-canary";
    let made = [Role::Read, Role::Operate].map(|role| AccessKey::generate(role.as_str(), role).unwrap());
    let keys = AccessKeys::new(made.iter().map(|(_, stored)| stored.clone()));
    let api = Api::with(Config::keys(keys).payload_role(Role::Operate)).await;
    let waiting = api.client.start(crate::common::approval, ()).await.unwrap();
    waiting.send("decision", &json!({ "text": CANARY })).await.unwrap();
    waiting.output().await.unwrap();
    let nap = api.client.start(crate::common::nap, json!(CANARY)).await.unwrap().id();
    let checkout = api.client.start(crate::common::checkout, 7).await.unwrap();
    checkout.output().await.unwrap();
    let input = json!(CANARY).to_string();
    api.client.schedule("hourly").every("1h").start_json("nap", 1, &*input).await.unwrap();
    let get = async |role: usize, path: &str| {
        let mut request = request(Method::GET, path, None);
        let bearer = format!("Bearer {}", made[role].0.secret());
        request.headers_mut().insert("authorization", bearer.parse().unwrap());
        api.send(request).await
    };
    let of_run = [
        "/operations?payloads=full",
        "/operations/0",
        "/events?payloads=full",
        "/output",
        "/explain",
        "/live",
    ];
    let run = waiting.id();
    let paths = of_run.map(|rest| format!("/api/runs/{run}{rest}")).into_iter();
    let others = [
        format!("/api/runs/{nap}/events?payloads=full"),
        "/api/schedules".into(),
        "/api/schedules/hourly".into(),
    ];
    let mut shown = 0;
    for path in paths.chain(others) {
        let hidden = get(0, &path).await.expect(200);
        assert!(!hidden.text.contains(CANARY), "{path}: {}", hidden.text);
        shown += get(1, &path).await.expect(200).text.matches(CANARY).count();
    }
    assert!(shown > 6, "who has the role sees them: {shown}");
    let export = format!("/api/runs/{run}/export");
    get(0, &export).await.expect(403).refused(ProblemCode::Forbidden);
    assert!(get(1, &export).await.expect(200).text.contains(CANARY));
    for (rest, is_in) in [("state", "paid"), ("streams/log", "paid"), ("streams/log/live", "paid")] {
        let path = format!("/api/runs/{}/{rest}", checkout.id());
        let hidden = get(0, &path).await.expect(200).text;
        assert!(hidden.contains("\"omitted\":true") && !hidden.contains(is_in), "{rest}: {hidden}");
        assert!(get(1, &path).await.expect(200).text.contains(is_in), "{rest}");
    }
    assert_eq!(get(0, "/api/schedules/hourly").await.json()["definition"]["input_omitted"], true);
    api.stop().await;
}
