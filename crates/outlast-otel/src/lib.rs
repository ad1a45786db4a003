//! OpenTelemetry traces of Outlast.
//!
//! The library `outlast` creates spans of the crate `tracing` and puts the trace context into the headers of starts and
//! messages. This crate connects both to OpenTelemetry: [`layer`] turns the spans into spans of OpenTelemetry, with the
//! parents and links that the headers name.
//!
//! | item | what it is |
//! |---|---|
//! | [`OtlpTraces`] | the usual case: sends traces to a collector (feature `otlp`, on by default) |
//! | [`layer`] | for programs that have set up OpenTelemetry themselves |
#![cfg_attr(feature = "otlp", doc = "")]
#![cfg_attr(feature = "otlp", doc = include_str!("../README.md"))]

mod bridge;
#[cfg(feature = "otlp")]
mod otlp;

use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

#[cfg(feature = "otlp")]
pub use otlp::{OtlpError, OtlpTraces};

/// The name of the instrumentation.
const SCOPE: &str = "outlast";

/// A layer that sends the spans of this program, those of Outlast among them, to the global tracer provider of OpenTelemetry.
/// Set the provider before the layer is created.
///
/// The spans of Outlast get the attributes `outlast.run.id`, `outlast.workflow.name`, `outlast.workflow.version`,
/// `outlast.queue`, `outlast.step.name`, `outlast.step.attempt`, `outlast.operation` and `error.type`. They never contain
/// payloads.
pub fn layer<S>() -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    layer_with(opentelemetry::global::tracer(SCOPE))
}

/// The layer for a tracer.
fn layer_with<S, T>(tracer: T) -> impl Layer<S> + Send + Sync + 'static
where
    S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    T: opentelemetry::trace::Tracer + Send + Sync + 'static,
    T::Span: Send + Sync,
{
    // A second layer of the same process uses the same bridge, which finds the layer through each span.
    let _ = outlast::install_trace_bridge(bridge::OpenTelemetryBridge);
    tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false)
}
