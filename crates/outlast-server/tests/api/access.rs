//! Who may call the API.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{Method, Request};
use outlast_api::{ProblemCode, Role};
use outlast_server::{Access, AccessError, AccessKey, AccessKeys, Caller, Config};
use serde_json::json;

use crate::common::{Api, request};

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

fn get(path: &str) -> Request<Body> {
    request(Method::GET, path, None)
}

fn start() -> Request<Body> {
    request(Method::POST, "/api/runs", Some(json!({ "workflow": "nap" }).to_string()))
}

/// Check 3, first half: a name that an attacker has pointed to this machine.
#[tokio::test]
async fn a_request_for_another_host_is_refused() {
    let api = Api::local().await;
    for host in [
        "evil.example",
        "evil.example:4700",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "10.0.0.1",
    ] {
        api.send(with(get("/api/runs"), "host", host)).await.expect(421).refused(ProblemCode::WrongHost);
    }
    for host in ["localhost", "LOCALHOST:80", "127.0.0.1:4700", "127.9.9.9", "[::1]:4700"] {
        api.send(with(get("/api/runs"), "host", host)).await.expect(200);
    }
    api.send(with(get("/livez"), "host", "evil.example")).await.expect(200);
    api.stop().await;
    let api = Api::with(Config::local().allow_host("Outlast.example")).await;
    api.send(with(get("/api/runs"), "host", "outlast.example:4700")).await.expect(200);
    api.stop().await;
}

/// Check 3, second half.
#[tokio::test]
async fn a_request_from_a_page_of_another_origin_is_refused() {
    let api = Api::local().await;
    for origin in ["https://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:4700", "x"] {
        for attempt in [start(), get("/api/runs")] {
            api.send(with(attempt, "origin", origin)).await.expect(403).refused(ProblemCode::CrossOrigin);
        }
    }
    for site in ["cross-site", "same-site"] {
        api.send(with(start(), "sec-fetch-site", site)).await.expect(403).refused(ProblemCode::CrossOrigin);
    }
    assert_eq!(api.get("/api/runs").await.json()["items"], json!([]), "nothing was started");
    api.send(with(start(), "origin", "http://127.0.0.1:4700")).await.expect(201);
    api.send(with(start(), "sec-fetch-site", "same-origin")).await.expect(201);
    api.stop().await;
}

#[tokio::test]
async fn without_keys_only_this_machine_is_answered_and_no_proxy() {
    let api = Api::local().await;
    for header in
        ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-anything", "via", "x-real-ip"]
    {
        let problem = api.send(with(get("/api/runs"), header, "for=1.2.3.4")).await.expect(403);
        assert!(problem.refused(ProblemCode::Forbidden).detail.contains("access keys"), "{header}");
    }
    let mut foreign = get("/api/runs");
    foreign.extensions_mut().insert(ConnectInfo("192.0.2.7:1".parse::<SocketAddr>().unwrap()));
    api.send(foreign).await.expect(403).refused(ProblemCode::Forbidden);
    // Without the address of the caller nobody knows whether it is local.
    let response = tower::ServiceExt::oneshot(api.app.clone(), get("/api/runs")).await.unwrap();
    assert_eq!(response.status(), 403);
    api.stop().await;
}

struct Keys {
    keys: AccessKeys,
    secrets: Vec<(Role, String)>,
}

fn keys() -> Keys {
    let made = Role::ALL.map(|role| (role, AccessKey::generate(role.as_str(), role).unwrap()));
    let secrets = made.iter().map(|(role, (key, _))| (*role, key.secret().to_owned())).collect();
    Keys { keys: AccessKeys::new(made.into_iter().map(|(_, (_, stored))| stored)), secrets }
}

#[tokio::test]
async fn a_key_is_needed_and_its_name_is_the_actor() {
    let Keys { keys, secrets } = keys();
    let api = Api::with(Config::keys(keys)).await;
    let refused = api.get("/api/runs").await.expect(401);
    assert_eq!(refused.header("www-authenticate"), "Bearer realm=\"outlast\"");
    refused.refused(ProblemCode::Unauthenticated);
    let (other, _) = AccessKey::generate("other", Role::Admin).unwrap();
    for wrong in [format!("Bearer {}", other.secret()), "Bearer x".into(), format!("Basic {}", secrets[3].1)]
    {
        api.send(with(get("/api/runs"), "authorization", &wrong)).await.expect(401);
    }
    let admin = format!("Bearer {}", secrets[3].1);
    let me = api.send(with(get("/api/me"), "authorization", &admin)).await.expect(200).json();
    assert_eq!(me, json!({ "actor": "admin", "role": "admin", "read_only": false }));
    // A page of another site cannot have a key, so its origin and host do not matter.
    let foreign = with(with(start(), "authorization", &admin), "origin", "https://other.example");
    let run = api.send(with(foreign, "host", "outlast.example")).await.expect(201).json();
    let events = format!("/api/runs/{}/events", run["id"].as_str().unwrap());
    let events = api.send(with(get(&events), "authorization", &admin)).await.json();
    assert_eq!(events["items"][0]["data"]["headers"]["actor"], "admin");
    api.stop().await;
}

#[tokio::test]
async fn guessing_keys_is_slow_and_does_not_affect_valid_keys() {
    let Keys { keys, secrets } = keys();
    let api = Api::with(Config::keys(keys)).await;
    let (wrong, _) = AccessKey::generate("eve", Role::Admin).unwrap();
    let guess = || with(get("/api/me"), "authorization", &format!("Bearer {}", wrong.secret()));
    for _ in 0..5 {
        api.send(guess()).await.expect(401).refused(ProblemCode::Unauthenticated);
    }
    let limited = api.send(guess()).await.expect(429);
    assert_eq!(limited.header("retry-after"), "1");
    limited.refused(ProblemCode::RateLimited);
    let valid = with(get("/api/me"), "authorization", &format!("Bearer {}", secrets[1].1));
    api.send(valid).await.expect(200);
    let mut elsewhere = guess();
    elsewhere.extensions_mut().insert(ConnectInfo("192.0.2.7:1".parse::<SocketAddr>().unwrap()));
    api.send(elsewhere).await.expect(401);
    api.stop().await;
}

#[tokio::test]
async fn a_key_in_an_address_is_refused_and_not_repeated() {
    let Keys { keys, secrets } = keys();
    let api = Api::with(Config::keys(keys)).await;
    let secret = &secrets[3].1;
    let problem = api.get(&format!("/api/runs?key={secret}")).await.expect(400);
    assert!(!problem.text.contains(secret));
    problem.refused(ProblemCode::InvalidRequest);
    api.stop().await;
}

#[tokio::test]
async fn one_idempotency_key_of_two_callers_is_two_keys() {
    let Keys { keys, secrets } = keys();
    let api = Api::with(Config::keys(keys)).await;
    let post = async |secret: &str| {
        let keyed = with(start(), "idempotency-key", "k");
        api.send(with(keyed, "authorization", &format!("Bearer {secret}"))).await.expect(201).json()
    };
    let (first, second) = (post(&secrets[2].1).await, post(&secrets[3].1).await);
    assert_ne!(first["id"], second["id"]);
    api.stop().await;
}

/// Check 33, as far as the API is concerned.
#[tokio::test]
async fn a_read_only_server_changes_nothing() {
    let api = Api::with(Config::local().read_only()).await;
    for route in outlast_server::route_table().into_iter().filter(|route| route.action.is_some()) {
        let attempt = request(route.method.clone(), &route.path.replace(['{', '}'], ""), Some("{}".into()));
        api.send(attempt).await.expect(403).refused(ProblemCode::ReadOnly);
    }
    assert_eq!(api.get("/api/me").await.json()["read_only"], true);
    api.stop().await;
}

struct Header;

#[async_trait::async_trait]
impl Access for Header {
    async fn caller(&self, request: &Parts) -> Result<Caller, AccessError> {
        let user = request.headers.get("x-user").and_then(|user| user.to_str().ok());
        match user {
            None => Err(AccessError::Unauthenticated),
            Some("mallory") => Err(AccessError::Forbidden),
            Some(user) => Ok(Caller { actor: user.into(), scope: user.into(), role: Role::Operate }),
        }
    }
}

#[tokio::test]
async fn an_application_decides_who_its_callers_are() {
    let api = Api::with(Config::access(Header)).await;
    api.get("/api/me").await.expect(401).refused(ProblemCode::Unauthenticated);
    api.send(with(get("/api/me"), "x-user", "mallory")).await.expect(403).refused(ProblemCode::Forbidden);
    let behind_proxy = with(with(get("/api/me"), "x-user", "ada"), "x-forwarded-for", "192.0.2.7");
    assert_eq!(api.send(with(behind_proxy, "host", "shop.example")).await.expect(200).json()["actor"], "ada");
    let forged = with(with(start(), "x-user", "ada"), "origin", "https://evil.example");
    api.send(forged).await.expect(403).refused(ProblemCode::CrossOrigin);
    api.stop().await;
}
