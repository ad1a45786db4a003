//! Which responses are followed by another attempt, and when.

use std::time::Duration;

use outlast::http::{Request, Response};
use outlast::prelude::*;
use outlast_testkit::{TestClock, TestWorld};

use super::requests::{outcome, world};
use super::server::{Answer, Server};

/// The virtual time since the begin of the test.
fn passed(world: &TestWorld) -> Duration {
    world.now().since(TestClock::BEGIN)
}

#[tokio::test]
async fn an_overloaded_server_is_asked_again_when_it_says() {
    for status in [408, 425, 429, 500, 502, 503, 599] {
        let server = Server::start(move |_, count| match count {
            1 => Answer::status(status).with("Retry-After", "90"),
            _ => Answer::text("done"),
        })
        .await;
        let world = world().start().await;
        let (output, _) = outcome(&world, Request::post(server.url("/"))).await;
        assert_eq!(output.unwrap().text().unwrap(), "done", "{status}");
        assert_eq!((server.requests().len(), passed(&world)), (2, Duration::from_secs(90)), "{status}");
    }
}

#[tokio::test]
async fn a_server_cannot_ask_for_years() {
    let server = Server::start(|_, count| match count {
        1 => Answer::status(503).with("Retry-After", "999999999"),
        _ => Answer::text("done"),
    })
    .await;
    let world = world().start().await;
    outcome(&world, Request::get(server.url("/"))).await.0.unwrap();
    assert_eq!(passed(&world), Duration::from_secs(3_600));
}

#[tokio::test]
async fn other_client_errors_fail_at_once_with_the_body() {
    for status in [400, 401, 403, 404, 409, 422] {
        let server =
            Server::start(move |_, _| Answer::Full(status, Vec::new(), b"no such order".to_vec())).await;
        let world = world().start().await;
        let error = outcome(&world, Request::get(server.url("/orders?q=1"))).await.0.unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some(&*format!("http_{status}")), 1));
        assert_eq!(error.details::<serde_json::Value>().unwrap()["body"], "no such order");
        assert_eq!(error.details::<serde_json::Value>().unwrap()["status"], status);
        assert!(error.message().contains(&format!("{}: {status}", server.url("/orders"))), "{error}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test]
async fn an_accepted_status_is_a_response() {
    let server = Server::start(|path, _| Answer::status(if path == "/gone" { 404 } else { 503 })).await;
    let world = world().start().await;
    let gone = outcome(&world, Request::get(server.url("/gone")).accept(404)).await.0;
    let busy = outcome(&world, Request::get(server.url("/busy")).accept(503)).await.0;
    assert_eq!((gone.unwrap().status(), busy.unwrap().status()), (404, 503));
}

#[tokio::test]
async fn the_last_error_tells_what_the_server_said() {
    #[workflow]
    async fn twice(ctx: Context, url: String) -> Result<Response, Error> {
        ctx.fetch(Request::get(url)).attempts(2).await
    }
    let server = Server::start(|_, _| Answer::Full(503, Vec::new(), vec![b'x'; 100_000])).await;
    let world = TestWorld::builder().register(twice).worker(|worker| worker.allow_network("127.0.0.0/8"));
    let world = world.start().await;
    let run = world.client().start(twice, server.url("/")).await.unwrap();
    let error = world.run_until_done(&run).await.unwrap_err();
    assert_eq!((error.code(), error.attempts(), error.is_exhausted()), (Some("http_503"), 2, true));
    assert_eq!(error.class(), Some(ErrorClass::Server));
    assert_eq!(error.details::<serde_json::Value>().unwrap()["body"].as_str().unwrap().len(), 4_096);
}

#[tokio::test]
async fn a_server_that_stalls_or_hangs_up_is_asked_again() {
    for answer in [Answer::Stall, Answer::Cut] {
        let server =
            Server::start(move |_, count| if count == 1 { answer.clone() } else { Answer::text("done") })
                .await;
        let world = world().start().await;
        let request = Request::get(server.url("/")).timeout("300ms");
        assert_eq!(outcome(&world, request).await.0.unwrap().text().unwrap(), "done");
        assert_eq!(server.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let server = Server::start(|_, _| Answer::text("done")).await;
    let url = server.url("/");
    drop(server);
    tokio::task::yield_now().await;
    let world = world().start().await;
    let error = outcome(&world, Request::get(&url)).await.0.unwrap_err();
    assert_eq!((error.class(), error.attempts()), (Some(ErrorClass::Network), 5), "{error}");
    assert!(error.is_exhausted() && error.message().starts_with(&url), "{error}");
    // A plain server does not understand TLS.
    let server = Server::start(|_, _| Answer::text("done")).await;
    let error = outcome(&world, Request::get(format!("https://{}/", server.address)).timeout("1s")).await.0;
    assert_eq!(error.unwrap_err().class(), Some(ErrorClass::Network));
}

#[tokio::test]
async fn a_response_of_100_megabytes_is_refused_and_not_read() {
    for is_announced in [true, false] {
        let answer = Answer::Endless { bytes: 100_000_000, is_announced };
        let server = Server::start(move |_, _| answer.clone()).await;
        let world = world().start().await;
        let error = outcome(&world, Request::get(server.url("/"))).await.0.unwrap_err();
        assert_eq!((error.code(), error.attempts()), (Some("response_too_large"), 1), "{error}");
        assert!(error.message().contains("more than 1048576 bytes"), "{error}");
        assert!(server.sent() < 50_000_000, "{}", server.sent());
    }
}

#[tokio::test]
async fn a_response_at_the_limit_is_read_whole() {
    let server = Server::start(|_, _| Answer::Full(200, Vec::new(), vec![b'x'; 1_000])).await;
    let world = world().start().await;
    let request = |limit| Request::get(server.url("/")).response_bytes_max(limit);
    assert_eq!(outcome(&world, request(1_000)).await.0.unwrap().text().unwrap().len(), 1_000);
    assert!(outcome(&world, request(999)).await.0.is_err());
}
