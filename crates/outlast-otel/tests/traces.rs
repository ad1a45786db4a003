//! Traces of runs, with spans in memory. All tests share the process and its subscriber, so each looks at its own runs.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use opentelemetry::trace::{SpanId, SpanKind, Status, TraceId};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use outlast::prelude::*;
use outlast::{RunId, World};
use outlast_testkit::TestClock;
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

static SPANS: LazyLock<InMemorySpanExporter> = LazyLock::new(|| {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    opentelemetry::global::set_tracer_provider(provider);
    let subscriber = tracing_subscriber::registry().with(outlast_otel::layer());
    tracing::subscriber::set_global_default(subscriber).unwrap();
    exporter
});

#[step]
async fn charge(cents: u64) -> Result<u64, StepError> {
    tracing::info!(secret = "canary-4711", "asking the bank");
    Ok(cents)
}

#[step(attempts = 1)]
async fn declined(_cents: u64) -> Result<u64, StepError> {
    Err(StepError::fatal("the card canary-4711 was declined"))
}

#[workflow]
async fn receipt(ctx: Context, cents: u64) -> Result<String, Error> {
    Ok(format!("{} paid", ctx.step(charge, cents).await?))
}

#[workflow]
async fn checkout(ctx: Context, cents: u64) -> Result<String, Error> {
    ctx.step(charge, cents).await?;
    ctx.step(charge, cents + 1).await?;
    ctx.child(receipt, cents).await
}

#[workflow]
async fn sleeper(ctx: Context) -> Result<(), Error> {
    ctx.step(charge, 1).await?;
    ctx.sleep("1h").await?;
    ctx.step(charge, 2).await?;
    Ok(())
}

#[workflow]
async fn asks(ctx: Context) -> Result<u64, Error> {
    ctx.hook::<u64>("answer").await
}

#[workflow]
async fn fails(ctx: Context) -> Result<u64, Error> {
    ctx.step(declined, 7).await
}

#[workflow]
async fn queues(ctx: Context) -> Result<u64, Error> {
    ctx.step(charge, 7).queue("other").await
}

#[workflow]
async fn parallel(ctx: Context) -> Result<u64, Error> {
    let (a, b) = try_join!(ctx.step(charge, 1), ctx.step(charge, 2))?;
    Ok(a + b)
}

/// A span as the tests look at it.
#[derive(Clone, Debug)]
struct Seen {
    name: String,
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    kind: SpanKind,
    links: Vec<(TraceId, SpanId)>,
    attributes: Vec<(String, String)>,
    status: Status,
}

impl Seen {
    fn of(data: &SpanData) -> Self {
        let link =
            |link: &opentelemetry::trace::Link| (link.span_context.trace_id(), link.span_context.span_id());
        Self {
            name: data.name.to_string(),
            trace: data.span_context.trace_id(),
            id: data.span_context.span_id(),
            parent: data.parent_span_id,
            kind: data.span_kind.clone(),
            links: data.links.iter().map(link).collect(),
            attributes: data
                .attributes
                .iter()
                .map(|pair| (pair.key.to_string(), pair.value.to_string()))
                .collect(),
            status: data.status.clone(),
        }
    }

    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// The ended spans of these runs, in the order of their ends.
fn spans_of(runs: &[RunId]) -> Vec<Seen> {
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    let all = SPANS.get_finished_spans().unwrap();
    let seen = all.iter().map(Seen::of);
    seen.filter(|span| span.attribute("outlast.run.id").is_some_and(|run| runs.iter().any(|own| own == run)))
        .collect()
}

fn named<'a>(spans: &'a [Seen], name: &str) -> Vec<&'a Seen> {
    spans.iter().filter(|span| span.name == name).collect()
}

struct Stage {
    clock: TestClock,
    world: Arc<dyn World>,
    client: Client,
}

impl Stage {
    async fn new() -> Self {
        LazyLock::force(&SPANS);
        let clock = TestClock::new();
        let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
        let client = Client::new(world.clone());
        Self { clock, world, client }
    }

    async fn worker(&self) -> Worker {
        let code = (checkout, receipt, sleeper, asks, fails, queues, parallel, charge, declined);
        Worker::builder(self.world.clone()).queues(["default", "other"]).register(code).start().await.unwrap()
    }
}

/// Waits until the segment that ended the run has ended too: the output is known a moment before.
async fn ended(spans: impl Fn() -> Vec<Seen>, segments: usize) -> Vec<Seen> {
    for _ in 0..10_000 {
        let found = spans();
        if named(&found, "outlast.run").len() >= segments {
            return found;
        }
        tokio::task::yield_now().await;
    }
    panic!("the segments did not end: {:#?}", spans());
}

/// Check 13, first half.
#[tokio::test]
async fn a_start_two_steps_and_a_child_are_one_trace() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let caller = tracing::info_span!("request");
    let start = async { stage.client.start(checkout, 42).await.unwrap() };
    let run = start.instrument(caller.clone()).await;
    drop(caller);
    assert_eq!(run.output().await.unwrap(), "42 paid");
    let child = stage.client.list().parent(run.id()).await.unwrap().runs[0].id;
    let spans = ended(|| spans_of(&[run.id(), child]), 3).await;
    let start = named(&spans, "outlast.start")[0].clone();
    assert_eq!(start.kind, SpanKind::Producer);
    let request =
        SPANS.get_finished_spans().unwrap().iter().map(Seen::of).find(|span| span.id == start.parent);
    assert_eq!(request.unwrap().name, "request", "the parent of the start is the caller's span");

    let segments = named(&spans, "outlast.run");
    let first = segments.iter().find(|span| span.parent == start.id).unwrap();
    assert_eq!((first.trace, first.kind.clone()), (start.trace, SpanKind::Consumer));
    let of_child =
        segments.iter().find(|span| span.attribute("outlast.run.id") == Some(&child.to_string())).unwrap();
    assert_eq!(
        (of_child.trace, of_child.parent),
        (start.trace, first.id),
        "the child belongs to the segment that asked"
    );
    let steps = named(&spans, "outlast.step");
    assert_eq!(steps.len(), 3);
    assert!(
        steps.iter().all(|step| step.trace == start.trace && [first.id, of_child.id].contains(&step.parent))
    );
    assert_eq!(steps[0].attribute("outlast.step.name"), Some("charge"));
    assert_eq!(steps[0].attribute("outlast.step.attempt"), Some("1"));
    assert_eq!(steps[0].attribute("outlast.operation"), Some("0"));
    assert_eq!(first.attribute("outlast.workflow.name"), Some("checkout"));
    assert_eq!(first.attribute("outlast.queue"), Some("default"));

    // The segment after the child's end is a new trace with a link to the start, and to the child that woke it.
    let later = segments.iter().find(|span| span.trace != start.trace).unwrap();
    assert!(
        later.links.contains(&(start.trace, start.id))
            && later.links.contains(&(of_child.trace, of_child.id))
    );
    worker.stop().await.unwrap();
}

/// Check 13, second half; the second worker replays the first step, and creates no span for it.
#[tokio::test]
async fn after_an_hour_a_new_trace_links_to_the_start() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let run = stage.client.start(sleeper, ()).await.unwrap();
    stage.clock.settle().await;
    worker.stop().await.unwrap();
    let worker = stage.worker().await;
    stage.clock.advance(Duration::from_secs(3_600));
    run.output().await.unwrap();
    let spans = ended(|| spans_of(&[run.id()]), 2).await;
    let start = named(&spans, "outlast.start")[0];
    let segments = named(&spans, "outlast.run");
    assert_eq!(segments.len(), 2, "{segments:#?}");
    let (first, second) = (segments[0], segments[1]);
    assert_eq!((first.trace, first.parent), (start.trace, start.id));
    assert_ne!(second.trace, start.trace);
    assert_eq!(second.parent, SpanId::INVALID);
    assert_eq!(second.links, [(start.trace, start.id)]);
    let steps = named(&spans, "outlast.step");
    assert_eq!(
        steps.iter().map(|step| step.parent).collect::<Vec<_>>(),
        [first.id, second.id],
        "no span for a replay"
    );
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn the_segment_that_a_message_wakes_links_to_its_send() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let run = stage.client.start(asks, ()).await.unwrap();
    stage.clock.settle().await;
    stage.client.send(run.id(), "answer", &7).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 7);
    let spans = ended(|| spans_of(&[run.id()]), 2).await;
    let send = named(&spans, "outlast.hook.send")[0];
    assert_eq!(send.kind, SpanKind::Producer);
    let woken = named(&spans, "outlast.run")[1];
    assert!(woken.links.contains(&(send.trace, send.id)), "{woken:#?}");
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_queued_step_belongs_to_the_segment_that_asked_for_it() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let run = stage.client.start(queues, ()).await.unwrap();
    run.output().await.unwrap();
    let queued = stage.client.list().parent(run.id()).queued_steps().await.unwrap().runs[0].id;
    let spans = ended(|| spans_of(&[run.id(), queued]), 3).await;
    let start = named(&spans, "outlast.start")[0];
    let segments = named(&spans, "outlast.run");
    let asked = segments.iter().find(|span| span.parent == start.id).unwrap();
    let of_step = segments.iter().find(|span| span.parent == asked.id).unwrap();
    assert_eq!(of_step.trace, start.trace);
    assert_eq!(named(&spans, "outlast.step")[0].parent, of_step.id);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn concurrent_attempts_belong_to_their_segment() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let run = stage.client.start(parallel, ()).await.unwrap();
    assert_eq!(run.output().await.unwrap(), 3);
    let spans = ended(|| spans_of(&[run.id()]), 1).await;
    let segment = named(&spans, "outlast.run")[0].id;
    let steps = named(&spans, "outlast.step");
    assert_eq!(steps.iter().map(|step| step.parent).collect::<Vec<_>>(), [segment, segment]);
    worker.stop().await.unwrap();
}

#[tokio::test]
async fn a_failed_attempt_has_a_type_and_no_message() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let run = stage.client.start(fails, ()).await.unwrap();
    run.output().await.unwrap_err();
    let spans = ended(|| spans_of(&[run.id()]), 1).await;
    let step = named(&spans, "outlast.step")[0];
    assert_eq!(step.attribute("error.type"), Some("failed"));
    assert_eq!(step.status, Status::error("failed"));
    assert!(!format!("{spans:?}").contains("canary-4711"), "{spans:#?}");
    worker.stop().await.unwrap();
}

/// The caller may have a context from elsewhere, such as an HTTP request.
#[tokio::test]
async fn a_context_in_the_headers_of_a_start_is_its_parent() {
    let stage = Stage::new().await;
    let worker = stage.worker().await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let run = stage.client.start(asks, ()).header("traceparent", parent).await.unwrap();
    stage.clock.settle().await;
    let spans = ended(|| spans_of(&[run.id()]), 1).await;
    let start = named(&spans, "outlast.start")[0];
    assert_eq!(start.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(start.parent.to_string(), "b7ad6b7169203331");
    assert_eq!(named(&spans, "outlast.run")[0].parent, start.id);
    worker.stop().await.unwrap();
}
