//! Payloads and access keys are not in logs, metrics, traces or refusals, even at the lowest level of the log.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::Write;
use std::sync::{Arc, LazyLock, Mutex};

use outlast::prelude::*;
use outlast_api::Role;
use outlast_server::{AccessKey, AccessKeys, Config, router, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::fmt::format::FmtSpan;

/// A text that only payloads contain.
const CANARY: &str = "canary-4711-payload";

/// What everything logged, with the fields of all spans.
#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

static LOG: LazyLock<LogText> = LazyLock::new(|| {
    let log = LogText::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_span_events(FmtSpan::FULL)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    log
});

#[step(attempts = 2, initial = "1ms")]
async fn charge(cx: StepContext, card: String) -> Result<String, StepError> {
    cx.heartbeat(&card);
    cx.stream("progress").write(&card).await?;
    if cx.attempt() == 1 { Err(StepError::msg("the bank does not answer")) } else { Ok(card) }
}

#[workflow]
async fn pay(ctx: Context, input: Value) -> Result<Value, Error> {
    let card = input["card"].as_str().unwrap_or_default().to_owned();
    ctx.publish(&json!({ "card": card }));
    let paid = ctx.step(charge, card).await?;
    let answer = ctx.hook::<Value>("answer").await?;
    ctx.child(note, (paid, answer)).await
}

#[workflow]
async fn note(_ctx: Context, paid: String, answer: Value) -> Result<Value, Error> {
    Ok(json!({ "paid": paid, "answer": answer }))
}

#[workflow]
async fn strict(_ctx: Context, number: u64) -> Result<u64, Error> {
    Ok(number)
}

#[workflow]
async fn notified(ctx: Context) -> Result<String, Error> {
    let webhook = ctx.webhook("paid").await?;
    Ok(webhook.next().await?.text()?.to_owned())
}

/// The token of the webhook that a run has opened.
async fn token_of(client: &Client, run: outlast::RunId) -> String {
    loop {
        let operations = client.operations(run).await.unwrap();
        if let Some(token) = operations.iter().find_map(|operation| operation.token.as_deref()) {
            return token.to_owned();
        }
        tokio::task::yield_now().await;
    }
}

/// Sends one request, and returns the status and the body.
async fn send(address: &str, method: &str, path: &str, key: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text[9..12].parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payloads_and_keys_are_nowhere_but_in_the_world() {
    let log = LOG.clone();
    let folder = tempfile::tempdir().unwrap();
    let world =
        outlast::open(&format!("sqlite:{}", folder.path().join("canary.db").display())).await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((pay, note, strict, charge, notified)).start().await.unwrap();
    let client = Client::new(world);
    let keys = [Role::Metrics, Role::Read, Role::Operate]
        .map(|role| AccessKey::generate(role.as_str(), role).unwrap());
    let (wrong, _) = AccessKey::generate("eve", Role::Admin).unwrap();
    let secrets: Vec<String> =
        keys.iter().map(|(key, _)| key.secret().to_owned()).chain([wrong.secret().to_owned()]).collect();
    let stored = AccessKeys::new(keys.into_iter().map(|(_, stored)| stored));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let shutdown = CancellationToken::new();
    let app = router(client.clone(), Config::keys(stored).shutdown(shutdown.clone()));
    let server = tokio::spawn(serve(listener, app, shutdown.clone()));
    let [metrics, read, operate] = [&secrets[0], &secrets[1], &secrets[2]];

    let start = json!({ "workflow": "pay", "input": { "card": CANARY }, "key": "order-1" }).to_string();
    let (status, run) = send(&address, "POST", "/api/runs", operate, &start).await;
    assert_eq!(status, 201, "{run}");
    let id = serde_json::from_str::<Value>(&run).unwrap()["id"].as_str().unwrap().to_owned();
    let payload = json!({ "payload": { "note": CANARY } }).to_string();
    let hook = format!("/api/runs/{id}/hooks/answer");
    assert_eq!(send(&address, "POST", &hook, operate, &payload).await.0, 200);
    let (_, output) = send(&address, "GET", &format!("/api/runs/{id}/output?wait=30s"), read, "").await;
    assert!(output.contains(CANARY), "who may read the output sees it: {output}");

    // Refusals of other requests do not repeat what was stored.
    let mut refusals = Vec::new();
    let conflict = json!({ "workflow": "pay", "input": 1, "key": "order-1" }).to_string();
    for (method, path, key, body) in [
        ("POST", "/api/runs", operate, conflict.as_str()),
        ("POST", hook.as_str(), operate, "{}"),
        ("POST", "/api/runs", read, start.as_str()),
        ("GET", "/api/runs", metrics, ""),
        ("GET", "/api/runs", &secrets[3], ""),
        ("GET", &format!("/api/runs?key={read}"), read, ""),
        ("GET", "/api/runs/run_00000000000000000000000000", read, ""),
    ] {
        let (status, body) = send(&address, method, path, key, body).await;
        assert!((400..500).contains(&status), "{method} {path}: {status} {body}");
        refusals.push(body);
    }
    let webhook_run = client.start(notified, ()).await.unwrap();
    let token = token_of(&client, webhook_run.id()).await;
    for (path, key, expected) in [
        (format!("/api/hooks/{token}"), read, 403),
        (format!("/api/hooks/{token}"), operate, 200),
        (format!("/webhooks/{token}/a?b={token}"), read, 202),
        (format!("/webhooks/{token}0"), read, 404),
    ] {
        let (status, body) = send(&address, "POST", &path, key, "{}").await;
        assert_eq!(status, expected, "{body}");
        refusals.push(body);
    }
    assert_eq!(webhook_run.output().await.unwrap(), "{}");
    let (status, text) = send(&address, "GET", "/metrics", metrics, "").await;
    assert_eq!(status, 200);
    // What a caller sent wrongly may come back to the caller, but must not be logged.
    let invalid = json!({ "workflow": "strict", "input": CANARY }).to_string();
    assert_eq!(send(&address, "POST", "/api/runs", operate, &invalid).await.0, 422);
    let broken = format!("{{\"workflow\": \"{CANARY}\", \"colour\": \"{CANARY}\"");
    assert_eq!(send(&address, "POST", "/api/runs", operate, &broken).await.0, 400);
    shutdown.cancel();
    server.await.unwrap().unwrap();
    worker.stop().await.unwrap();

    let logged = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        logged.contains("/api/hooks/{token}") && logged.contains(&webhook_run.id().to_string()),
        "the audit log"
    );
    assert!(logged.contains("outlast.step") && logged.contains("outlast.http"), "everything is logged");
    for (place, text) in [("the log", &logged), ("metrics", &text)]
        .into_iter()
        .chain(refusals.iter().map(|text| ("a refusal", text)))
    {
        let line = |secret: &str| text.lines().find(|line| line.contains(secret)).map(str::to_owned);
        assert_eq!(line(CANARY), None, "a payload is in {place}");
        for secret in &secrets {
            assert_eq!(line(secret), None, "an access key is in {place}");
        }
        assert_eq!(line(&token), None, "a token is in {place}");
    }
}
