//! The audit: who changed something, and who was refused.

use axum::http::Method;
use outlast_api::{AuditJson, ItemPage, ProblemCode, Role};
use outlast_server::{AccessKey, AccessKeys, Config};
use serde_json::json;

use crate::common::{Answer, Api, request};

struct Keys {
    api: Api,
    keys: Vec<(Role, AccessKey)>,
}

impl Keys {
    async fn open(change: impl FnOnce(Config) -> Config) -> Self {
        let made = Role::ALL.map(|role| (role, AccessKey::generate(role.as_str(), role).unwrap()));
        let stored = AccessKeys::new(made.iter().map(|(_, (_, stored))| stored.clone()));
        let api = Api::with(change(Config::keys(stored))).await;
        Self { api, keys: made.into_iter().map(|(role, (key, _))| (role, key)).collect() }
    }

    async fn call(&self, role: Role, method: Method, path: &str, body: Option<String>) -> Answer {
        let (_, key) = self.keys.iter().find(|(of, _)| *of == role).unwrap();
        let mut request = request(method, path, body);
        request.headers_mut().insert("authorization", format!("Bearer {}", key.secret()).parse().unwrap());
        request.headers_mut().insert("x-request-id", "req-1".parse().unwrap());
        self.api.send(request).await
    }

    async fn audit(&self, query: &str) -> Vec<AuditJson> {
        let answer =
            self.call(Role::Admin, Method::GET, &format!("/api/audit?{query}"), None).await.expect(200);
        serde_json::from_str::<ItemPage<AuditJson>>(&answer.text).unwrap().items
    }
}

#[tokio::test]
async fn a_change_is_recorded_with_its_actor_reason_and_outcome() {
    let at = Keys::open(|config| config).await;
    let run = at.api.client.start_json("nap", 1, "1").await.unwrap().id().to_string();
    let cancel = format!("/api/runs/{run}/cancel");
    let body = Some(json!({ "reason": "not needed" }).to_string());
    at.call(Role::Operate, Method::POST, &cancel, body).await.expect(200);
    at.call(Role::Operate, Method::POST, "/api/runs/run_00000000000000000000000000/cancel", None)
        .await
        .expect(404);
    let [missing, done] = &at.audit("").await[..] else { panic!("two records") };
    assert_eq!(
        (done.actor.as_str(), done.role, done.action.as_str()),
        ("operate", Some(Role::Operate), "cancel")
    );
    assert_eq!((done.outcome.as_str(), done.status), ("done", Some(200)));
    assert_eq!((done.run.unwrap().to_string(), done.reason.as_deref()), (run, Some("not needed")));
    assert_eq!((done.address.as_deref(), done.request.as_deref()), (Some("127.0.0.1"), Some("req-1")));
    assert_eq!(done.route, "/api/runs/{id}/cancel");
    assert_eq!((missing.outcome.as_str(), missing.code.as_deref()), ("failed", Some("not_found")));
    assert_eq!(at.audit("outcome=done&action=cancel").await.len(), 1);
    assert_eq!(at.audit("actor=nobody").await, []);
    at.api.stop().await;
}

#[tokio::test]
async fn starts_and_requests_without_a_caller_are_not_recorded() {
    let at = Keys::open(|config| config).await;
    let body = Some(json!({ "workflow": "nap", "input": 1 }).to_string());
    at.call(Role::Operate, Method::POST, "/api/runs", body.clone()).await.expect(201);
    at.api.send(request(Method::POST, "/api/runs", body)).await.expect(401);
    at.call(Role::Read, Method::GET, "/api/audit", None).await.expect(403).refused(ProblemCode::Forbidden);
    assert_eq!(at.audit("").await, []);
    at.api.stop().await;
}

#[tokio::test]
async fn a_read_only_server_records_nothing() {
    let at = Keys::open(Config::read_only).await;
    let cancel = "/api/runs/run_00000000000000000000000000/cancel";
    at.call(Role::Operate, Method::POST, cancel, None).await.expect(403).refused(ProblemCode::ReadOnly);
    at.call(Role::Read, Method::POST, cancel, None).await.expect(403);
    assert_eq!(at.audit("").await, []);
    at.api.stop().await;
}

/// An operate key repeats requests that are allowed and change nothing. The records of what was done stay.
#[tokio::test]
async fn requests_that_change_nothing_are_recorded_at_a_bounded_rate() {
    let at = Keys::open(|config| config).await;
    let run = at.api.client.start_json("nap", 1, "1").await.unwrap().id().to_string();
    let pause = format!("/api/runs/{run}/pause");
    at.call(Role::Operate, Method::POST, &pause, None).await.expect(200);
    for _ in 0..300 {
        let missing = "/api/runs/run_00000000000000000000000000/cancel";
        at.call(Role::Operate, Method::POST, missing, None).await.expect(404);
        at.call(Role::Operate, Method::POST, &pause, None).await.expect(200);
        at.call(Role::Read, Method::POST, &pause, None).await.expect(403);
    }
    let dry = Some(json!({ "action": "cancel", "query": {}, "dry_run": true }).to_string());
    at.call(Role::Operate, Method::POST, "/api/bulk", dry).await.expect(200);
    at.call(Role::Operate, Method::POST, &format!("/api/runs/{run}/resume"), None).await.expect(200);
    let count = async |query: &str| at.audit(&format!("limit=1000&{query}")).await.len();
    assert_eq!(count("actor=operate&outcome=done").await, 2, "all that was done is recorded");
    let unchanged = count("actor=operate&outcome=unchanged").await;
    let failed = count("actor=operate&outcome=failed").await;
    assert_eq!((unchanged, failed), (250, 250), "of one caller 500, whatever they are");
    assert_eq!(count("actor=operate&outcome=intended").await, 0);
    assert_eq!(count("actor=read&outcome=refused").await, 300, "each caller has its own limit");
    at.api.stop().await;
}
