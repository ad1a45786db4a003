//! Check 13: a trace is one trace although two processes take part in it.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use outlast::prelude::*;
use tracing_subscriber::layer::SubscriberExt;

/// The variable with the world of the other process.
const VARIABLE: &str = "OUTLAST_TEST_TRACES_WORLD";

#[step]
async fn charge(cents: u64) -> Result<u64, StepError> {
    Ok(cents)
}

#[workflow]
async fn receipt(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.step(charge, cents).await
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<u64, Error> {
    ctx.step(charge, cents).await?;
    ctx.step(charge, cents + 1).await?;
    ctx.child(receipt, cents).await
}

fn exporter() -> InMemorySpanExporter {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    opentelemetry::global::set_tracer_provider(provider);
    let subscriber = tracing_subscriber::registry().with(outlast_otel::layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    exporter
}

/// The other process: a worker until its input is closed, which then prints its spans. It is a test that does nothing by
/// itself, so that it can be started from this file.
#[tokio::test]
async fn worker_in_another_process() {
    let Ok(url) = std::env::var(VARIABLE) else { return };
    let spans = exporter();
    let world = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(world).register((checkout, receipt, charge)).start().await.unwrap();
    println!("\nworker is ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    worker.stop().await.unwrap();
    for span in spans.get_finished_spans().unwrap() {
        println!("span {} {} {}", span.name, span.span_context.trace_id(), span.parent_span_id);
    }
}

/// The worker's process, which is killed when a test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_and_what_another_process_does_for_it_are_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("shop.db").display());
    let spans = exporter();
    let client = Client::new(outlast::open(&url).await.unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "worker_in_another_process", "--nocapture"]).env(VARIABLE, &url);
    let mut child = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut output = BufReader::new(child.0.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("worker is ready") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the other process has ended");
    }
    assert_eq!(client.start(checkout, 42).await.unwrap().output().await.unwrap(), 42);
    drop(child.0.stdin.take());
    let mut printed = String::new();
    output.read_to_string(&mut printed).unwrap();

    let own = spans.get_finished_spans().unwrap();
    let start = own.iter().find(|span| span.name == "outlast.start").unwrap();
    assert!(!own.iter().any(|span| span.name == "outlast.run"), "the other process has executed it");
    let (trace, id) = (start.span_context.trace_id().to_string(), start.span_context.span_id().to_string());
    let of_trace: Vec<Vec<&str>> = printed
        .lines()
        .filter_map(|line| line.strip_prefix("span "))
        .map(|span| span.split(' ').collect())
        .filter(|span: &Vec<&str>| span[1] == trace)
        .collect();
    let count = |name: &str| of_trace.iter().filter(|span| span[0] == name).count();
    assert_eq!((count("outlast.run"), count("outlast.step")), (2, 3), "{printed}");
    let first = of_trace.iter().filter(|span| span[0] == "outlast.run" && span[2] == id).count();
    assert_eq!(first, 1, "the first segment is a child of the start");
}
