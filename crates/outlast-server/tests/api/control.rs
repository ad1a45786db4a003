//! Controlling runs, and sending to hooks.

use axum::http::Method;
use outlast_api::ProblemCode;
use serde_json::{Value, json};

use crate::common::{Api, request};

#[tokio::test]
async fn a_payload_is_delivered_once_per_key() {
    let api = Api::local().await;
    let id = api.start("approval", Value::Null).await;
    let hook = format!("/api/runs/{id}/hooks/decision");
    let sent = api.post(&hook, json!({ "payload": { "ok": true }, "key": "d1" })).await.expect(200).json();
    assert_eq!(sent["delivery"], "delivered");
    api.output(&id).await;
    api.post(&hook, json!({ "payload": { "ok": true }, "key": "d1" })).await.expect(200);
    let problem = api.post(&hook, json!({ "payload": 1 })).await.expect(409).refused(ProblemCode::RunEnded);
    assert_eq!(
        (problem.run.unwrap().to_string(), problem.run_status.as_deref()),
        (id.clone(), Some("completed"))
    );
    let events = api.get(&format!("/api/runs/{id}/events?kind=hook_received")).await.json();
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    assert_eq!(events["items"][0]["data"]["headers"]["actor"], "local");
    api.stop().await;
}

#[tokio::test]
async fn a_run_is_cancelled_once() {
    let api = Api::local().await;
    let id = api.start("nap", json!(1)).await;
    let cancel = format!("/api/runs/{id}/cancel");
    let first = api.post(&cancel, json!({ "reason": "the customer left" })).await.expect(200).json();
    assert_eq!((&first["did"], &first["run"]["id"]), (&json!("requested"), &json!(id)));
    let output = api.output(&id).await;
    assert_eq!(output["status"], "cancelled");
    assert!(output["failure"]["message"].as_str().unwrap().contains("the customer left"), "{output}");
    assert_eq!(api.post_text(&cancel, "").await.expect(200).json()["did"], "nothing");
    api.stop().await;
}

#[tokio::test]
async fn a_run_is_paused_resumed_and_woken() {
    let api = Api::local().await;
    let id = api.start("nap", json!(7)).await;
    let act = async |verb: &str, body: Value| api.post(&format!("/api/runs/{id}/{verb}"), body).await;
    assert_eq!(act("pause", json!({ "reason": "night" })).await.expect(200).json()["did"], "requested");
    let paused = act("pause", json!({})).await.expect(200).json();
    assert_eq!((&paused["did"], &paused["run"]["marks"]), (&json!("already"), &json!(["paused"])));
    let listed = api.get("/api/runs?mark=paused").await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(act("resume", json!({})).await.expect(200).json()["did"], "requested");
    assert_eq!(act("wake", json!({})).await.expect(200).json()["did"], "requested");
    assert_eq!(api.output(&id).await["output"]["json"], 7);
    act("wake", json!({})).await.expect(409).refused(ProblemCode::RunEnded);
    act("pause", json!({})).await.expect(409).refused(ProblemCode::RunEnded);
    act("resume", json!({})).await.expect(409).refused(ProblemCode::RunEnded);
    api.stop().await;
}

#[tokio::test]
async fn a_run_in_quarantine_is_not_deleted() {
    let api = Api::local().await;
    let id = api.start("nap", json!(1)).await;
    let delete = || request(Method::DELETE, &format!("/api/runs/{id}"), None);
    api.send(delete()).await.expect(409).refused(ProblemCode::Conflict);
    let act =
        async |verb: &str| api.post(&format!("/api/runs/{id}/{verb}"), json!({})).await.expect(200).json();
    assert_eq!(act("terminate").await["did"], "requested");
    api.output(&id).await;
    assert_eq!(act("quarantine").await["did"], "requested");
    api.send(delete()).await.expect(409).refused(ProblemCode::Conflict);
    assert_eq!(act("release").await["did"], "requested");
    assert_eq!(api.send(delete()).await.expect(204).text, "");
    api.send(delete()).await.expect(404).refused(ProblemCode::NotFound);
    api.stop().await;
}

#[tokio::test]
async fn a_retry_continues_the_run_and_a_dry_run_says_how() {
    let api = Api::local().await;
    let id = api.start("nap", json!(7)).await;
    let act = async |verb: &str, body: Value| api.post(&format!("/api/runs/{id}/{verb}"), body).await;
    act("retry", json!({})).await.expect(409).refused(ProblemCode::Conflict);
    act("cancel", json!({})).await.expect(200);
    assert_eq!(api.output(&id).await["status"], "cancelled");
    let dry = act("retry", json!({ "dry_run": true })).await.expect(200).json();
    assert_eq!((&dry["did"], &dry["run"]["status"]), (&json!("nothing"), &json!("cancelled")));
    assert_eq!(dry["plan"]["open"][0]["kind"], "timer", "{dry}");
    act("retry", json!({ "from": 99 })).await.expect(409).refused(ProblemCode::Conflict);
    let done = act("retry", json!({ "reason": "by mistake", "deadline": "1d" })).await.expect(200).json();
    assert_eq!((&done["did"], done.get("plan")), (&json!("requested"), None));
    let events = format!("/api/runs/{id}/events?kind=run_retried");
    loop {
        let found = api.get(&events).await.json();
        if let Some(event) = found["items"].as_array().and_then(|items| items.first()) {
            assert_eq!(
                (&event["data"]["reason"], &event["data"]["actor"]),
                (&json!("by mistake"), &json!("local"))
            );
            break;
        }
    }
    assert_eq!(act("retry", json!({})).await.expect(200).json()["did"], "already");
    act("wake", json!({})).await.expect(200);
    assert_eq!(api.output(&id).await["output"]["json"], 7);
    api.stop().await;
}

#[tokio::test]
async fn a_fork_is_a_new_run_with_the_events_before_a_cut() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(5)).await;
    api.output(&id).await;
    let fork = format!("/api/runs/{id}/fork");
    let plan = api.post(&fork, json!({ "event": 1, "dry_run": true })).await.expect(200).json();
    assert_eq!((&plan["event"], &plan["open"]), (&json!(1), &json!([])));
    let answer = api.post(&fork, json!({ "event": 1 })).await.expect(201);
    let run = answer.json();
    assert_eq!(answer.header("location"), format!("/api/runs/{}", run["id"].as_str().unwrap()));
    assert_eq!(run["forked_from"], json!(id));
    assert_eq!(api.output(run["id"].as_str().unwrap()).await["output"]["json"], "paid 5");
    let refused = api.post(&fork, json!({ "event": 99 })).await.expect(409).refused(ProblemCode::Conflict);
    assert!(refused.detail.contains("it has no event 99"), "{refused:?}");
    api.post(&fork, json!({})).await.refused(ProblemCode::InvalidRequest);
    let both = json!({ "event": 1, "outputs": { "0": 3 } });
    api.post(&fork, both).await.refused(ProblemCode::InvalidRequest);
    let missing = "/api/runs/run_00000000000000000000000001/fork";
    api.post(missing, json!({ "event": 1 })).await.expect(404).refused(ProblemCode::NotFound);
    api.stop().await;
}

#[tokio::test]
async fn a_restart_is_a_new_run_with_the_same_or_another_input() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(5)).await;
    api.output(&id).await;
    let restart = format!("/api/runs/{id}/restart");
    let same = api.post_text(&restart, "").await.expect(201);
    let run = same.json();
    assert_eq!(same.header("location"), format!("/api/runs/{}", run["id"].as_str().unwrap()));
    assert_eq!(run["restarted_from"], json!(id));
    assert_eq!(api.output(run["id"].as_str().unwrap()).await["output"]["json"], "paid 5");
    let other = api.post(&restart, json!({ "input": 6 })).await.expect(201).json();
    assert_eq!(api.output(other["id"].as_str().unwrap()).await["output"]["json"], "paid 6");
    api.post(&restart, json!({ "input": "much" })).await.expect(422).refused(ProblemCode::InputInvalid);
    api.stop().await;
}

#[tokio::test]
async fn a_dry_run_counts_what_a_bulk_action_would_select() {
    let api = Api::local().await;
    for number in 0..12 {
        api.start("nap", json!(number)).await;
    }
    let done = api.start("checkout", json!(1)).await;
    api.output(&done).await;
    let bulk = |body: Value| api.post("/api/bulk", body);
    let naps = json!({ "action": "cancel", "query": { "workflow": "nap" }, "dry_run": true });
    let preview = bulk(naps).await.expect(200).json();
    assert_eq!((&preview["matched"], &preview["more"]), (&json!(12), &json!(false)));
    assert_eq!(preview["sample"].as_array().unwrap().len(), 10);
    let ended = bulk(json!({ "action": "delete", "query": {}, "dry_run": true })).await.expect(200).json();
    assert_eq!(ended["by_status"], json!({ "completed": 1 }));
    assert_eq!(api.get("/api/counts").await.json()["counts"]["completed"], 1, "nothing was deleted");
    api.stop().await;
}

#[tokio::test]
async fn runs_that_ended_before_a_time_are_pruned() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(1)).await;
    api.output(&id).await;
    let prune = |time: &str| api.post("/api/world/prune", json!({ "ended_before": time }));
    assert_eq!(prune("2000-01-01T00:00:00Z").await.expect(200).json()["deleted"], 0);
    let dry = json!({ "ended_before": "2999-01-01T00:00:00Z", "dry_run": true });
    let counted = api.post("/api/world/prune", dry).await.expect(200).json();
    assert_eq!(counted, json!({ "deleted": 1, "more": false }), "nothing is deleted yet");
    assert_eq!(prune("2999-01-01T00:00:00Z").await.expect(200).json()["deleted"], 1);
    api.get(&format!("/api/runs/{id}")).await.expect(404).refused(ProblemCode::NotFound);
    api.stop().await;
}
