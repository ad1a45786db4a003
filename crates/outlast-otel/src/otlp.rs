//! Sending traces to a collector.

use std::fmt;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::{SCOPE, layer_with};

/// How long the last spans may take to be sent.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// Traces that are sent to a collector by OTLP over HTTP.
///
/// The variables of OpenTelemetry apply: `OTEL_EXPORTER_OTLP_ENDPOINT` (`http://localhost:4318` without it),
/// `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER` and so on. Spans are
/// sent by a thread of their own, in batches. While the collector does not respond, they are dropped: work does not wait
/// for it.
pub struct OtlpTraces {
    provider: SdkTracerProvider,
}

/// Why traces cannot be sent.
#[derive(Debug)]
pub struct OtlpError(String);

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "traces cannot be sent: {}; check the variables OTEL_EXPORTER_OTLP_*", self.0)
    }
}

impl std::error::Error for OtlpError {}

impl OtlpTraces {
    /// Begins to send traces. `service` is the name of the program, unless `OTEL_SERVICE_NAME` is set.
    ///
    /// # Errors
    ///
    /// If a variable is not valid, such as the address of the collector.
    pub fn from_env(service: &str) -> Result<Self, OtlpError> {
        Self::with_exporter(SpanExporter::builder().with_http().build(), service)
    }

    /// Begins to send traces to a collector at this address, such as `http://localhost:4318/v1/traces`, whatever the
    /// variables say about it.
    ///
    /// # Errors
    ///
    /// If the address or another variable is not valid.
    pub fn to(address: &str, service: &str) -> Result<Self, OtlpError> {
        Self::with_exporter(SpanExporter::builder().with_http().with_endpoint(address).build(), service)
    }

    fn with_exporter(
        exporter: Result<SpanExporter, ExporterBuildError>,
        service: &str,
    ) -> Result<Self, OtlpError> {
        let exporter = exporter.map_err(|error| OtlpError(error.to_string()))?;
        let mut resource = Resource::builder();
        if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
            resource = resource.with_service_name(service.to_owned());
        }
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        Ok(Self { provider })
    }

    /// The layer for the program's subscriber; see [`layer`](crate::layer).
    pub fn layer<S>(&self) -> impl Layer<S> + Send + Sync + 'static
    where
        S: Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        layer_with(self.provider.tracer(SCOPE))
    }

    /// Sends what is left, for at most 5 s. Call it before the program ends: the last spans are lost otherwise.
    pub async fn shutdown(self) {
        let provider = self.provider;
        let shutdown = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(SHUTDOWN_TIME));
        match shutdown.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not sent"),
            Err(error) => tracing::warn!(%error, "the last spans were not sent"),
        }
    }
}

impl fmt::Debug for OtlpTraces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OtlpTraces")
    }
}
