//! The bridge between spans of `tracing` and contexts in headers.

use std::str::FromStr;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState};
use outlast::{SpanConnection, TraceBridge, TraceContext};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Finds the OpenTelemetry span of each span.
#[derive(Debug)]
pub(crate) struct OpenTelemetryBridge;

impl TraceBridge for OpenTelemetryBridge {
    fn context(&self, span: &Span) -> Option<TraceContext> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then(|| written(&context))
    }

    fn connect(&self, span: &Span, connection: SpanConnection<'_>) {
        if let Some(parent) = connection.parent.and_then(read) {
            // It fails only for spans that have begun or are not traced.
            let _ = span.set_parent(Context::new().with_remote_span_context(parent));
        }
        for link in connection.links.iter().filter_map(read) {
            span.add_link(link);
        }
        for (name, value) in connection.attributes {
            span.set_attribute(*name, value.clone());
        }
    }

    fn failed(&self, span: &Span, error_type: &str) {
        span.set_attribute("error.type", error_type.to_owned());
        span.set_status(Status::error(error_type.to_owned()));
    }
}

fn written(context: &SpanContext) -> TraceContext {
    let sampled = context.trace_flags() & TraceFlags::SAMPLED;
    let parent = format!("00-{}-{}-{:02x}", context.trace_id(), context.span_id(), sampled.to_u8());
    let state = context.trace_state().header();
    TraceContext::new(parent, Some(state).filter(|state| !state.is_empty()))
}

/// The span that the headers name; `None` if they are not valid. Later versions of the format begin like version 0.
fn read(context: &TraceContext) -> Option<SpanContext> {
    let fields: Vec<&str> = context.parent.trim().split('-').collect();
    let (version, trace, span, flags) = match fields[..] {
        [version, trace, span, flags] => (version, trace, span, flags),
        [version, trace, span, flags, ..] if version != "00" => (version, trace, span, flags),
        _ => return None,
    };
    let is_hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if !is_hex(version, 2) || version == "ff" || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2)
    {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let state = context.state.as_deref().and_then(|state| TraceState::from_str(state).ok());
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    let context = SpanContext::new(trace, span, flags, true, state.unwrap_or_default());
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        for (parent, state) in [(PARENT, None), (PARENT, Some("vendor=1,other=2".to_owned()))] {
            let context = TraceContext::new(parent, state);
            assert_eq!(written(&read(&context).unwrap()), context);
        }
    }

    #[test]
    fn headers_that_are_not_valid_have_no_context() {
        for parent in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
        ] {
            assert!(read(&TraceContext::new(parent, None)).is_none(), "{parent}");
        }
        let later = TraceContext::new(format!("cc{}-what-comes-later", &PARENT[2..]), None);
        assert!(read(&later).is_some(), "a later version");
        let state = TraceContext::new(PARENT, Some("not a state".into()));
        assert!(read(&state).is_some(), "the state is optional");
    }
}
