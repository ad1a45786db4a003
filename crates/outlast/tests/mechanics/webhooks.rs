//! Hooks whose payloads are HTTP requests.

use std::time::Duration;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::webhook::{
    AcceptedWebhook, HmacSha256, StandardWebhooks, WebhookEntry, WebhookError, WebhookRefusal, WebhookReply,
    WebhookRequest, WebhookSecrets,
};
use outlast::{RunId, Status, TokenDelivery};

use super::test_engine::{TestEngine, on_every_world, pause_between_reads};

on_every_world! {
    a_webhook_takes_requests_in_order,
    the_url_of_a_webhook_is_recorded,
    a_worker_without_a_public_url_has_webhooks_without_urls,
    a_delivery_id_is_delivered_once,
    a_request_with_a_wrong_late_or_missing_signature_does_not_wake_the_run,
    a_repeated_request_with_a_right_signature_does_not_wake_the_run,
    several_secrets_and_the_plain_signature_are_accepted,
    a_workflow_responds,
    a_request_that_nobody_responds_to_is_accepted,
    a_fixed_response_has_its_headers,
    the_token_of_a_plain_hook_is_no_webhook,
    a_webhook_whose_run_has_ended_or_that_is_closed_accepts_nothing,
    a_repeated_request_has_its_response_after_the_end_of_the_run,
    a_repeated_request_has_its_response_after_the_webhook_is_closed,
    a_webhook_accepts_its_methods_only,
    invalid_settings_are_errors_of_the_operation,
    a_payload_that_is_not_a_request_is_rejected,
    a_wait_for_a_request_has_a_timeout,
    a_webhook_outlives_a_generation,
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Takes this many requests, and returns their bodies.
#[workflow]
async fn notified(ctx: Context, count: u32) -> Result<Vec<Vec<u8>>, Error> {
    let webhook = ctx.webhook("paid").token("paid").await?;
    let mut bodies = Vec::new();
    for _ in 0..count {
        bodies.push(webhook.next().await?.bytes().to_vec());
    }
    Ok(bodies)
}

/// The webhook under a token, as soon as it is open.
async fn entry(engine: &TestEngine, token: &str) -> WebhookEntry {
    loop {
        engine.settle().await;
        match engine.client.webhook(token).await.unwrap() {
            Some(entry) => return entry,
            None => pause_between_reads().await,
        }
    }
}

async fn accept(entry: &WebhookEntry, request: WebhookRequest) -> AcceptedWebhook {
    entry.accept(request, &WebhookSecrets::new()).await.unwrap()
}

async fn refused(entry: &WebhookEntry, request: WebhookRequest, secrets: &WebhookSecrets) -> WebhookRefusal {
    match entry.accept(request, secrets).await {
        Ok(accepted) => panic!("{accepted:?}"),
        Err(refusal) => refusal,
    }
}

/// The token of the webhook that a run has opened.
async fn token_of(engine: &TestEngine, run: RunId) -> String {
    engine.settle().await;
    let turns = engine.turns(run).await;
    let mut events = turns.iter().flat_map(|turn| &turn.events);
    let token = events.find_map(|event| match event {
        Event::TokenRequested(requested) => Some(requested.token.to_string()),
        _ => None,
    });
    token.unwrap()
}

async fn a_webhook_takes_requests_in_order(engine: TestEngine) {
    let worker = engine.worker(notified).await;
    let run = engine.client.start(notified, 3).await.unwrap();
    let webhook = entry(&engine, "paid").await;
    assert_eq!((webhook.run(), webhook.name()), (run.id(), "paid"));
    for body in [&b"1"[..], &[0, 0xff]] {
        let accepted = accept(&webhook, WebhookRequest::post(body)).await;
        assert_eq!((accepted.run(), accepted.is_duplicate()), (run.id(), false));
        assert_eq!(accepted.reply().await.unwrap(), WebhookReply::new(202, ""));
    }
    // What was accepted survives a crash.
    engine.crash(worker);
    accept(&webhook, WebhookRequest::post("\0 3")).await;
    let _worker = engine.worker(notified).await;
    assert_eq!(run.output().await.unwrap(), [&b"1"[..], &[0, 0xff], b"\0 3"]);
}

#[workflow]
async fn urls(ctx: Context) -> Result<(String, Vec<String>), Error> {
    let webhook = ctx.webhook("paid").await?;
    let request = webhook.next().await?;
    let seen = [request.method(), request.path(), request.query(), request.header("x-id").unwrap_or("none")];
    Ok((webhook.url()?, seen.map(str::to_owned).to_vec()))
}

async fn the_url_of_a_webhook_is_recorded(engine: TestEngine) {
    let worker = engine.builder().public_url("https://one.example/a/").register(urls).start().await.unwrap();
    let run = engine.client.start(urls, ()).await.unwrap();
    let token = token_of(&engine, run.id()).await;
    assert_eq!(token.len(), 68, "256 bits: {token}");
    engine.crash(worker);
    let _worker = engine.builder().public_url("https://two.example").register(urls).start().await.unwrap();
    let webhook = entry(&engine, &token).await;
    assert_eq!(webhook.terms().url(&token).unwrap(), format!("https://one.example/a/webhooks/{token}"));
    let request = WebhookRequest::post("").with_path("a/b").with_query("c=d&e").with_header("X-Id", "7");
    accept(&webhook, request).await;
    let (url, seen) = run.output().await.unwrap();
    assert_eq!(url, format!("https://one.example/a/webhooks/{token}"));
    assert_eq!(seen, ["POST", "a/b", "c=d&e", "7"]);
}

async fn a_worker_without_a_public_url_has_webhooks_without_urls(engine: TestEngine) {
    let _worker = engine.worker(urls).await;
    let run = engine.client.start(urls, ()).await.unwrap();
    let token = token_of(&engine, run.id()).await;
    let webhook = entry(&engine, &token).await;
    assert_eq!(webhook.terms().url(&token), None);
    accept(&webhook, WebhookRequest::post("")).await;
    let error = run.output().await.unwrap_err();
    assert!(error.message().contains(".public_url("), "{error}");
    let refused = engine.builder().public_url("ftp://a").register(urls).start().await;
    assert!(refused.unwrap_err().message().contains("ftp://a"));
}

async fn a_delivery_id_is_delivered_once(engine: TestEngine) {
    let _worker = engine.worker(notified).await;
    let run = engine.client.start(notified, 3).await.unwrap();
    let webhook = entry(&engine, "paid").await;
    let send = async |header: &str, id: &str, body: &str| {
        accept(&webhook, WebhookRequest::post(body).with_header(header, id)).await.is_duplicate()
    };
    assert!(!send("webhook-id", "1", "a").await);
    assert!(send("webhook-id", "1", "a").await);
    assert!(!send("Idempotency-Key", "2", "b").await);
    assert!(send("idempotency-key", "2", "b").await);
    // Neither the key of another sender nor the length of an id matters.
    engine.client.send(run.id(), "other", &1).key("3").await.unwrap();
    assert!(!send("webhook-id", &"3".repeat(10_000), "c").await);
    assert_eq!(run.output().await.unwrap(), [b"a", b"b", b"c"]);
}

#[workflow]
async fn verified(ctx: Context, hmac: bool) -> Result<String, Error> {
    let webhook = ctx.webhook("paid").token("verified");
    let webhook = if hmac { webhook.verify_hmac("bank", "X-Signature") } else { webhook.verify("bank") };
    Ok(webhook.await?.next().await?.text()?.to_owned())
}

fn secrets() -> WebhookSecrets {
    WebhookSecrets::new().with("bank", SECRET)
}

/// A request with a signature that was made this many seconds before now.
fn signed(engine: &TestEngine, id: &str, body: &str, age: u64) -> WebhookRequest {
    let at = engine.clock.now().minus(Duration::from_secs(age));
    let seconds = at.as_micros().div_euclid(1_000_000);
    let signature = StandardWebhooks::new(SECRET).unwrap().sign(id, at, body.as_bytes());
    WebhookRequest::post(body)
        .with_header("webhook-id", id)
        .with_header("webhook-timestamp", seconds.to_string())
        .with_header("webhook-signature", signature)
}

async fn a_request_with_a_wrong_late_or_missing_signature_does_not_wake_the_run(engine: TestEngine) {
    let _worker = engine.worker(verified).await;
    let run = engine.client.start(verified, false).await.unwrap();
    let webhook = entry(&engine, "verified").await;
    let before = engine.view(run.id()).await;
    let wrong = signed(&engine, "1", "paid", 0).with_body("changed");
    let late = signed(&engine, "1", "paid", 301);
    for (request, expected) in [
        (wrong, WebhookError::BadSignature),
        (late, WebhookError::BadTime),
        (WebhookRequest::post("paid"), WebhookError::BadHeader("webhook-id")),
    ] {
        let refusal = refused(&webhook, request, &secrets()).await;
        assert_eq!(refusal.status(), 401);
        assert!(matches!(&refusal, WebhookRefusal::NotSigned(error) if *error == expected), "{refusal:?}");
    }
    let request = || signed(&engine, "1", "paid", 0);
    let unknown = refused(&webhook, request(), &WebhookSecrets::new()).await;
    assert!(matches!(&unknown, WebhookRefusal::NoSecret(name) if name == "bank"), "{unknown:?}");
    let unusable = refused(&webhook, request(), &WebhookSecrets::new().with("bank", "hunter2!")).await;
    assert!(matches!(unusable, WebhookRefusal::BadSecret(..)), "{unusable:?}");
    assert!(!unusable.to_string().contains("hunter2") && !unusable.to_string().contains("bank"));
    assert_eq!((unknown.status(), unusable.status()), (503, 503));
    let after = engine.view(run.id()).await;
    assert_eq!((after.sent, after.updated_at), (before.sent, before.updated_at), "nothing is stored");
    webhook.accept(request(), &secrets()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "paid");
}

async fn a_repeated_request_with_a_right_signature_does_not_wake_the_run(engine: TestEngine) {
    let run = engine.client.start(verified, false).await.unwrap();
    let worker = engine.worker(verified).await;
    let webhook = entry(&engine, "verified").await;
    worker.stop().await.unwrap();
    let request = signed(&engine, "1", "paid", 200);
    assert!(!webhook.accept(request.clone(), &secrets()).await.unwrap().is_duplicate());
    let sent = engine.view(run.id()).await.sent;
    assert!(webhook.accept(request.clone(), &secrets()).await.unwrap().is_duplicate());
    // The id is signed: another header cannot make the request a new one.
    let renamed = request.clone().with_header("idempotency-key", "2");
    assert!(webhook.accept(renamed, &secrets()).await.unwrap().is_duplicate());
    engine.advance("101s").await;
    assert!(matches!(
        refused(&webhook, request, &secrets()).await,
        WebhookRefusal::NotSigned(WebhookError::BadTime)
    ));
    assert_eq!(engine.view(run.id()).await.sent, sent);
}

async fn several_secrets_and_the_plain_signature_are_accepted(engine: TestEngine) {
    let _worker = engine.worker(verified).await;
    let run = engine.client.start(verified, true).await.unwrap();
    let webhook = entry(&engine, "verified").await;
    let secrets = WebhookSecrets::new().with("bank", "new").with("bank", "old");
    assert_eq!(secrets.names().collect::<Vec<_>>(), ["bank"]);
    assert!(!format!("{secrets:?}").contains("old"));
    let request = |secret: &str| {
        let signature = HmacSha256::new(secret).unwrap().sign(b"paid");
        WebhookRequest::post("paid").with_header("x-signature", signature)
    };
    assert_eq!(refused(&webhook, request("other"), &secrets).await.status(), 401);
    assert_eq!(refused(&webhook, WebhookRequest::post("paid"), &secrets).await.status(), 401);
    webhook.accept(request("old"), &secrets).await.unwrap();
    assert_eq!(run.output().await.unwrap(), "paid");
}

/// Responds to the first request, and drops the second.
#[workflow]
async fn responding(ctx: Context) -> Result<(), Error> {
    let webhook = ctx.webhook("order").token("order").manual_response().await?;
    let request = webhook.next().await?;
    let bad = request.respond_as(&WebhookReply::new(200, "").header("set-cookie", "a=b"));
    assert!(bad.unwrap_err().message().contains("set-cookie"));
    request.respond(201, format!("order {}", request.text()?))?;
    assert!(request.respond(201, "again").is_err());
    drop(webhook.next().await?);
    ctx.hook::<u32>("end").await.map(drop)
}

async fn a_workflow_responds(engine: TestEngine) {
    let worker = engine.worker(responding).await;
    engine.client.start(responding, ()).await.unwrap();
    let webhook = entry(&engine, "order").await;
    let request = WebhookRequest::post("7").with_header("webhook-id", "1");
    let accepted = accept(&webhook, request.clone()).await;
    assert_eq!(accepted.immediate_reply(), None);
    let expected = WebhookReply::new(201, "order 7");
    assert_eq!(accepted.reply().await.unwrap(), expected);
    // Whoever delivers it again gets the same response, also after a crash.
    engine.crash(worker);
    let _worker = engine.worker(responding).await;
    let again = accept(&webhook, request).await;
    assert!(again.is_duplicate());
    assert_eq!(again.reply().await.unwrap(), expected);
}

async fn a_request_that_nobody_responds_to_is_accepted(engine: TestEngine) {
    let _worker = engine.worker(responding).await;
    let run = engine.client.start(responding, ()).await.unwrap();
    let webhook = entry(&engine, "order").await;
    accept(&webhook, WebhookRequest::post("1")).await.reply().await.unwrap();
    let dropped = accept(&webhook, WebhookRequest::post("2")).await;
    assert_eq!(dropped.reply().await.unwrap(), WebhookReply::new(202, ""));
    let left = accept(&webhook, WebhookRequest::post("3")).await;
    engine.send(run.id(), "end", 1).await;
    assert_eq!(left.reply().await.unwrap(), WebhookReply::new(202, ""), "the run has ended");
}

#[workflow]
async fn fixed(ctx: Context) -> Result<(), Error> {
    let reply = WebhookReply::new(200, "[]").header("Content-Type", "application/json");
    let webhook = ctx.webhook("poll").token("poll").methods(["POST", "GET"]).respond_as(reply).await?;
    let error = webhook.next().await?.respond(200, "").unwrap_err();
    assert!(error.message().contains(".manual_response()"), "{error}");
    webhook.close();
    ctx.hook::<u32>("end").await.map(drop)
}

async fn a_fixed_response_has_its_headers(engine: TestEngine) {
    let _worker = engine.worker(fixed).await;
    engine.client.start(fixed, ()).await.unwrap();
    let webhook = entry(&engine, "poll").await;
    let reply = accept(&webhook, WebhookRequest::new("GET")).await.immediate_reply().unwrap();
    assert_eq!(reply, WebhookReply::new(200, "[]").header("content-type", "application/json"));
}

/// A hook whose metadata look like the terms of a webhook.
#[workflow]
async fn plain(ctx: Context) -> Result<(), Error> {
    let pretended = serde_json::json!({ "methods": ["POST"], "webhook": {} });
    let open = ctx.open_hook::<u32>("paid").token("plain").metadata(&pretended).await?;
    open.next().await.map(drop)
}

async fn the_token_of_a_plain_hook_is_no_webhook(engine: TestEngine) {
    let _worker = engine.worker(plain).await;
    engine.client.start(plain, ()).await.unwrap();
    while engine.client.token("plain").await.unwrap().is_none() {
        engine.settle().await;
    }
    for token in ["plain", "unknown", "", &"a".repeat(10_000)] {
        assert!(engine.client.webhook(token).await.unwrap().is_none(), "{token}");
    }
}

async fn a_webhook_whose_run_has_ended_or_that_is_closed_accepts_nothing(engine: TestEngine) {
    let _worker = engine.worker((notified, fixed)).await;
    let run = engine.client.start(notified, 1).await.unwrap();
    let before = entry(&engine, "paid").await;
    accept(&before, WebhookRequest::post("1")).await;
    run.output().await.unwrap();
    // Also with what was looked up before the end.
    let ended = engine.client.webhook("paid").await.unwrap().unwrap();
    for webhook in [before, ended] {
        let refusal = refused(&webhook, WebhookRequest::post("2"), &WebhookSecrets::new()).await;
        assert_eq!(refusal.status(), 410, "{refusal:?}");
    }
    engine.client.start(fixed, ()).await.unwrap();
    let open = entry(&engine, "poll").await;
    accept(&open, WebhookRequest::post("1")).await;
    while engine.client.webhook("poll").await.unwrap().is_some() {
        engine.settle().await;
    }
    assert_eq!(refused(&open, WebhookRequest::post("2"), &WebhookSecrets::new()).await.status(), 410);
}

/// Responds to one request and ends.
#[workflow]
async fn once(ctx: Context) -> Result<String, Error> {
    let webhook = ctx.webhook("order").token("once").manual_response().verify("bank").await?;
    let request = webhook.next().await?;
    request.respond(201, format!("order {}", request.text()?))?;
    Ok(request.text()?.to_owned())
}

async fn a_repeated_request_has_its_response_after_the_end_of_the_run(engine: TestEngine) {
    let _worker = engine.worker((once, notified)).await;
    let run = engine.client.start(once, ()).await.unwrap();
    let webhook = entry(&engine, "once").await;
    let request = |id: &str| signed(&engine, id, "7", 0);
    let accepted = webhook.accept(request("1"), &secrets()).await.unwrap();
    assert_eq!(accepted.reply().await.unwrap(), WebhookReply::new(201, "order 7"));
    run.output().await.unwrap();
    let ended = engine.client.webhook("once").await.unwrap().unwrap();
    for webhook in [webhook, ended] {
        let again = webhook.accept(request("1"), &secrets()).await.unwrap();
        assert!(again.is_duplicate());
        assert_eq!(again.reply().await.unwrap(), WebhookReply::new(201, "order 7"));
        // A new one is refused, and a forged one learns nothing.
        assert_eq!(refused(&webhook, request("2"), &secrets()).await.status(), 410);
        let forged = request("1").with_body("8");
        assert_eq!(refused(&webhook, forged, &secrets()).await.status(), 401);
    }
    // Without a response of the workflow.
    let run = engine.client.start(notified, 1).await.unwrap();
    let webhook = entry(&engine, "paid").await;
    let request = || WebhookRequest::post("a").with_header("idempotency-key", "1");
    accept(&webhook, request()).await;
    run.output().await.unwrap();
    let sent = engine.view(run.id()).await.sent;
    let again = accept(&engine.client.webhook("paid").await.unwrap().unwrap(), request()).await;
    assert!(again.is_duplicate());
    assert_eq!(again.reply().await.unwrap(), WebhookReply::new(202, ""));
    assert_eq!(engine.view(run.id()).await.sent, sent);
}

/// Responds to one request, closes the webhook, and goes on.
#[workflow]
async fn approval(ctx: Context) -> Result<(), Error> {
    let webhook = ctx.webhook("approve").manual_response().await?;
    webhook.next().await?.respond(200, "thank you")?;
    webhook.close();
    ctx.hook::<u32>("end").await.map(drop)
}

async fn a_repeated_request_has_its_response_after_the_webhook_is_closed(engine: TestEngine) {
    let _worker = engine.worker(approval).await;
    let run = engine.client.start(approval, ()).await.unwrap();
    let token = token_of(&engine, run.id()).await;
    let request = || WebhookRequest::post("").with_header("webhook-id", "1");
    let first = accept(&entry(&engine, &token).await, request()).await;
    assert_eq!(first.reply().await.unwrap(), WebhookReply::new(200, "thank you"));
    engine.wait_for_history(run.id(), |history| history.contains("token_closed")).await;
    let closed = entry(&engine, &token).await;
    let again = accept(&closed, request()).await;
    assert_eq!(again.reply().await.unwrap(), WebhookReply::new(200, "thank you"));
    let other = WebhookRequest::post("").with_header("webhook-id", "2");
    assert_eq!(refused(&closed, other, &WebhookSecrets::new()).await.status(), 410);
    engine.advance("7d").await;
    assert!(engine.client.webhook(&token).await.unwrap().is_none());
}

async fn a_webhook_accepts_its_methods_only(engine: TestEngine) {
    let _worker = engine.worker((notified, fixed)).await;
    engine.client.start(notified, 1).await.unwrap();
    engine.client.start(fixed, ()).await.unwrap();
    let posts =
        refused(&entry(&engine, "paid").await, WebhookRequest::new("GET"), &WebhookSecrets::new()).await;
    assert!(matches!(&posts, WebhookRefusal::Method(allowed) if allowed == &["POST"]), "{posts:?}");
    let both =
        refused(&entry(&engine, "poll").await, WebhookRequest::new("PUT"), &WebhookSecrets::new()).await;
    assert!(matches!(&both, WebhookRefusal::Method(allowed) if allowed == &["GET", "POST"]), "{both:?}");
    let large = WebhookRequest::post(vec![b'a'; 1024 * 1024 + 1]);
    assert_eq!(refused(&entry(&engine, "paid").await, large, &WebhookSecrets::new()).await.status(), 413);
}

#[workflow]
async fn invalid(ctx: Context) -> Result<Vec<String>, Error> {
    let mut errors = Vec::new();
    for webhook in [
        ctx.webhook("a").methods(["TRACE"]),
        ctx.webhook("a").methods([""; 0]),
        ctx.webhook("a").verify(""),
        ctx.webhook("a").respond_with(99, ""),
        ctx.webhook("a").token("a/b"),
        ctx.webhook("a").token(".."),
        ctx.webhook(""),
    ] {
        errors.push(webhook.await.unwrap_err().message().to_owned());
    }
    Ok(errors)
}

async fn invalid_settings_are_errors_of_the_operation(engine: TestEngine) {
    let _worker = engine.worker(invalid).await;
    let errors = engine.client.start(invalid, ()).await.unwrap().output().await.unwrap();
    let expected = [
        "`TRACE`",
        "no methods",
        "name of a secret",
        "status 99",
        "part of its URL",
        "part of its URL",
        "hook",
    ];
    for (error, expected) in errors.iter().zip(expected) {
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(errors.len(), expected.len());
}

async fn a_payload_that_is_not_a_request_is_rejected(engine: TestEngine) {
    let _worker = engine.worker(notified).await;
    let run = engine.client.start(notified, 1).await.unwrap();
    let webhook = entry(&engine, "paid").await;
    engine.client.send(run.id(), "paid", &42).await.unwrap();
    assert_eq!(engine.client.send_to_token("paid", &42).await.unwrap(), TokenDelivery::Delivered);
    accept(&webhook, WebhookRequest::post("1")).await;
    assert_eq!(run.output().await.unwrap(), [b"1"]);
    assert_eq!(engine.history(run.id()).await.matches("hook_received paid 42").count(), 2);
}

#[workflow]
async fn patient(ctx: Context) -> Result<bool, Error> {
    let webhook = ctx.webhook("paid").token("patient").await?;
    Ok(webhook.next().timeout("3d").await.is_err_and(|error| error.is_timeout()))
}

async fn a_wait_for_a_request_has_a_timeout(engine: TestEngine) {
    let _worker = engine.worker(patient).await;
    let run = engine.client.start(patient, ()).await.unwrap();
    entry(&engine, "patient").await;
    assert_eq!(engine.status(run.id()).await, Status::Waiting);
    engine.advance("3d").await;
    assert!(run.output().await.unwrap());
}

#[workflow]
async fn endless(ctx: Context, total: u64) -> Result<u64, Error> {
    let webhook = ctx.webhook("add").token("add").await?;
    match webhook.next().await?.json()? {
        0 => Ok(total),
        more => ctx.continue_as(&(total + more)),
    }
}

async fn a_webhook_outlives_a_generation(engine: TestEngine) {
    let _worker = engine.worker(endless).await;
    let run = engine.client.start(endless, 0).await.unwrap();
    for body in ["3", "4", "0"] {
        accept(&entry(&engine, "add").await, WebhookRequest::post(body)).await;
    }
    assert_eq!(run.output().await.unwrap(), 7);
}
