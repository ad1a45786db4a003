//! Every route × every role × a valid request, a bad body and an unknown id.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request};
use outlast_api::{Action, AuditJson, ItemPage, ProblemCode, Role};
use outlast_server::{AccessKey, AccessKeys, Config, RequiredRole, RouteInfo, route_table};
use serde_json::json;

use crate::common::{Answer, Api, request};

const UNKNOWN_RUN: &str = "run_00000000000000000000000000";

/// The path of a route, with parameters of existing things.
fn path(route: &RouteInfo, run: &str, session: &str) -> String {
    let is_known = run != UNKNOWN_RUN;
    let run = if route.path.starts_with("/api/schedules") && is_known { "hourly" } else { run };
    let path = route.path.replace("{id}", run).replace("{op}", "1").replace("{session}", session);
    let name = match route.path {
        path if path.contains("/hooks/") => "decision",
        path if path.contains("/streams/") => "log",
        _ => "nap",
    };
    let path = path
        .replace("{fingerprint}", "00000000deadbeef")
        .replace("{token}", "unknown")
        .replace("{*path}", "a/b");
    let query = match route.path {
        "/api/resolve" => "?q=nobody-has-this-key",
        _ => "",
    };
    path.replace("{name}", name) + query
}

/// A valid body of a route.
fn body(route: &RouteInfo) -> Option<String> {
    let body = match route.path {
        "/api/runs" => json!({ "workflow": "nap" }),
        "/api/runs/batch" => json!({ "starts": [] }),
        "/api/bulk" => json!({ "action": "cancel", "query": {}, "dry_run": true }),
        "/api/schedules" if route.method == Method::POST => {
            json!({ "id": "daily", "cron": "@daily", "workflow": "nap" })
        }
        "/api/schedules/preview" => json!({ "cron": "@daily" }),
        "/api/schedules/pause" | "/api/schedules/resume" => json!({ "ids": ["hourly"] }),
        "/api/schedules/{id}/backfill" => {
            json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z", "dry_run": true })
        }
        "/api/bulk/{id}/stop" => json!({}),
        "/api/runs/{id}/fork" => json!({ "event": 1 }),
        "/api/schedules/{id}" => json!({ "every": "1h", "workflow": "nap" }),
        "/api/world/prune" => json!({ "ended_before": "2000-01-01T00:00:00Z" }),
        _ => json!({}),
    };
    has_body(route).then(|| body.to_string())
}

fn has_body(route: &RouteInfo) -> bool {
    // The body of a request to a webhook may be anything.
    !route.path.starts_with("/webhooks/") && [Method::POST, Method::PUT].contains(&route.method)
}

fn authorized(mut request: Request<Body>, secret: &str) -> Request<Body> {
    request.headers_mut().insert("authorization", format!("Bearer {secret}").parse().unwrap());
    request.headers_mut().insert("if-match", "*".parse().unwrap());
    request
}

/// Sends a request, and reads only the head of a stream.
async fn send(api: &Api, request: Request<Body>, is_stream: bool) -> Answer {
    if !is_stream {
        return api.send(request).await;
    }
    let response = tower::ServiceExt::oneshot(api.app.clone(), request).await.unwrap();
    let (parts, body) = response.into_parts();
    let text = match parts.status.is_success() {
        true => String::new(),
        false => {
            let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
            String::from_utf8(bytes.to_vec()).unwrap()
        }
    };
    Answer { status: parts.status, headers: parts.headers, text }
}

/// Check 4: a role that does not suffice is refused on every route, whatever the request.
#[tokio::test]
async fn every_route_needs_its_role() {
    let made = Role::ALL.map(|role| (role, AccessKey::generate(role.as_str(), role).unwrap()));
    let keys = AccessKeys::new(made.iter().map(|(_, (_, stored))| stored.clone()));
    let api = Api::with(Config::keys(keys)).await;
    let session = api.client.workers().await.unwrap()[0].session.to_string();
    for route in route_table() {
        let is_stream = route.path.ends_with("/live");
        let hourly = api.client.schedule("hourly").every("1h");
        hourly.start_json("nap", 1, "1").await.unwrap();
        // A run of its own for each route: some of them end it.
        let run = match route.path.starts_with("/api/bulk/") {
            true => api
                .client
                .bulk(api.client.list().workflow_named("none"))
                .durably()
                .resume()
                .await
                .unwrap()
                .run(),
            false => api.client.start_json("nap", 1, "1").await.unwrap().id(),
        };
        let run = run.to_string();
        for (role, (key, _)) in &made {
            let is_allowed = match route.required {
                RequiredRole::Public | RequiredRole::Any => true,
                RequiredRole::Role(required) => role.includes(required),
            };
            let at =
                |path: String, body| authorized(request(route.method.clone(), &path, body), key.secret());
            let label = format!("{} {} as {role}", route.method, route.path);
            let valid = send(&api, at(path(&route, &run, &session), body(&route)), is_stream).await;
            let unknown =
                send(&api, at(path(&route, UNKNOWN_RUN, UNKNOWN_RUN), body(&route)), is_stream).await;
            if is_allowed {
                assert!(![401, 403].contains(&valid.status.as_u16()), "{label}: {valid:?}");
                assert!(!valid.status.is_server_error(), "{label}: {valid:?}");
                if route.path.contains("{id}") || route.path.contains("{session}") {
                    assert_eq!(unknown.status, 404, "{label}: {unknown:?}");
                    unknown.refused(ProblemCode::NotFound);
                }
            } else {
                for refused in [valid, unknown] {
                    assert_eq!(refused.status, 403, "{label}: {refused:?}");
                    let problem = refused.refused(ProblemCode::Forbidden);
                    assert!(problem.required_role.is_some_and(|required| required > *role), "{label}");
                }
            }
            if has_body(&route) {
                let bad =
                    send(&api, at(path(&route, &run, &session), Some("{\"no\":1}".into())), false).await;
                let expected = if is_allowed { 400 } else { 403 };
                assert_eq!(bad.status, expected, "{label}: {bad:?}");
                bad.problem();
            }
        }
        let anonymous = request(route.method.clone(), &path(&route, &run, &session), body(&route));
        let anonymous = send(&api, anonymous, is_stream).await;
        assert_eq!(anonymous.status == 401, route.required != RequiredRole::Public, "{}", route.path);
    }
    let (admin, _) = &made.iter().find(|(role, _)| *role == Role::Admin).unwrap().1;
    every_refusal_is_in_the_audit(&api, admin.secret()).await;
    api.stop().await;
}

/// Check 4: the audit shows each refusal of the reader.
async fn every_refusal_is_in_the_audit(api: &Api, admin: &str) {
    let query = "/api/audit?actor=read&outcome=refused&limit=1000";
    let listed = api.send(authorized(request(Method::GET, query, None), admin)).await.expect(200);
    let records = serde_json::from_str::<ItemPage<AuditJson>>(&listed.text).unwrap().items;
    for route in route_table().into_iter().filter(|route| route.action.is_some()) {
        let action = route.action.unwrap().as_str();
        let of_route = records.iter().filter(|record| record.action == action && record.route == route.path);
        // A valid request, one for a run that does not exist, and one with a bad body.
        let expected = if has_body(&route) { 3 } else { 2 };
        assert_eq!(of_route.count(), expected, "{} {}", route.method, route.path);
    }
}

/// Check 35, as far as the API is concerned.
#[test]
fn every_action_has_one_route_with_its_role() {
    let table = route_table();
    for action in Action::ALL {
        let routes: Vec<_> = table.iter().filter(|route| route.action == Some(action)).collect();
        assert_eq!(routes.len(), 1, "{action}");
        assert_eq!(routes[0].required, RequiredRole::Role(action.role()), "{action}");
        assert!(!routes[0].method.is_safe(), "{action}");
    }
    let unsafe_without_action: Vec<_> =
        table.iter().filter(|route| !route.method.is_safe() && route.action.is_none()).collect();
    // The first has a body, and changes nothing. Requests to webhooks come from senders that are not users.
    assert_eq!(
        unsafe_without_action.iter().map(|route| route.path).collect::<Vec<_>>(),
        ["/api/schedules/preview", "/webhooks/{token}", "/webhooks/{token}/{*path}"]
    );
    let distinct: BTreeSet<_> = table.iter().map(|route| (route.method.as_str(), route.path)).collect();
    assert_eq!(distinct.len(), table.len());
}
