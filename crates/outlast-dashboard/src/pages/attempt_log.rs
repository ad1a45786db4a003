//! What the attempts at a step have logged.

use std::collections::BTreeMap;

use maud::{Markup, html};
use outlast_api::{ChunkFilter, OperationJson, Rfc3339, Service};
use outlast_core::RunId;
use outlast_core::limits::CHUNKS_READ_MAX;
use outlast_core::stream::LOG_STREAM;
use serde::Deserialize;

use crate::site::Site;
use crate::ui::parts::moment;
use crate::ui::words;

/// The lines of a step that are shown: the last ones.
const LINES_SHOWN: usize = 200;

/// The log lines of a step.
#[derive(Debug, Default)]
pub(crate) struct StepLog {
    lines: Vec<LogLine>,
    /// How many older ones are left out.
    omitted: usize,
}

/// A line, as the layer of the library stores it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogLine {
    at: String,
    level: String,
    attempt: u32,
    message: String,
    fields: BTreeMap<String, String>,
}

impl StepLog {
    /// Reads the lines of a step, of the newest of its run. A log that cannot be read is empty: the rest of the page counts.
    pub(crate) async fn read(service: &Service, run: RunId, op: u64) -> Self {
        let filter = ChunkFilter {
            from: Some(-(CHUNKS_READ_MAX as i64)),
            limit: Some(CHUNKS_READ_MAX),
            all_attempts: true,
            ..ChunkFilter::default()
        };
        let Ok(page) = service.chunks(run, LOG_STREAM, &filter).await else { return Self::default() };
        let of_step = page.items.into_iter().filter(|chunk| chunk.op == Some(op));
        let mut lines: Vec<LogLine> =
            of_step.filter_map(|chunk| serde_json::from_str(chunk.value.json?.get()).ok()).collect();
        let omitted = lines.len().saturating_sub(LINES_SHOWN);
        lines.drain(..omitted);
        Self { lines, omitted }
    }

    /// The lines, the oldest first; nothing if there are none.
    pub(crate) fn markup(&self, site: &Site, run: RunId, op: &OperationJson) -> Markup {
        let has_attempts = self.lines.iter().any(|line| line.attempt > 1);
        html! {
            @if !self.lines.is_empty() {
                section.log {
                    header { h3 { "Log" } a href=(site.href(&format!("/runs/{run}/data?stream=outlast%3Alog"))) { "all of the run" } }
                    @if self.omitted > 0 { p.muted { (words::counted(self.omitted as u64, "earlier line")) " left out" } }
                    ol {
                        @for line in &self.lines {
                            li data-level=(line.level) {
                                @if has_attempts { span.n title="attempt" { (line.attempt) } }
                                @if let Ok(at) = line.at.parse::<Rfc3339>() { time.muted datetime=(at) title=(moment(at)) { "+" (words::duration(at.0.since(op.started_at.0))) } }
                                span.level { (line.level) }
                                span.pre { (line.message) @for (name, value) in &line.fields { " " span.muted { (name) "=" } (value) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
