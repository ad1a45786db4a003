//! What is sent, what is recorded, and what the workflow gets.

use outlast::http::{FETCH, Request, Response};
use outlast::prelude::*;
use outlast_testkit::{CrashPoint, Rehearsal, TestWorld, TestWorldBuilder, torture};

use super::server::{Answer, Server, header};

/// Fetches what the test says.
#[workflow]
pub(super) async fn fetch(ctx: Context, request: Request) -> Result<Response, Error> {
    ctx.fetch(request).await
}

/// A world whose worker may send requests to servers of the test.
pub(super) fn world() -> TestWorldBuilder<()> {
    TestWorld::builder().register(fetch).worker(|worker| worker.allow_network("127.0.0.1"))
}

/// The outcome of a request, and the history of its run.
pub(super) async fn outcome(world: &TestWorld, request: Request) -> (Result<Response, Error>, String) {
    let run = world.client().start(fetch, request).await.unwrap();
    let output = world.run_until_done(&run).await;
    (output, world.client().export(run.id()).await.unwrap())
}

#[tokio::test]
async fn a_request_has_the_key_of_its_step_and_a_body() {
    let server =
        Server::start(|_, _| Answer::text("[7]").with("X-Left", "3").with("Set-Cookie", "s=1")).await;
    let world = world().start().await;
    let request = Request::post(server.url("/pay?now=1")).json(&[1, 2]).header("X-Trace", "abc");
    let run = world.client().start(fetch, request).await.unwrap();
    let response = world.run_until_done(&run).await.unwrap();
    assert_eq!((response.status(), response.json::<Vec<u8>>().unwrap()), (200, vec![7]));
    assert_eq!((response.header("x-left"), response.header("set-cookie")), (Some("3"), None));
    let sent = server.requests().remove(0);
    assert!(sent.starts_with("POST /pay?now=1 HTTP/1.1\n") && sent.ends_with("\n\n[1,2]"), "{sent}");
    assert_eq!(header(&sent, "idempotency-key"), Some(&*format!("{}.0.0", run.id())));
    assert_eq!(header(&sent, "host"), Some(&*server.address.to_string()));
    assert_eq!(header(&sent, "content-type"), Some("application/json"));
    assert_eq!(header(&sent, "x-trace"), Some("abc"));
    assert_eq!(header(&sent, "connection"), Some("close"));
}

#[tokio::test]
async fn a_secret_is_sent_and_never_recorded() {
    let server = Server::start(|_, _| Answer::text("ok")).await;
    let secret = "sk_live_7f3a";
    let world =
        world().worker(|worker| worker.secret("stripe", secret).secret("password", "hunter2")).start().await;
    let request = Request::get(server.url("/")).bearer("stripe").secret_header("x-api-key", "stripe");
    let (output, history) = outcome(&world, request).await;
    output.unwrap();
    let (output, basic) = outcome(&world, Request::get(server.url("/")).basic("ada", "password")).await;
    output.unwrap();
    let requests = server.requests();
    assert_eq!(header(&requests[0], "authorization"), Some("Bearer sk_live_7f3a"));
    assert_eq!(header(&requests[0], "x-api-key"), Some(secret));
    assert_eq!(header(&requests[1], "authorization"), Some("Basic YWRhOmh1bnRlcjI="));
    assert!(history.contains("stripe") && !history.contains(secret), "{history}");
    assert!(!basic.contains("hunter2") && !basic.contains("YWRhOmh1bnRlcjI="), "{basic}");
    let builder = Worker::builder(world.world()).secret("stripe", secret);
    assert!(!format!("{builder:?}").contains(secret));
}

#[tokio::test]
async fn a_missing_secret_is_named_and_nothing_is_sent() {
    let server = Server::start(|_, _| Answer::text("ok")).await;
    let world = world().start().await;
    let (output, _) = outcome(&world, Request::get(server.url("/")).bearer("stripe")).await;
    let error = output.unwrap_err();
    assert!(error.message().contains("this worker has no secret `stripe`"), "{error}");
    assert!(error.is_exhausted() && server.requests().is_empty());
}

#[tokio::test]
async fn a_request_that_is_not_valid_fails_at_once() {
    let world = world().start().await;
    for (request, why) in [
        (Request::get("ftp://host/"), "must begin with `https://`"),
        (Request::get("https://user:pw@host/"), "`.basic(user, secret)`"),
        (Request::get("https://host/").header("authorization", "Bearer x"), "would be recorded"),
        (Request::get("https://host/").header("host", "other"), "is set by the worker"),
        (Request::get("https://host/").timeout("soon"), "not a duration"),
    ] {
        let (output, _) = outcome(&world, request).await;
        let error = output.unwrap_err();
        assert!(error.message().contains(why), "{error}");
        assert_eq!(error.attempts(), 1, "{error}");
    }
}

#[tokio::test]
async fn an_attempt_after_a_crash_has_the_same_key() {
    let server = Server::start(|_, _| Answer::text("ok")).await;
    let world = world().start().await;
    world.crash_worker(CrashPoint::after_effect_of(FETCH));
    outcome(&world, Request::post(server.url("/"))).await.0.unwrap();
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(header(&requests[0], "idempotency-key"), header(&requests[1], "idempotency-key"));
}

#[tokio::test]
async fn a_request_survives_a_crash_at_every_commit() {
    let server = Server::start(|_, _| Answer::text("ok")).await;
    let report = torture(fetch, Request::post(server.url("/"))).world(world).await;
    assert!(report.crashes() >= 4, "{report}");
    let sqlite = torture(fetch, Request::post(server.url("/"))).world(|| world().on_sqlite()).await;
    assert_eq!(sqlite.commits(), report.commits());
}

#[tokio::test]
async fn every_worker_has_the_step_also_for_a_queue() {
    #[workflow]
    async fn from_queue(ctx: Context, url: String) -> Result<u16, Error> {
        Ok(ctx.fetch(Request::get(url)).queue("net").await?.status())
    }
    let server = Server::start(|_, _| Answer::status(204)).await;
    let world = TestWorld::builder().register(from_queue).start().await;
    let worker = Worker::builder(world.world()).queues(["net"]).allow_network("127.0.0.1").register(fetch);
    let worker = worker.start().await.unwrap();
    let run = world.client().start(from_queue, server.url("/")).await.unwrap();
    assert_eq!(world.run_until_done(&run).await.unwrap(), 204);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_can_be_rehearsed_and_mocked() {
    let request = Request::get("https://bank.example/balance");
    let mut run = Rehearsal::of(fetch, request.clone());
    run.asks_for(FETCH, request.clone());
    run.completes(FETCH, Response::new(200).with_json(&42));
    assert_eq!(run.output().unwrap().json::<u8>().unwrap(), 42);

    let world = TestWorld::builder().register(fetch).mock(FETCH, |_| Ok(Response::new(503))).start().await;
    assert_eq!(outcome(&world, request).await.0.unwrap().status(), 503);
}
