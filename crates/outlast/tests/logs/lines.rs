//! A layer that records lines with their spans, and the open spans.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The records of a layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    lines: Vec<String>,
    /// The number of open spans with these fields.
    open: BTreeMap<String, i64>,
}

impl Lines {
    /// The lines that contain this text, in order.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }

    /// The fields of closed spans that contain this text, sorted.
    pub(crate) fn closed_spans(&self, text: &str) -> Vec<String> {
        let kept = self.0.lock();
        let closed = kept.open.iter().filter(|(fields, open)| **open == 0 && fields.contains(text));
        closed.map(|(fields, _)| fields.clone()).collect()
    }

    /// The number of open spans with this text in their fields.
    pub(crate) fn open_spans(&self, text: &str) -> i64 {
        self.0.lock().open.iter().filter(|(fields, _)| fields.contains(text)).map(|(_, open)| *open).sum()
    }
}

/// The spans of the engine around everything that a run or a client does. They are left out.
const AROUND: [&str; 3] = ["outlast.run", "outlast.start", "outlast.hook.send"];

/// The fields of a span or an event, as text.
#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?} ");
        } else {
            let _ = write!(self.0, "{}={value:?} ", field.name());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if AROUND.contains(&attributes.metadata().name()) {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        *self.0.lock().open.entry(fields.0.clone()).or_default() += 1;
        // Another layer of this type may have stored the same.
        context.span(id).unwrap().extensions_mut().replace(fields);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if let Some(fields) = span.extensions().get::<Fields>() {
            *self.0.lock().open.entry(fields.0.clone()).or_default() -= 1;
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let spans = spans.filter(|span| !AROUND.contains(&span.name()));
        let spans: String = spans.map(|span| format!("{}: ", span.name())).collect();
        self.0.lock().lines.push(format!("{spans}{}", fields.0.trim_end()));
    }
}
