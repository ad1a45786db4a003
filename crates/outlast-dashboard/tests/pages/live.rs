//! Streams of patches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::{Body, BodyDataStream};
use axum::http::{Request, header};
use futures_util::StreamExt;
use outlast::core::{World, WorldError, WorldMethod, WorldWrapper};
use outlast::prelude::*;
use outlast_dashboard::{DashboardConfig, Service};
use tower::ServiceExt;

use crate::setup::{Shop, approval, nap, peer};

async fn stream(shop: &Shop, path: &str) -> BodyDataStream {
    stream_of(&shop.app, path).await
}

async fn stream_of(app: &Router, path: &str) -> BodyDataStream {
    let request =
        Request::get(path).extension(peer()).header(header::HOST, "127.0.0.1").body(Body::empty()).unwrap();
    let response = app.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    response.into_body().into_data_stream()
}

/// Reads until the text of the stream contains this.
async fn until(stream: &mut BodyDataStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = stream.next().await.expect("the stream goes on").unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    text
}

#[tokio::test]
async fn a_list_brings_everything_first_and_then_what_is_new() {
    let shop = Shop::open().await;
    let first = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let mut list = stream(&shop, "/runs/live?").await;
    let text = until(&mut list, &format!("run-{first}")).await;
    assert!(text.contains("event: patch") && text.contains("id=\\\"counts\\\""), "{text}");
    let second = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    until(&mut list, &format!("run-{second}")).await;
}

#[tokio::test]
async fn the_stream_of_a_run_ends_with_the_run() {
    let shop = Shop::open().await;
    let run = shop.client.start(approval, ()).await.unwrap();
    let id = shop.settle(&run).await;
    let mut page = stream(&shop, &format!("/runs/{id}/live?")).await;
    let text = until(&mut page, "id=\\\"panel\\\"").await;
    for part in ["run-head", "why", "lines"] {
        assert!(text.contains(&format!("id=\\\"{part}\\\"")), "{part}");
    }
    run.send("decision", &true).await.unwrap();
    let text = until(&mut page, "event: end").await;
    assert!(text.contains("It completed"), "{text}");
    assert!(page.next().await.is_none());
}

#[tokio::test]
async fn queues_are_live_whatever_their_names() {
    let shop = Shop::open().await;
    let mut list = stream(&shop, "/all-queues/live?").await;
    until(&mut list, "default").await;
    shop.client.start(nap, ()).queue("live").await.unwrap();
    until(&mut list, "nobody serves this queue").await;
    let mut page = stream(&shop, "/queues/live/live?").await;
    until(&mut page, "Nobody serves this queue").await;
}

#[tokio::test]
async fn two_readers_of_the_same_page_both_get_it() {
    let shop = Shop::open().await;
    let id = shop.settle(&shop.client.start(nap, ()).await.unwrap()).await;
    let mut streams = [stream(&shop, "/runs/live?").await, stream(&shop, "/runs/live?").await];
    for list in &mut streams {
        until(list, &format!("run-{id}")).await;
    }
}

#[tokio::test]
async fn a_search_and_later_pages_are_not_live() {
    let shop = Shop::open().await;
    for path in ["/runs/live?text=x", "/runs/live?cursor=x"] {
        assert_eq!(shop.get(path).await.status, 400, "{path}");
    }
}

/// A world that can be stopped.
#[derive(Debug)]
struct StoppableWorld {
    inner: Arc<dyn World>,
    is_stopped: AtomicBool,
}

impl WorldWrapper for StoppableWorld {
    fn inner(&self) -> &dyn World {
        &*self.inner
    }

    async fn call<T: Send>(
        &self,
        _: WorldMethod,
        call: impl Future<Output = Result<T, WorldError>> + Send,
    ) -> Result<T, WorldError> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(WorldError::unavailable("the database does not answer"));
        }
        call.await
    }
}

/// Check 32, as far as the world is concerned. What a browser shows then is a test with a browser.
#[tokio::test]
async fn a_page_is_told_that_the_world_has_stopped_and_goes_on_when_it_is_back() {
    let inner = outlast::open("memory:").await.unwrap();
    let world = Arc::new(StoppableWorld { inner, is_stopped: AtomicBool::new(false) });
    let client = Client::new(world.clone() as Arc<dyn World>);
    let app = outlast_dashboard::router(Service::new(client.clone()), DashboardConfig::local());
    let first = client.start(nap, ()).await.unwrap();
    let mut list = stream_of(&app, "/runs/live?").await;
    let mut page = stream_of(&app, &format!("/runs/{}/live?", first.id())).await;
    until(&mut list, &format!("run-{}", first.id())).await;
    until(&mut page, "event: rev").await;
    world.is_stopped.store(true, Ordering::Relaxed);
    for stream in [&mut list, &mut page] {
        let text = until(stream, "event: trouble").await;
        assert!(!text.contains("event: patch"), "what is shown stays: {text}");
    }
    world.is_stopped.store(false, Ordering::Relaxed);
    for stream in [&mut list, &mut page] {
        until(stream, "event: rev").await;
    }
    let second = client.start(nap, ()).await.unwrap();
    until(&mut list, &format!("run-{}", second.id())).await;
}
