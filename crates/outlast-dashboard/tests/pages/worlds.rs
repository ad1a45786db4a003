//! Every screen on the worlds that store runs on disk, at the root and nested, without JavaScript.

use axum::Router;
use outlast_dashboard::DashboardConfig;
use throwaway::needs_postgres;

use crate::screens::{check_page, runs};
use crate::setup::{Shop, get};

async fn check_screens(url: &str) {
    let shop = Shop::open_on(url, DashboardConfig::local()).await;
    let mut paths: Vec<String> = [
        "/runs",
        "/runs?open=true",
        "/runs?text=order",
        "/runs/new",
        "/runs?status=failed&tag=customer:ada",
        "/runs/bulk?bulk=pause&workflow=approval",
        "/failures",
        "/failures?tab=stuck",
        "/workflows",
        "/workflows/checkout",
        "/schedules",
        "/schedules/new",
        "/hooks",
        "/queues",
        "/workers",
        "/settings",
        "/settings/prune",
        "/schedules/hourly",
        "/schedules/hourly/edit",
        "/schedules/hourly/pause",
    ]
    .map(str::to_owned)
    .into();
    shop.client.schedule("hourly").every("1h").start_json("nap", 1, "null").await.unwrap();
    let worker = shop.client.workers().await.unwrap()[0].session;
    paths.push(format!("/workers/{worker}"));
    for run in runs(&shop).await {
        paths.push(format!("/runs/selected?action=restart&run={run}"));
        for part in [
            "",
            "?op=0",
            "?view=table",
            "?axis=linear",
            "/events",
            "/data",
            "/children",
            "/ops/0",
            "/cancel",
            "/restart",
        ] {
            paths.push(format!("/runs/{run}{part}"));
        }
    }
    for (prefix, app) in [("", shop.app.clone()), ("/a/b", Router::new().nest("/a/b", shop.app.clone()))] {
        for path in &paths {
            check_page(path, &get(&app, &format!("{prefix}{path}")).await);
        }
    }
}

#[tokio::test]
async fn every_screen_is_complete_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    check_screens(&format!("sqlite:{}", folder.path().join("shop.db").display())).await;
}

#[tokio::test]
async fn every_screen_is_complete_on_postgres() {
    needs_postgres!();
    let url = throwaway::postgres::for_tests();
    let and = if url.contains('?') { '&' } else { '?' };
    check_screens(&format!("{url}{and}schema=dashboard_{}", std::process::id())).await;
}
