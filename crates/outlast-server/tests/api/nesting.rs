//! The router below other paths.

use axum::Router;
use outlast_server::{Config, router};
use serde_json::json;

use crate::common::{Api, request, send_to};

async fn works_at(app: &Router, prefix: &str) {
    let body = json!({ "workflow": "nap" }).to_string();
    let start = request(axum::http::Method::POST, &format!("{prefix}/api/runs"), Some(body));
    let started = send_to(app, start).await.expect(201);
    let location = started.header("location").to_owned();
    assert!(location.starts_with(&format!("{prefix}/api/runs/run_")), "{location}");
    send_to(app, request(axum::http::Method::GET, &location, None)).await.expect(200);
    let nowhere = request(axum::http::Method::GET, &format!("{prefix}/api/nowhere"), None);
    send_to(app, nowhere).await.expect(404).problem();
    let put = request(axum::http::Method::PUT, &format!("{prefix}/api/runs"), None);
    send_to(app, put).await.expect(405).problem();
}

#[tokio::test]
async fn the_router_works_below_any_path() {
    let api = Api::local().await;
    let own = || router(api.client.clone(), Config::local());
    works_at(&own(), "").await;
    works_at(&Router::new().nest("/outlast", own()), "/outlast").await;
    works_at(&Router::new().nest_service("/outlast", own()), "/outlast").await;
    works_at(&Router::new().nest("/a", Router::new().nest("/b", own())), "/a/b").await;
    works_at(&Router::new().fallback_service(own()), "").await;
    api.stop().await;
}
