//! Requests to webhooks.

use std::sync::LazyLock;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use futures_util::stream::{FuturesUnordered, StreamExt};
use outlast::prelude::*;
use outlast::webhook::StandardWebhooks;
use outlast::{RunId, Status};
use outlast_api::{ProblemCode, Role};
use outlast_server::{AccessKey, AccessKeys, Config, StoredKey};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::common::{Answer, Api, send_to, sqlite};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The messages of a run that has taken a chosen token: the answer of the world.
const TAKEN: u64 = 1;

/// Returns the first request as text, under a token.
#[workflow]
async fn paid(ctx: Context, token: String) -> Result<String, Error> {
    let request = ctx.webhook("paid").token(token).await?.next().await?;
    let headers: Vec<_> = request.headers().map(|(name, _)| name).collect();
    let (method, path, query) = (request.method(), request.path(), request.query());
    Ok(format!("{method} {path}?{query} {headers:?} {:?}", request.bytes()))
}

#[workflow]
async fn signed(ctx: Context, token: String) -> Result<String, Error> {
    let webhook = ctx.webhook("paid").token(token).verify("bank").await?;
    Ok(webhook.next().await?.text()?.to_owned())
}

/// Takes requests and never responds, except to those that say so.
#[workflow]
async fn slow(ctx: Context, token: String) -> Result<(), Error> {
    let webhook = ctx.webhook("order").token(token).methods(["GET", "POST"]).manual_response().await?;
    let mut kept = Vec::new();
    loop {
        let request = webhook.next().await?;
        match request.text()? {
            "respond" => request.respond(201, "made")?,
            "end" => return request.respond(200, "<script>"),
            _ => kept.push(request),
        }
    }
}

#[workflow]
async fn plain(ctx: Context, token: String) -> Result<u32, Error> {
    let metadata = json!({ "webhook": { "methods": ["POST"] } });
    ctx.open_hook::<u32>("paid").token(token).metadata(&metadata).await?.next().await
}

/// A server for strangers: no request of the API would be answered without a key.
async fn api(config: Config) -> Api {
    let (world, folder) = sqlite().await;
    let builder = Worker::builder(world.clone()).register((paid, signed, slow, plain));
    Api::of(builder, world, config).await.keeping(folder)
}

/// The key with which the tests read metrics.
fn metrics_key() -> &'static (AccessKey, StoredKey) {
    static KEY: LazyLock<(AccessKey, StoredKey)> =
        LazyLock::new(|| AccessKey::generate("prometheus", Role::Metrics).unwrap());
    &KEY
}

fn strict() -> Config {
    Config::keys(AccessKeys::new([metrics_key().1.clone()]))
        .allow_host("outlast.example")
        .webhook_secret("bank", SECRET)
}

/// Starts a run, and waits until it holds the token.
async fn open(api: &Api, workflow: &str, token: &str) -> RunId {
    let run = api.client.start_json(workflow, 1, json!(token).to_string()).await.unwrap().id();
    while api.client.token(token).await.unwrap().is_none_or(|view| view.run != run) {
        tokio::task::yield_now().await;
    }
    run
}

fn post(path: &str, body: impl Into<Body>) -> Request<Body> {
    // As a browser of another site would send it, to a host that nobody has allowed.
    let request = Request::builder().method(Method::POST).uri(path).header("host", "evil.example");
    request.header("origin", "https://evil.example").body(body.into()).unwrap()
}

fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

/// The samples of webhooks in the metrics, by outcome.
async fn outcomes(api: &Api) -> Vec<(String, u64)> {
    let (key, _) = metrics_key();
    let request =
        Request::builder().uri("/metrics").header("authorization", format!("Bearer {}", key.secret()));
    let request = request.header("host", "outlast.example").body(Body::empty()).unwrap();
    let text = api.send(request).await.expect(200).text;
    let samples =
        text.lines().filter_map(|line| line.strip_prefix("outlast_webhook_requests_total{outcome=\""));
    samples
        .map(|rest| {
            let (outcome, count) = rest.split_once("\"} ").unwrap();
            (outcome.to_owned(), count.parse().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn a_request_of_a_stranger_reaches_the_run_once() {
    let api = api(strict()).await;
    let run = open(&api, "paid", "t1").await;
    let request = || {
        let request = post("/webhooks/t1/a%20b/c?d=e", &b"\0\xff"[..]);
        let request = with(with(request, "webhook-id", "7"), "cookie", "session=1");
        with(request, "authorization", "Bearer hunter2")
    };
    let first = api.send(request()).await.expect(202);
    assert_eq!((first.text.as_str(), first.header("content-type")), ("", ""));
    assert_eq!(first.header("content-security-policy"), "default-src 'none'; sandbox");
    assert!(first.headers.keys().all(|name| !name.as_str().starts_with("access-control")), "{first:?}");
    api.send(request()).await.expect(202);
    let output: String = api.client.handle(run).output().await.unwrap();
    // The same response after the end of the run, which another request does not get.
    api.send(request()).await.expect(202);
    let other = with(post("/webhooks/t1", "x"), "webhook-id", "8");
    api.send(other).await.expect(410).refused(ProblemCode::Gone);
    assert_eq!(output, r#"POST a b/c?d=e ["host", "origin", "webhook-id"] [0, 255]"#);
    assert_eq!(api.client.run(run).await.unwrap().sent, TAKEN + 1);
    api.stop().await;
}

/// Check 11.
#[tokio::test]
async fn what_is_not_signed_is_not_stored_and_a_plain_hook_does_not_exist() {
    let api = api(strict()).await;
    let (run, plain) = (open(&api, "signed", "t1").await, open(&api, "plain", "t2").await);
    let wrong = api.send(with(post("/webhooks/t1", "paid"), "webhook-id", "7")).await.expect(401);
    assert!(wrong.refused(ProblemCode::NotSigned).detail.contains("webhook-timestamp"));
    let absent = api.send(post("/webhooks/t3", "1")).await.expect(404).refused(ProblemCode::NotFound);
    let hidden = api.send(post("/webhooks/t2", "1")).await.expect(404).refused(ProblemCode::NotFound);
    assert_eq!((absent.detail.as_str(), &absent.title), (hidden.detail.as_str(), &hidden.title));
    for run in [run, plain] {
        assert_eq!(api.client.run(run).await.unwrap().sent, TAKEN, "nothing is stored");
    }
    let now = outlast::core::Clock::now(&outlast::SystemClock);
    let signature = StandardWebhooks::new(SECRET).unwrap().sign("7", now, b"paid");
    let seconds = now.as_micros().div_euclid(1_000_000).to_string();
    let right = with(with(post("/webhooks/t1", "paid"), "webhook-id", "7"), "webhook-timestamp", &seconds);
    api.send(with(right, "webhook-signature", &signature)).await.expect(202);
    assert_eq!(api.client.handle::<String>(run).output().await.unwrap(), "paid");
    api.send(post("/webhooks/t1", "paid")).await.expect(410).refused(ProblemCode::Gone);
    let counted = outcomes(&api).await;
    let expected = [("accepted", 1), ("ended", 1), ("not_signed", 1), ("unknown", 2)];
    assert_eq!(counted, expected.map(|(outcome, count)| (outcome.to_owned(), count)));
    api.stop().await;
}

#[tokio::test]
async fn requests_have_limits() {
    let api = api(strict()).await;
    open(&api, "paid", "t1").await;
    let get = Request::builder().uri("/webhooks/t1").body(Body::empty()).unwrap();
    let refused = api.send(get).await.expect(405);
    assert_eq!(refused.header("allow"), "POST");
    refused.refused(ProblemCode::MethodNotAllowed);
    let zipped = with(post("/webhooks/t1", "1"), "content-encoding", "gzip");
    api.send(zipped).await.expect(415).refused(ProblemCode::UnsupportedMedia);
    let large = api.send(post("/webhooks/t1", vec![b'a'; 1024 * 1024 + 1])).await.expect(413);
    assert_eq!(large.refused(ProblemCode::TooLarge).limit_bytes, Some(1024 * 1024));
    let chunks = futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>(vec![b'a'; 100_000])));
    api.send(post("/webhooks/t1", Body::from_stream(chunks))).await.expect(413);
    let mut limited = None;
    for _ in 0..1_000 {
        let answer = api.send(with(post("/webhooks/t1", "1"), "content-encoding", "gzip")).await;
        if answer.status == 429 {
            limited = Some(answer);
            break;
        }
    }
    let limited = limited.unwrap();
    assert_eq!(limited.header("retry-after"), "1");
    limited.refused(ProblemCode::RateLimited);
    open(&api, "paid", "t2").await;
    api.send(post("/webhooks/t2", "1")).await.expect(202);
    for _ in 0..200 {
        api.send(post("/webhooks/unknown", "1")).await.expect(404);
    }
    api.stop().await;
}

#[tokio::test]
async fn a_workflow_responds_and_its_response_is_no_page_of_the_server() {
    let api = api(strict()).await;
    let run = open(&api, "slow", "t1").await;
    let request = || with(post("/webhooks/t1", "respond"), "idempotency-key", "1");
    let made = api.send(request()).await.expect(201);
    assert_eq!((made.text.as_str(), made.header("content-type")), ("made", "text/plain; charset=utf-8"));
    assert_eq!(
        api.send(request()).await.expect(201).text,
        "made",
        "a repeated request has the same response"
    );
    let last = api.send(post("/webhooks/t1", "end")).await.expect(200);
    assert_eq!(last.header("content-security-policy"), "default-src 'none'; sandbox");
    assert_eq!(last.header("x-content-type-options"), "nosniff");
    api.client.handle::<()>(run).output().await.unwrap();
    let counted = outcomes(&api).await;
    assert_eq!(counted, [("accepted".to_owned(), 2), ("duplicate".to_owned(), 1)]);
    api.stop().await;
}

/// Sends this many requests that nobody responds to, half of them to each of two webhooks.
fn held(api: &Api, count: usize) -> FuturesUnordered<tokio::task::JoinHandle<Answer>> {
    (0..count)
        .map(|number| {
            let (app, request) = (api.app.clone(), post(&format!("/webhooks/t{}", number % 2), "keep"));
            tokio::spawn(async move { send_to(&app, request).await })
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_128_requests_wait_and_a_stopping_server_answers_them() {
    let shutdown = CancellationToken::new();
    let api = api(strict().shutdown(shutdown.clone())).await;
    let runs = [open(&api, "slow", "t0").await, open(&api, "slow", "t1").await];
    let mut waiting = held(&api, 129);
    let first = tokio::time::timeout(Duration::from_secs(20), waiting.next()).await;
    assert_eq!(first.expect("one does not wait").unwrap().unwrap().status, 202);
    for run in runs {
        assert_ne!(api.client.run(run).await.unwrap().status, Status::Completed);
    }
    shutdown.cancel();
    let answers: Vec<_> = waiting.collect().await;
    assert_eq!(answers.len(), 128);
    for answer in answers {
        let answer = answer.unwrap().expect(202);
        assert_eq!(answer.text, "");
    }
    let sent = [api.client.run(runs[0]).await.unwrap().sent, api.client.run(runs[1]).await.unwrap().sent];
    assert_eq!(sent.iter().sum::<u64>(), 129 + 2 * TAKEN, "all are stored");
    api.stop().await;
}

#[tokio::test]
async fn the_api_and_metrics_can_be_switched_off() {
    let all = ["/api/runs", "/api/me", "/openapi.json", "/metrics", "/livez", "/readyz"];
    let statuses = async |config: Config| {
        let api = api(config).await;
        let mut statuses = Vec::new();
        for path in all {
            statuses.push(api.get(path).await.status.as_u16());
        }
        api.stop().await;
        statuses
    };
    assert_eq!(statuses(Config::local().without_api()).await, [404, 404, 404, 200, 200, 200]);
    assert_eq!(statuses(Config::local().without_metrics()).await[2..], [200, 404, 200, 200]);
}

#[tokio::test]
async fn webhooks_can_be_switched_off_and_a_server_that_only_reads_accepts_none() {
    let off = api(strict().without_webhooks()).await;
    open(&off, "paid", "t1").await;
    let refused = off.send(post("/webhooks/t1", "1")).await.expect(404).refused(ProblemCode::NotFound);
    assert_eq!(refused.detail, "there is no such route");
    off.stop().await;
    let reading = api(strict().read_only()).await;
    let run = open(&reading, "paid", "t1").await;
    reading.send(post("/webhooks/t1", "1")).await.expect(403).refused(ProblemCode::ReadOnly);
    assert_eq!(reading.client.run(run).await.unwrap().sent, TAKEN);
    reading.stop().await;
}

#[tokio::test]
async fn a_nested_router_has_webhooks() {
    let api = api(strict()).await;
    let run = open(&api, "paid", "t1").await;
    let nested = axum::Router::new().nest("/a/b", api.app.clone());
    send_to(&nested, post("/a/b/webhooks/t1", "1")).await.expect(202);
    api.client.handle::<String>(run).output().await.unwrap();
    api.stop().await;
}

#[tokio::test]
async fn a_served_worker_knows_the_address_of_its_webhooks() {
    use outlast_server::ServeExt;
    #[workflow]
    async fn asking(ctx: Context) -> Result<String, Error> {
        ctx.webhook("paid").await?.url()
    }
    let world = outlast::open("memory:").await.unwrap();
    let served = Worker::builder(world.clone()).register(asking).serve("127.0.0.1:0").await.unwrap();
    let url = Client::new(world).start(asking, ()).await.unwrap().output().await.unwrap();
    assert!(url.starts_with(&format!("http://{}/webhooks/olt_", served.address())), "{url}");
    served.stop().await.unwrap();
}
