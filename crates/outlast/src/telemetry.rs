//! Telemetry: metrics of this process, trace contexts, and the log lines of attempts as a stream.
//!
//! The library depends on no crate for metrics or traces. Metrics are atomic numbers that are always counted, and
//! [`Client::metrics`](crate::Client::metrics) returns them; `outlast-server` writes them in the format of Prometheus.
//! Traces are spans of the crate `tracing`; a [`TraceBridge`] connects them to a tracing system, and `outlast-otel` is one for
//! OpenTelemetry.

#[cfg(feature = "attempt-log")]
pub(crate) mod attempt_log;
mod families;
mod instruments;
mod labels;
mod process_metrics;
pub(crate) mod trace;

#[cfg(feature = "attempt-log")]
pub use attempt_log::AttemptLogLayer;
pub use families::{HistogramValue, MetricFamily, MetricKind, MetricSample, MetricValue};
pub(crate) use labels::LabelledMetric;
pub(crate) use process_metrics::{ProcessMetrics, StepMetrics, WorkerGauges};
pub use trace::{
    SpanConnection, TraceBridge, TraceBridgeInstalled, TraceContext, continue_trace, install_trace_bridge,
};
