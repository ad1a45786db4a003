//! Every screen on the worlds that store runs on disk, at the root and nested, without JavaScript.

use axum::Router;
use outlast_dashboard::DashboardConfig;
use throwaway::needs_postgres;

use crate::screen_paths::{self, SCHEDULE};
use crate::screens::{check_page, runs};
use crate::setup::{Shop, get};

async fn check_screens(url: &str) {
    let shop = Shop::open_on(url, DashboardConfig::local()).await;
    shop.client.schedule(SCHEDULE).every("1h").start_json("nap", 1, "null").await.unwrap();
    let worker = shop.client.workers().await.unwrap()[0].session;
    let mut paths = screen_paths::paths(&runs(&shop).await);
    paths.push(format!("/workers/{worker}"));
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
