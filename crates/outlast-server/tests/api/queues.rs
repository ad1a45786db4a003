//! Queues and workflows: what is ready, who serves it, and what workers have said.

use outlast::Client;
use outlast::prelude::*;
use outlast_api::ProblemCode;
use outlast_server::{Config, router};
use serde_json::{Value, json};

use crate::common::{Api, checkout, nap, request, send_to, sqlite};

/// A router on a world without a worker.
async fn without_worker() -> (axum::Router, Client, tempfile::TempDir) {
    let (world, folder) = sqlite().await;
    let client = Client::new(world);
    (router(client.clone(), Config::local()), client, folder)
}

async fn get(app: &axum::Router, path: &str) -> crate::common::Answer {
    send_to(app, request(axum::http::Method::GET, path, None)).await
}

#[tokio::test]
async fn delayed_starts_do_not_hide_the_ready_runs_of_a_queue() {
    let (app, client, _folder) = without_worker().await;
    let later = (0..1_000).map(|number| (nap, json!(number)));
    for (workflow, input) in later {
        client.start(workflow, input).queue("later").after("1h").await.unwrap();
    }
    client.start(checkout, 7).queue("a/b c").await.unwrap();
    let queues = get(&app, "/api/queues").await.expect(200).json();
    let [first, second] = &queues["items"].as_array().unwrap()[..] else { panic!("{queues}") };
    assert_eq!((&first["name"], &first["ready"], &first["workers"]), (&json!("a/b c"), &json!(1), &json!(0)));
    assert!(first["oldest_ready_at"].is_string());
    assert_eq!(
        (&second["name"], &second["ready"], &second["running"]),
        (&json!("later"), &json!(0), &json!(0))
    );
    assert_eq!(second["oldest_ready_at"], Value::Null);
    let metrics = get(&app, "/metrics").await.expect(200).text;
    for line in ["outlast_queue_ready_runs{queue=\"a/b c\"} 1", "outlast_queue_ready_runs{queue=\"later\"} 0"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    let one = get(&app, "/api/queues/a%2Fb%20c").await.expect(200).json();
    assert_eq!((&one["ready"], &one["served_by"]), (&json!(1), &json!([])));
    get(&app, "/api/queues/none").await.expect(404).refused(ProblemCode::NotFound);
}

#[tokio::test]
async fn numbers_of_runs_are_collected_since_the_server_was_started() {
    let api = Api::local().await;
    let stats = loop {
        let stats = api.get("/api/stats?window=2h&bucket=5m").await.expect(200).json();
        if stats["since"].is_string() {
            break stats;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&stats["bucket_seconds"], &stats["items"]), (&json!(300), &json!([])));
    for query in ["window=25h", "bucket=1s", "window=10m&bucket=20m", "window=x"] {
        api.get(&format!("/api/stats?{query}")).await.expect(400).refused(ProblemCode::InvalidRequest);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_queue_shows_who_serves_it() {
    let api = Api::local().await;
    let queue = api.get("/api/queues/default").await.expect(200).json();
    assert_eq!((&queue["workers"], &queue["ready"]), (&json!(1), &json!(0)));
    assert_eq!(queue["served_by"][0]["build"], "tests");
    api.stop().await;
}

#[workflow(version = 2)]
async fn order(ctx: Context, cents: u32) -> Result<u32, Error> {
    drop(ctx);
    Ok(cents)
}

#[tokio::test]
async fn what_workers_say_about_their_workflows_outlives_them() {
    let (app, client, _folder) = without_worker().await;
    get(&app, "/api/workflows/order").await.expect(404).refused(ProblemCode::NotFound);
    let world = client.world().clone();
    let worker = Worker::builder(world).register(order).build("b1").start().await.unwrap();
    client.start(order, 7).await.unwrap().output().await.unwrap();
    while client.definitions().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    worker.stop().await.unwrap();
    let listed = get(&app, "/api/workflows").await.expect(200).json();
    assert_eq!((&listed["items"][0]["name"], &listed["items"][0]["workers"]), (&json!("order"), &json!(0)));
    let workflow = get(&app, "/api/workflows/order").await.expect(200).json();
    assert_eq!((&workflow["versions"], &workflow["builds"]), (&json!([2]), &json!(["b1"])));
    assert_eq!(
        (&workflow["definitions"][0]["build"], &workflow["definitions"][0]["version"]),
        (&json!("b1"), &json!(2))
    );
    assert_eq!((&workflow["ended"]["runs"], &workflow["ended"]["success_ratio"]), (&json!(1), &json!(1.0)));
    assert!(workflow["ended"]["p50_ms"].is_u64(), "{workflow}");
    let body = Some(json!({ "workflow": "order", "input": 1 }).to_string());
    let started =
        send_to(&app, request(axum::http::Method::POST, "/api/runs", body)).await.expect(201).json();
    assert_eq!(started["version"], 2, "the newest version that a worker had");
    let workflow = get(&app, "/api/workflows/order").await.expect(200).json();
    assert_eq!(workflow["open"]["by_version"], json!([{ "version": 2, "runs": 1 }]));
}
