//! People log in with an access key; its role decides what they may do.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, header};
use outlast_api::{Caller, Role};
use outlast_dashboard::{DashboardConfig, LoginKeys};
use outlast_server::{AccessKey, AccessKeys};
use parking_lot::Mutex;
use tower::ServiceExt;

use crate::screens::check_page;
use crate::setup::{Reply, Shop, approval, peer};

/// Keys that can be revoked.
#[derive(Clone, Default)]
struct Keys(Arc<Mutex<AccessKeys>>);

impl LoginKeys for Keys {
    fn caller_of_key(&self, key: &str) -> Option<Caller> {
        self.0.lock().caller(key)
    }

    fn caller_of_id(&self, id: &str) -> Option<Caller> {
        self.0.lock().caller_of_id(id)
    }
}

async fn request(shop: &Shop, method: &str, path: &str, cookie: &str, body: String) -> Reply {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .extension(peer())
        .header(header::HOST, "ops.example")
        .header(header::ORIGIN, "https://ops.example")
        .header(header::COOKIE, cookie)
        .body(Body::from(body))
        .unwrap();
    Reply::of(shop.app.clone().oneshot(request).await.unwrap()).await
}

async fn log_in(shop: &Shop, key: &str) -> Reply {
    request(shop, "POST", "/login?next=%2Fhooks", "", format!("key={key}")).await
}

/// The cookie of a response, as a browser sends it.
fn cookie(reply: &Reply) -> String {
    reply.header("set-cookie").split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_key_becomes_a_cookie_that_ends_with_the_key() {
    let (key, stored) = AccessKey::generate("ada", Role::Operate).unwrap();
    let keys = Keys::default();
    *keys.0.lock() = AccessKeys::new([stored]);
    let shop = Shop::open_with(DashboardConfig::keys(keys.clone()).https()).await;
    let refused = request(&shop, "GET", "/runs?open=true", "", String::new()).await;
    assert_eq!(refused.header("location"), "/login?next=%2Fruns%3Fopen%3Dtrue");
    assert!(request(&shop, "GET", "/login", "", String::new()).await.body.contains("type=\"password\""));

    let reply = log_in(&shop, key.secret()).await;
    assert_eq!((reply.status, reply.header("location")), (303, "/hooks"));
    let set = reply.header("set-cookie").to_owned();
    for part in ["__Host-outlast_", "HttpOnly", "SameSite=Strict", "Secure", "Path=/;", "Max-Age=43200"] {
        assert!(set.contains(part), "{part} in {set}");
    }
    assert!(!set.contains(key.secret()), "the cookie does not contain the key");
    let cookie = cookie(&reply);
    let page = request(&shop, "GET", "/runs", &cookie, String::new()).await;
    check_page("/runs", &page);
    assert!(page.body.contains("ada · operate") && page.body.contains("/logout"));

    let forged = format!("{cookie}0");
    assert_eq!(request(&shop, "GET", "/runs", &forged, String::new()).await.status, 303);
    *keys.0.lock() = AccessKeys::default();
    assert_eq!(
        request(&shop, "GET", "/runs", &cookie, String::new()).await.status,
        303,
        "the key is revoked"
    );
    let stream = request(&shop, "GET", "/runs/live", &cookie, String::new()).await;
    assert_eq!(stream.status, 401);
}

#[tokio::test]
async fn a_reader_sees_no_control_and_a_page_of_another_origin_cannot_log_in() {
    let (key, stored) = AccessKey::generate("eve", Role::Read).unwrap();
    let keys = Keys::default();
    *keys.0.lock() = AccessKeys::new([stored]);
    let shop = Shop::open_with(DashboardConfig::keys(keys)).await;
    let run = shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    let reply = log_in(&shop, key.secret()).await;
    assert!(reply.header("set-cookie").starts_with("outlast_"), "a plain name without HTTPS");
    let cookie = cookie(&reply);
    let page = request(&shop, "GET", &format!("/runs/{run}"), &cookie, String::new()).await;
    assert!(page.body.contains("Read-only") && !page.body.contains("/cancel"));
    let forms = page.body.matches("method=\"post\"").count();
    assert_eq!(forms, 1, "only the one that logs out");
    assert_eq!(
        request(&shop, "POST", &format!("/runs/{run}/cancel"), &cookie, "token=x".into()).await.status,
        403
    );

    let foreign = Request::post("/login")
        .extension(peer())
        .header(header::HOST, "ops.example")
        .header(header::ORIGIN, "https://evil.example")
        .body(Body::from(format!("key={}", key.secret())))
        .unwrap();
    assert_eq!(Reply::of(shop.app.clone().oneshot(foreign).await.unwrap()).await.status, 403);
    let out = request(&shop, "POST", "/logout", &cookie, String::new()).await;
    assert!(out.header("set-cookie").contains("Max-Age=0"));
}

#[tokio::test]
async fn wrong_keys_are_refused_and_then_not_even_tried() {
    let shop = Shop::open_with(DashboardConfig::keys(Keys::default())).await;
    for _ in 0..5 {
        assert_eq!(log_in(&shop, "olk_wrong").await.status, 401);
    }
    assert_eq!(log_in(&shop, "olk_wrong").await.status, 429);
}
