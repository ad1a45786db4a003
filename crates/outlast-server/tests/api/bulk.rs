//! Bulk actions, open hooks and groups of failures over HTTP.

use outlast_api::{BulkJson, FailureListJson, ItemPage, OpenHookJson, ProblemCode};
use outlast_server::{Config, start_built_ins};
use serde_json::json;

use crate::common::Api;

async fn bulk(api: &Api, id: &str) -> BulkJson {
    serde_json::from_str(&api.get(&format!("/api/bulk/{id}")).await.expect(200).text).unwrap()
}

#[tokio::test]
async fn a_bulk_action_is_started_followed_and_ends() {
    let api = Api::local().await;
    let worker = start_built_ins(&api.client).await.unwrap();
    for _ in 0..3 {
        api.start("nap", json!(1)).await;
    }
    let request = |more: serde_json::Value| {
        let mut request = json!({ "action": "terminate", "query": { "workflow": "nap" }, "reason": "moved" });
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let preview = api.post("/api/bulk", request(json!({ "dry_run": true }))).await.expect(200).json();
    assert_eq!((&preview["matched"], &preview["sample"][0]["workflow"]), (&json!(3), &json!("nap")));
    let stale = api.post("/api/bulk", request(json!({ "expect_at_most": 2 }))).await.expect(412);
    assert_eq!(stale.refused(ProblemCode::Stale).matched, Some(3));
    let started = api.post("/api/bulk", request(json!({ "expect_at_most": 3 }))).await.expect(202).json();
    let id = started["id"].as_str().unwrap();
    assert_eq!((&started["action"], &started["actor"]), (&json!("terminate"), &json!("local")));
    api.output(id).await;
    let ended = bulk(&api, id).await;
    assert_eq!((ended.state.as_str(), ended.done, ended.left), ("completed", 3, Some(0)), "{ended:?}");
    api.post(&format!("/api/bulk/{id}/stop"), json!({})).await.expect(409).refused(ProblemCode::RunEnded);
    let run = api.start("nap", json!(1)).await;
    api.get(&format!("/api/bulk/{run}")).await.refused(ProblemCode::NotFound);
    for wrong in [json!({ "rate": 0 }), json!({ "action": "pause", "compensating": true })] {
        api.post("/api/bulk", request(wrong)).await.refused(ProblemCode::InvalidRequest);
    }
    worker.stop().await.unwrap();
    api.stop().await;
}

#[tokio::test]
async fn a_bulk_action_that_nobody_executes_can_be_stopped() {
    let api = Api::local().await;
    api.start("nap", json!(1)).await;
    let request = json!({ "action": "pause", "query": { "workflow": "nap" }, "rate": 1 });
    let started = api.post("/api/bulk", request).await.expect(202).json();
    let id = started["id"].as_str().unwrap();
    assert_eq!((&started["state"], &started["left"]), (&json!("running"), &json!(1)));
    api.post(&format!("/api/bulk/{id}/stop"), json!({ "reason": "a mistake" })).await.expect(200);
    let worker = start_built_ins(&api.client).await.unwrap();
    api.output(id).await;
    let stopped = bulk(&api, id).await;
    assert_eq!((stopped.state.as_str(), stopped.done), ("stopped", 0), "{stopped:?}");
    assert_eq!(stopped.stopped.unwrap().reason, "a mistake");
    worker.stop().await.unwrap();
    api.stop().await;
}

#[tokio::test]
async fn open_hooks_are_listed_by_name_and_workflow() {
    let api = Api::local().await;
    let run = api.start("approval", json!(null)).await;
    let id = run.parse().unwrap();
    while api.client.run(id).await.unwrap().waits.is_empty() {
        tokio::task::yield_now().await;
    }
    let hooks = async |query: &str| -> Vec<OpenHookJson> {
        let text = api.get(&format!("/api/hooks?{query}")).await.expect(200).text;
        serde_json::from_str::<ItemPage<OpenHookJson>>(&text).unwrap().items
    };
    let all = hooks("").await;
    assert_eq!((all[0].name.as_str(), all[0].run, all[0].workflow.as_str()), ("decision", id, "approval"));
    assert_eq!(hooks("name=decision&workflow=approval").await, all);
    assert_eq!(hooks("name=other").await, []);
    assert_eq!(hooks("kind=name").await, all);
    assert_eq!(hooks("kind=webhook").await, []);
    api.get("/api/hooks?kind=letter").await.expect(400).problem();
    assert_eq!(hooks("opened_before=2020-01-01T00:00:00Z").await, []);
    api.stop().await;
}

#[tokio::test]
async fn failures_are_grouped_and_only_new_ones_are_read() {
    let api = Api::with(Config::local()).await;
    let failures = async |query: &str| -> FailureListJson {
        serde_json::from_str(&api.get(&format!("/api/failures?{query}")).await.expect(200).text).unwrap()
    };
    assert!(failures("").await.items.is_empty());
    for round in 1..=3_u64 {
        let run = api.start("checkout", json!(13)).await;
        assert_eq!(api.output(&run).await["status"], "failed");
        let groups = failures("").await;
        assert_eq!(groups.items.len(), 1, "{groups:?}");
        let group = &groups.items[0];
        assert_eq!((group.count, group.by_hour.iter().sum::<u64>()), (round, round));
        assert_eq!((group.step.as_deref(), group.code.as_deref()), (Some("charge"), Some("declined")));
        assert_eq!(group.samples[0].to_string(), run);
    }
    assert!(failures("workflow=nap").await.items.is_empty());
    let fingerprint = failures("").await.items[0].fingerprint.clone();
    let detail = api.get(&format!("/api/failures/{fingerprint}")).await.expect(200).json();
    assert_eq!(
        (detail["groups"][0]["count"].as_u64(), detail["runs"].as_array().unwrap().len()),
        (Some(3), 3)
    );
    api.get("/api/failures/0000000000000001").await.refused(ProblemCode::NotFound);
    api.get("/api/failures?since=2020-01-01T00:00:00Z").await.refused(ProblemCode::InvalidRequest);
    api.stop().await;
}
