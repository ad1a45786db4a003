//! The dashboard works under any path, beside the API, and for whom the application lets through.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::{Next, from_fn};
use outlast_api::{Caller, Role};
use outlast_dashboard::{DashboardConfig, Service};
use outlast_server::Config;
use tower::ServiceExt;

use crate::screens::check_page;
use crate::setup::{Reply, Shop, approval, get, peer};

/// Every address on the page begins with the prefix, or is relative to the page.
fn check_addresses(prefix: &str, path: &str, page: &Reply) {
    for attribute in ["href", "src", "action", "data-live"] {
        for value in page.attributes(attribute) {
            let is_right = value.starts_with(&format!("{prefix}/"))
                || value.is_empty()
                || value.starts_with('#')
                || value.starts_with('?');
            assert!(is_right, "{path}: {attribute}={value}");
        }
    }
}

#[tokio::test]
async fn all_addresses_follow_the_prefix() {
    let shop = Shop::open().await;
    let run = shop.settle(&shop.client.start(approval, ()).key("k").tag("a", "b").await.unwrap()).await;
    let pages = || shop.app.clone();
    let apps = [
        ("", pages()),
        ("/a/b", Router::new().nest("/a/b", pages())),
        ("/a/b", Router::new().nest("/a", Router::new().nest("/b", pages()))),
        ("/ops", Router::new().nest_service("/ops", pages())),
        ("", Router::new().fallback_service(pages())),
    ];
    for (prefix, app) in apps {
        for path in
            ["/runs", "/runs/new", "/failures", "/hooks", "/queues", "/workers", "/workflows", "/settings"]
        {
            let page = get(&app, &format!("{prefix}{path}")).await;
            check_page(path, &page);
            check_addresses(prefix, path, &page);
        }
        for part in ["", "?op=0", "/events", "/data", "/children", "/cancel", "/send?op=0"] {
            let page = get(&app, &format!("{prefix}/runs/{run}{part}")).await;
            check_page(part, &page);
            check_addresses(prefix, part, &page);
            let style = page.attributes("href").into_iter().find(|href| href.ends_with(".css")).unwrap();
            assert_eq!(get(&app, &style).await.status, 200, "{style}");
        }
        let root = get(&app, if prefix.is_empty() { "/" } else { prefix }).await;
        assert_eq!((root.status, root.header("location")), (303, format!("{prefix}/runs").as_str()));
    }
}

#[tokio::test]
async fn pages_and_api_are_one_application() {
    let shop = Shop::open().await;
    let service = Service::new(shop.client.clone());
    let both = || {
        let pages = outlast_dashboard::router(service.clone(), DashboardConfig::local());
        outlast_server::router(shop.client.clone(), Config::local()).fallback_service(pages)
    };
    for (prefix, app) in [("", both()), ("/ops/outlast", Router::new().nest("/ops/outlast", both()))] {
        let page = get(&app, &format!("{prefix}/runs")).await;
        check_page("/runs", &page);
        check_addresses(prefix, "/runs", &page);
        assert_eq!(get(&app, &format!("{prefix}/livez")).await.status, 200);
    }
}

#[tokio::test]
async fn only_this_machine_is_local() {
    let shop = Shop::open().await;
    let refused = [
        (header::HOST, "evil.example", 421),
        (header::FORWARDED, "for=10.0.0.1", 403),
        (header::VIA, "1.1 proxy", 403),
    ];
    for (name, value, status) in refused {
        let mut request = Request::get("/runs")
            .extension(peer())
            .header(header::HOST, "127.0.0.1")
            .body(Body::empty())
            .unwrap();
        request.headers_mut().insert(name.clone(), value.parse().unwrap());
        let reply = Reply::of(shop.app.clone().oneshot(request).await.unwrap()).await;
        assert_eq!(reply.status, status, "{name}");
        assert!(!reply.body.contains("memory"), "a stranger learns nothing about the world");
    }
}

#[tokio::test]
async fn the_application_decides_who_may_do_what() {
    let shop = Shop::open_with(DashboardConfig::callers()).await;
    let run = shop.settle(&shop.client.start(approval, ()).await.unwrap()).await;
    assert_eq!(shop.get("/runs").await.status, 401);
    let with_role = |role: Role| {
        shop.app.clone().layer(from_fn(move |mut request: Request, next: Next| async move {
            let caller = Caller { actor: "ada".into(), scope: "ada".into(), role };
            request.extensions_mut().insert(caller);
            next.run(request).await
        }))
    };
    assert_eq!(get(&with_role(Role::Metrics), "/runs").await.status, 403);
    let reader = get(&with_role(Role::Read), &format!("/runs/{run}")).await;
    check_page("read", &reader);
    assert!(!reader.body.contains("/cancel"));
    let operator = get(&with_role(Role::Operate), &format!("/runs/{run}")).await;
    assert!(operator.body.contains("/cancel") && operator.body.contains("ada · operate"));
    assert_eq!(get(&with_role(Role::Operate), &format!("/runs/{run}/delete")).await.status, 403);
    assert_eq!(get(&with_role(Role::Admin), &format!("/runs/{run}/delete")).await.status, 200);
}
