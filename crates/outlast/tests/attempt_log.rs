//! The log lines of attempts as a stream of their run, in a process with one subscriber.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::LazyLock;

use outlast::prelude::*;
use outlast::{AttemptLogLayer, RunId};
use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing::{Instrument, debug, info, info_span, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::SubscriberExt;

static LOG: LazyLock<()> = LazyLock::new(|| {
    let lines = AttemptLogLayer::new().with_filter(LevelFilter::INFO);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines)).unwrap();
});

#[step(attempts = 2, initial = "1ms")]
async fn charge(cx: StepContext, cents: u64) -> Result<u64, StepError> {
    info!(cents, card = "visa", "asking the bank");
    debug!("not at this level");
    async { warn!("inside of another span") }.instrument(info_span!("inner")).await;
    if cents == 13 && cx.attempt() == 1 {
        return Err(StepError::msg("declined"));
    }
    Ok(cents)
}

#[step(blocking)]
fn slow(_cx: StepContext) -> u64 {
    info!("on a thread");
    1
}

#[step]
async fn noisy(lines: u64, length: usize) -> u64 {
    let text = "x".repeat(length);
    for line in 0..lines {
        info!(line, "{text}");
    }
    lines
}

#[workflow]
async fn pay(ctx: Context, cents: u64) -> Result<u64, Error> {
    info!("a line of the workflow");
    ctx.step(charge, cents).await?;
    ctx.step(slow, ()).await
}

#[workflow]
async fn much(ctx: Context, lines: u64, length: usize) -> Result<u64, Error> {
    ctx.step(noisy, (lines, length)).await
}

async fn lines_of(client: &Client, run: RunId) -> Vec<Value> {
    let mut lines = Vec::new();
    loop {
        let page = client
            .stream::<Value>(run, "outlast:log")
            .from(lines.len() as i64)
            .with_superseded()
            .await
            .unwrap();
        let has_more = page.has_more();
        lines.extend(page.values());
        if !has_more {
            return lines;
        }
    }
}

async fn world() -> (Client, Worker) {
    LazyLock::force(&LOG);
    let world = outlast::open("memory:").await.unwrap();
    let worker =
        Worker::builder(world.clone()).register((pay, much, charge, slow, noisy)).start().await.unwrap();
    (Client::new(world), worker)
}

#[tokio::test]
async fn what_attempts_log_is_in_the_stream_of_their_run() {
    let (client, worker) = world().await;
    let run = client.start(pay, 13).await.unwrap();
    run.output().await.unwrap();
    let lines = lines_of(&client, run.id()).await;
    let shown: Vec<String> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            format!("{} {} {} {}", text("level"), text("step"), line["attempt"], text("message"))
        })
        .collect();
    assert_eq!(
        shown,
        [
            "INFO charge 1 asking the bank",
            "WARN charge 1 inside of another span",
            "INFO charge 2 asking the bank",
            "WARN charge 2 inside of another span",
            "INFO slow 1 on a thread",
        ]
    );
    assert_eq!(lines[0]["fields"], serde_json::json!({ "cents": "13", "card": "visa" }));
    assert_eq!(lines[0]["target"], "attempt_log");
    assert!(lines[0]["at"].as_str().unwrap().ends_with('Z'));
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_writes_a_thousand_lines_and_says_how_many_it_omits() {
    let (client, worker) = world().await;
    let run = client.start(much, (1_500, 10)).await.unwrap();
    run.output().await.unwrap();
    let lines = lines_of(&client, run.id()).await;
    assert_eq!(lines.len(), 1_001);
    let last = lines.last().unwrap()["message"].as_str().unwrap();
    assert!(last.starts_with("500 more lines were omitted"), "{last}");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn an_attempt_writes_at_most_256_kib_and_long_lines_are_cut() {
    let (client, worker) = world().await;
    let run = client.start(much, (100, 20_000)).await.unwrap();
    run.output().await.unwrap();
    let lines = lines_of(&client, run.id()).await;
    let bytes: usize = lines.iter().map(|line| line["message"].as_str().unwrap().len()).sum();
    assert!(bytes <= 256 * 1024 && lines.len() > 20, "{} lines, {bytes} bytes", lines.len());
    assert!(lines[0]["message"].as_str().unwrap().ends_with("x…"));
    worker.stop().await.unwrap();
}
