//! Every refusal is a problem document. Check 5.

use axum::body::Body;
use axum::http::{Method, Request};
use outlast_api::{Problem, ProblemCode};
use serde_json::json;

use crate::common::{Api, request};

#[tokio::test]
async fn refusals_of_the_router_itself_are_problems() {
    let api = Api::local().await;
    api.get("/nowhere").await.expect(404).refused(ProblemCode::NotFound);
    api.get("/api/").await.expect(404).refused(ProblemCode::NotFound);
    let put = api.send(request(Method::PUT, "/api/runs", None)).await.expect(405);
    assert!(put.header("allow").contains("GET") && put.header("allow").contains("POST"), "{put:?}");
    put.refused(ProblemCode::MethodNotAllowed);
    api.get("/api/runs/%ff").await.expect(400).refused(ProblemCode::InvalidRequest);
    api.get("/api/runs?text=%ff").await.expect(400).refused(ProblemCode::InvalidRequest);
    api.get("/api/runs/run_1").await.expect(404).refused(ProblemCode::NotFound);
    let long = format!("/api/runs?text={}", "x".repeat(9_000));
    api.get(&long).await.expect(414).refused(ProblemCode::UriTooLong);
    let mut large = request(Method::GET, "/api/runs", None);
    large.headers_mut().insert("x-large", "x".repeat(20_000).parse().unwrap());
    api.send(large).await.expect(431).refused(ProblemCode::HeadersTooLarge);
    api.stop().await;
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_problems() {
    let api = Api::local().await;
    for body in ["", "{", "[]", "{} x", "null", "\u{0}", "{\"workflow\":\"a\",\"workflow\":\"b\"}"] {
        api.post_text("/api/runs", body).await.expect(400).refused(ProblemCode::InvalidRequest);
    }
    let deep = format!(r#"{{"workflow":"nap","input":{}{}}}"#, "[".repeat(70), "]".repeat(70));
    api.post_text("/api/runs", &deep).await.expect(400).refused(ProblemCode::InvalidRequest);
    let bomb = "[".repeat(1_000_000);
    api.post_text("/api/runs", &bomb).await.expect(400).refused(ProblemCode::InvalidRequest);
    let large = json!({ "workflow": "nap", "input": "x".repeat(5 << 20) }).to_string();
    let problem = api.post_text("/api/runs", &large).await.expect(413).refused(ProblemCode::TooLarge);
    assert_eq!(problem.limit_bytes, Some((4 << 20) + 65_536));
    let payload = json!({ "workflow": "nap", "input": "x".repeat((4 << 20) + 10) });
    api.post("/api/runs", payload).await.expect(422).refused(ProblemCode::TooLong);
    api.stop().await;
}

/// A body that announces no length is cut off at the limit.
#[tokio::test]
async fn an_endless_body_is_refused_at_the_limit() {
    let api = Api::local().await;
    let chunk = bytes::Bytes::from(vec![b' '; 64 * 1024]);
    let endless = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone()));
    let request = Request::builder().method(Method::POST).uri("/api/runs").header("host", "localhost");
    let request =
        request.header("content-type", "application/json").body(Body::from_stream(endless)).unwrap();
    api.send(request).await.expect(413).refused(ProblemCode::TooLarge);
    api.stop().await;
}

#[tokio::test]
async fn bodies_of_other_types_and_compressed_ones_are_refused() {
    let api = Api::local().await;
    for (name, value) in [
        ("content-type", "text/plain"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("content-encoding", "gzip"),
    ] {
        let mut start = request(Method::POST, "/api/runs", Some(r#"{"workflow":"nap"}"#.into()));
        start.headers_mut().insert(name, value.parse().unwrap());
        api.send(start).await.expect(415).refused(ProblemCode::UnsupportedMedia);
    }
    let mut start = request(Method::POST, "/api/runs", Some(r#"{"workflow":"nap"}"#.into()));
    start.headers_mut().insert("content-type", "Application/JSON; charset=utf-8".parse().unwrap());
    api.send(start).await.expect(201);
    api.stop().await;
}

#[tokio::test]
async fn responses_have_ids_and_safe_headers() {
    let api = Api::local().await;
    let answer = api.get("/api/counts").await.expect(200);
    assert!(answer.header("x-request-id").starts_with("req_"), "{answer:?}");
    for (name, value) in [
        ("outlast-api", "1"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    for (given, is_kept) in [("trace-1.a_B", true), ("a b", false), ("", false)] {
        let mut get = request(Method::GET, "/nowhere", None);
        get.headers_mut().insert("x-request-id", given.parse().unwrap());
        let answer = api.send(get).await;
        assert_eq!(answer.header("x-request-id") == given, is_kept, "{given}");
        let problem: Problem = serde_json::from_str(&answer.text).unwrap();
        assert_eq!(problem.instance, answer.header("x-request-id"));
    }
    api.stop().await;
}
