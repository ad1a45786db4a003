//! Metrics, and the description of the API.

use std::time::Duration;

use outlast_api::ProblemCode;
use serde_json::json;

use crate::common::{Answer, Api};
use crate::exposition::parse;

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
    let answer = metrics_after_the_end(&api).await;
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
    let families = parse(&answer.text);
    let attempts = &families["outlast_step_attempts_total"];
    let labels = [("step", "charge"), ("outcome", "completed")];
    assert_eq!(attempts.value("outlast_step_attempts_total", &labels), Some(1.0));
    api.stop().await;
}

/// The metrics when they count the end of the run, which they do after its output is known.
async fn metrics_after_the_end(api: &Api) -> Answer {
    let labels = [("workflow", "checkout"), ("status", "completed")];
    let counted = async {
        loop {
            let answer = api.get("/metrics").await.expect(200);
            let ended = parse(&answer.text)
                .get("outlast_runs_ended_total")
                .and_then(|ended| ended.value("outlast_runs_ended_total", &labels));
            match ended {
                Some(ended) if ended > 0.0 => {
                    assert_eq!(ended, 1.0);
                    return answer;
                }
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), counted).await.expect("the end of the run is counted")
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

/// The names of the guide's page on metrics, in the order of its tables.
pub(crate) fn documented_names() -> Vec<String> {
    let page = include_str!("../../../../docs/guide/src/metrics-and-traces.md");
    let is_name = |word: &&str| word.starts_with("outlast_") || word.starts_with("process_");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let names = rows.filter_map(|row| row.split('`').nth(1)).filter(is_name);
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_guide_lists_exactly_the_metrics_that_exist() {
    let api = Api::local().await;
    let id = api.start("checkout", json!(1)).await;
    api.output(&id).await;
    let families = parse(&api.get("/metrics").await.expect(200).text);
    let existing: Vec<&String> = families.keys().collect();
    let mut documented = documented_names();
    documented.sort();
    assert_eq!(existing, documented.iter().collect::<Vec<_>>());
    api.stop().await;
}

/// Check 12.
#[tokio::test]
async fn promtool_accepts_the_metrics() {
    if let Some(reason) = throwaway::promtool::missing() {
        return throwaway::skipped::report("promtool_accepts_the_metrics", &reason);
    }
    let api = Api::local().await;
    for input in [json!(1), json!(13)] {
        let id = api.start("checkout", input).await;
        api.output(&id).await;
    }
    let text = api.get("/metrics").await.expect(200).text;
    throwaway::promtool::promtool(&["check", "metrics"], &text).unwrap();
    api.stop().await;
}

/// Check 12, second half: names of workflows come from callers.
#[tokio::test]
async fn a_thousand_workflows_are_at_most_201_label_values() {
    let api = Api::local().await;
    for batch in 0..10 {
        let starts: Vec<_> = (0..100)
            .map(|number| json!({ "workflow": format!("w{batch}_{number}"), "version": 1 }))
            .collect();
        api.post("/api/runs/batch", json!({ "starts": starts })).await.expect(200);
    }
    let families = parse(&api.get("/metrics").await.expect(200).text);
    let started = &families["outlast_runs_started_total"];
    assert_eq!(started.label_values("workflow").len(), 201);
    assert!(started.label_values("workflow").contains("other"));
    let sum: f64 = started.samples.iter().map(|(_, _, value)| value).sum();
    assert_eq!(sum, 1_000.0);
    api.stop().await;
}
