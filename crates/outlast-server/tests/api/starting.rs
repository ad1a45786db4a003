//! Starting runs.

use outlast_api::{ProblemCode, RunJson};
use serde_json::json;

use crate::common::{Api, request};

#[tokio::test]
async fn a_run_is_started_and_read_over_http() {
    let api = Api::local().await;
    let started = api.post("/api/runs", json!({ "workflow": "checkout", "input": 42 })).await.expect(201);
    let id = started.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(started.header("location"), format!("/api/runs/{id}"));
    let output = api.output(&id).await;
    assert_eq!(output["output"]["json"], "paid 42");
    let run = api.get(&format!("/api/runs/{id}")).await.expect(200);
    let run: RunJson = serde_json::from_str(&run.text).unwrap();
    assert_eq!((run.status.as_str(), run.version, run.queue.as_str()), ("completed", 1, "default"));
    api.stop().await;
}

#[tokio::test]
async fn a_start_with_all_options_keeps_them() {
    let api = Api::local().await;
    let body = json!({
        "workflow": "nap", "input": [1], "version": 1, "key": "k", "key_window": "1h", "queue": "night",
        "priority": 3, "tags": { "customer": "ada" }, "headers": { "trace": "x", "actor": "forged" },
        "after": "1h", "deadline": "3d",
    });
    let run = api.post("/api/runs", body).await.expect(201).json();
    assert_eq!((run["queue"].as_str(), run["priority"].as_u64()), (Some("night"), Some(3)));
    assert_eq!((run["key"].as_str(), run["tags"]["customer"].as_str()), (Some("k"), Some("ada")));
    assert!(run["wake_at"].is_string() && run["deadline"].is_string(), "{run}");
    let events = format!("/api/runs/{}/events?payloads=full", run["id"].as_str().unwrap());
    let first = &api.get(&events).await.json()["items"][0];
    assert_eq!(
        first["data"]["headers"],
        json!({ "trace": "x", "actor": "local" }),
        "nobody forges the actor"
    );
    api.stop().await;
}

/// Check 6.
#[tokio::test]
async fn one_idempotency_key_starts_one_run() {
    let api = Api::local().await;
    let post = async |input: u64| {
        let body = json!({ "workflow": "nap", "input": input }).to_string();
        let mut start = request(axum::http::Method::POST, "/api/runs", Some(body));
        start.headers_mut().insert("idempotency-key", "order-42".parse().unwrap());
        api.send(start).await
    };
    let first = post(1).await.expect(201).json();
    let second = post(1).await.expect(200).json();
    assert_eq!(first["id"], second["id"]);
    let problem = post(2).await.expect(409).refused(ProblemCode::KeyConflict);
    assert_eq!(problem.run.unwrap().to_string(), first["id"].as_str().unwrap());

    let body = json!({ "workflow": "nap", "key": "other" }).to_string();
    let mut both = request(axum::http::Method::POST, "/api/runs", Some(body));
    both.headers_mut().insert("idempotency-key", "order-42".parse().unwrap());
    api.send(both).await.expect(400).refused(ProblemCode::InvalidRequest);
    api.stop().await;
}

#[tokio::test]
async fn a_key_of_another_start_is_a_conflict_with_its_owner() {
    let api = Api::local().await;
    let start = |input| json!({ "workflow": "nap", "input": input, "key": "k" });
    let first = api.post("/api/runs", start(1)).await.expect(201).json();
    api.post("/api/runs", start(1)).await.expect(200);
    let problem = api.post("/api/runs", start(2)).await.expect(409).refused(ProblemCode::KeyConflict);
    assert_eq!(json!(problem.run), first["id"]);
    api.stop().await;
}

#[tokio::test]
async fn an_input_that_the_workflow_does_not_accept_is_refused() {
    let api = Api::local().await;
    let problem = api.post("/api/runs", json!({ "workflow": "checkout", "input": "much" })).await.expect(422);
    let problem = problem.refused(ProblemCode::InputInvalid);
    assert_eq!(problem.errors[0].pointer, "/input");
    api.stop().await;
}

#[tokio::test]
async fn invalid_fields_of_a_start_are_named() {
    let api = Api::local().await;
    let long = "x".repeat(300);
    for (body, pointer, status) in [
        (json!({ "workflow": "" }), "/workflow", 400),
        (json!({ "workflow": long }), "/workflow", 422),
        (json!({ "workflow": "step:charge" }), "/workflow", 400),
        (json!({ "workflow": "outlast:schedule" }), "/workflow", 400),
        (json!({ "workflow": "nap", "priority": 10 }), "/priority", 400),
        (json!({ "workflow": "nap", "priority": "high" }), "/priority", 400),
        (json!({ "workflow": "nap", "after": "soon" }), "/after", 400),
        (json!({ "workflow": "nap", "after": "1h", "at": "2099-01-01T00:00:00Z" }), "/after", 400),
        (json!({ "workflow": "nap", "deadline": "never" }), "/deadline", 400),
        (json!({ "workflow": "nap", "key": long }), "/key", 422),
        (json!({ "workflow": "nap", "key_window": "1h" }), "/key_window", 400),
        (json!({ "workflow": "nap", "queue": "" }), "/queue", 400),
        (json!({ "workflow": "nap", "id": "run_1" }), "/id", 400),
        (json!({ "workflow": "nap", "colour": 1 }), "/colour", 400),
    ] {
        let answer = api.post("/api/runs", body.clone()).await.expect(status);
        assert_eq!(answer.problem().errors[0].pointer, pointer, "{body}");
    }
    api.stop().await;
}

#[tokio::test]
async fn a_batch_answers_each_start_in_order() {
    let api = Api::local().await;
    let starts = json!([
        { "workflow": "nap", "key": "a" }, { "workflow": "" }, { "workflow": "nap", "key": "a" }, { "workflow": "nap" },
    ]);
    let answer = api.post("/api/runs/batch", json!({ "starts": starts })).await.expect(200).json();
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 4);
    assert_eq!(results[0]["run"]["id"], results[2]["run"]["id"]);
    assert_eq!(results[1]["problem"]["code"], "invalid_request");
    assert_eq!(results[3]["is_new"], true);
    let many = json!({ "starts": vec![json!({ "workflow": "nap" }); 1_001] });
    api.post("/api/runs/batch", many).await.expect(422).refused(ProblemCode::TooLong);
    api.stop().await;
}
