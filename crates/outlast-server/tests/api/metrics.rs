//! Metrics, and the description of the API.

use std::collections::BTreeSet;

use outlast_api::ProblemCode;
use serde_json::json;

use crate::common::Api;

#[tokio::test]
async fn metrics_are_text_of_prometheus_with_known_labels() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(1)).await;
    api.output(&id).await;
    api.get(&format!("/api/runs/{id}")).await.expect(200);
    api.get("/api/runs/run_00000000000000000000000000").await.expect(404);
    let mut evil = crate::common::request(axum::http::Method::GET, "/api/runs", None);
    evil.headers_mut().insert("host", "evil.example".parse().unwrap());
    api.send(evil).await.expect(421).refused(ProblemCode::WrongHost);
    let answer = api.get("/metrics").await.expect(200);
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    for line in [
        "outlast_runs{status=\"completed\"} 1",
        "outlast_workers{status=\"working\"} 1",
        "outlast_http_requests_total{method=\"GET\",route=\"/api/runs/{id}\",status=\"200\"} 1",
        "outlast_http_requests_total{method=\"GET\",route=\"/api/runs/{id}\",status=\"404\"} 1",
        "outlast_http_request_duration_seconds_count{method=\"POST\",route=\"/api/runs\"} 1",
        "outlast_auth_failures_total{reason=\"wrong_host\"} 1",
    ] {
        assert!(answer.text.lines().any(|found| found == line), "{line} is missing in\n{}", answer.text);
    }
    assert!(!answer.text.contains(&id), "ids are never labels");
    let mut families = BTreeSet::new();
    for line in answer.text.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(family) => assert!(families.insert(family.split(' ').next().unwrap()), "twice: {line}"),
            None if line.starts_with('#') => {}
            None => assert!(families.iter().any(|family| line.starts_with(family)), "without a type: {line}"),
        }
    }
    api.stop().await;
}

#[tokio::test]
async fn the_description_of_the_api_names_its_own_place() {
    let api = Api::local().await;
    let document = api.get("/openapi.json").await.expect(200);
    assert!(document.header("etag").starts_with("W/"));
    assert_eq!(document.json()["openapi"], "3.1.0");
    let nested = axum::Router::new().nest("/a", api.app.clone());
    let get = crate::common::request(axum::http::Method::GET, "/a/openapi.json", None);
    assert_eq!(crate::common::send_to(&nested, get).await.expect(200).json()["servers"][0]["url"], "/a");
    api.stop().await;
}
