//! What the runs of a world did, as lines of text, and the difference between two worlds.

use std::collections::BTreeMap;

use outlast::{Client, Error, RunId, RunView};
use outlast_core::duration::duration_text;
use outlast_core::{Event, Failure, OpNumber, Payload, Timestamp, TurnRecord};

/// The maximum number of lines that a difference shows of each side.
const LINES_MAX: usize = 8;

/// The maximum number of characters that a line shows of one value.
const VALUE_CHARS_MAX: usize = 200;

/// The operations and ends of all runs of a world.
#[derive(Debug)]
pub(super) struct Observed {
    /// How the tortured run ended.
    end: String,
    /// A line for each operation and each run, in order: the tortured run first.
    lines: Vec<String>,
}

impl Observed {
    pub(super) async fn of(client: &Client, run: RunId, ignores_values: bool) -> Result<Self, Error> {
        let mut writer = LineWriter { ignores_values, lines: Vec::new() };
        writer.add_run(&client.run(run).await?, &client.history(run).await?);
        let end = writer.lines.last().cloned().unwrap_or_default();
        let mut page = client.list().oldest_first().await?;
        loop {
            for view in page.runs.iter().filter(|view| view.id != run) {
                writer.add_run(view, &client.history(view.id).await?);
            }
            let Some(next) = page.next else { break };
            page = client.list().oldest_first().after(next).await?;
        }
        Ok(Self { end, lines: writer.lines })
    }

    pub(super) fn end(&self) -> &str {
        &self.end
    }

    /// The lines that only one of two worlds has; `None` if there are none. The order is not compared, because
    /// operations that are in progress at the same time may end in any order.
    pub(super) fn difference(&self, other: &Self, headings: [&str; 2]) -> Option<String> {
        let mut counts: BTreeMap<&str, i64> = BTreeMap::new();
        self.lines.iter().for_each(|line| *counts.entry(line).or_default() += 1);
        other.lines.iter().for_each(|line| *counts.entry(line).or_default() -= 1);
        let mut text = String::new();
        for (lines, heading, sign) in [(&self.lines, headings[0], 1), (&other.lines, headings[1], -1)] {
            let mut only: Vec<&str> = Vec::new();
            for line in lines {
                if let Some(count) = counts.get_mut(&**line).filter(|count| **count * sign > 0) {
                    *count -= sign;
                    only.push(line);
                }
            }
            if only.is_empty() {
                continue;
            }
            text += &format!("\n  only {heading}:");
            only.iter().take(LINES_MAX).for_each(|line| text += &format!("\n    {line}"));
            if only.len() > LINES_MAX {
                text += &format!("\n    and {} more", only.len() - LINES_MAX);
            }
        }
        (!text.is_empty()).then_some(text)
    }
}

struct LineWriter {
    ignores_values: bool,
    lines: Vec<String>,
}

impl LineWriter {
    /// Adds the operations of a run in the order of their numbers, and its end or status.
    fn add_run(&mut self, view: &RunView, turns: &[TurnRecord]) {
        let mut operations: BTreeMap<OpNumber, (String, Option<String>)> = BTreeMap::new();
        let mut end = format!("is {}", view.status);
        let events = turns.iter().flat_map(|turn| turn.events.iter().map(|event| (event, turn.at)));
        for (event, at) in events {
            if let Some(ended) = self.end(event) {
                end = ended;
            }
            let Some(op) = event.op() else { continue };
            if let Some(request) = self.request(event, at) {
                operations.insert(op, (request, None));
            } else if let (Some(outcome), Some(operation)) = (self.outcome(event), operations.get_mut(&op)) {
                operation.1 = Some(outcome);
            }
        }
        let workflow = &view.workflow;
        for (request, outcome) in operations.into_values() {
            let outcome = outcome.map_or_else(String::new, |outcome| format!(" -> {outcome}"));
            self.lines.push(format!("`{workflow}` requests {request}{outcome}"));
        }
        self.lines.push(format!("`{workflow}` {end}"));
    }

    fn request(&self, event: &Event, at: Timestamp) -> Option<String> {
        Some(match event {
            Event::StepStarted { name, input, .. } => format!("step `{name}`{}", self.value(input)),
            Event::TimerStarted { .. } if self.ignores_values => "a timer".to_owned(),
            Event::TimerStarted { fire_at, .. } => format!("a timer of {}", duration_text(fire_at.since(at))),
            Event::HookOpened { name, .. } => format!("hook `{name}`"),
            Event::ChildStarted(child) => format!("child `{}`{}", child.workflow, self.value(&child.input)),
            Event::ValueRecorded { name, value: Ok(value), .. } => {
                format!("value `{name}`{}", self.value(value))
            }
            Event::ValueRecorded { name, value: Err(failure), .. } => {
                format!("value `{name}`: {}", self.failure(failure))
            }
            Event::TagsSet { tags, .. } if !self.ignores_values => format!("tags {tags:?}"),
            _ => return None,
        })
    }

    fn outcome(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::StepCompleted { output, .. } | Event::ChildCompleted { output, .. } => {
                format!("completed{}", self.value(output))
            }
            Event::StepFailed { failure, .. } | Event::ChildFailed { failure, .. } => self.failure(failure),
            Event::ChildCancelled { failure, .. } => self.failure(failure),
            Event::TimerFired { .. } => "fired".to_owned(),
            Event::StepDropped { .. }
            | Event::TimerCancelled { .. }
            | Event::HookClosed { .. }
            | Event::ChildDropped { .. } => "dropped".to_owned(),
            _ => return None,
        })
    }

    fn end(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::RunCompleted { output } => format!("completes{}", self.value(output)),
            Event::RunFailed { failure } => format!("fails: {}", self.failure(failure)),
            Event::RunCancelled { failure } | Event::RunTerminated { failure, .. } => {
                format!("is cancelled: {}", self.failure(failure))
            }
            _ => return None,
        })
    }

    fn value(&self, payload: &Payload) -> String {
        if self.ignores_values {
            return String::new();
        }
        let text = format!("{payload:?}");
        match text.char_indices().nth(VALUE_CHARS_MAX) {
            // Two long values that begin alike stay different.
            Some((end, _)) => format!(" {}… ({} bytes, {:x})", &text[..end], text.len(), payload.digest()),
            None => format!(" {text}"),
        }
    }

    fn failure(&self, failure: &Failure) -> String {
        if self.ignores_values {
            return format!("failed ({:?})", failure.kind);
        }
        format!("failed ({:?}): {}", failure.kind, failure.message)
    }
}
