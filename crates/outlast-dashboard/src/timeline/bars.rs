//! The bars of one row.

use maud::{Markup, html};
use outlast_api::{AttemptJson, OperationJson};
use outlast_core::Timestamp;

use super::axis::Axis;
use super::rows::status_of;

/// Bars that would be narrower are drawn with this width in pixels.
const BAR_LEAST: &str = "3";

/// Bars that are narrower than this part of the width are drawn with the least width.
const NARROW: f64 = 0.5;

/// A bar with a number in it has at least this width in percent.
const NUMBER_LEAST: f64 = 2.4;

/// What all bars of a timeline share.
#[derive(Debug)]
pub(super) struct Drawing<'a> {
    pub(super) axis: &'a Axis,
    pub(super) now: Timestamp,
    /// When the run has ended: open operations ended with it.
    pub(super) ended: Option<Timestamp>,
}

fn percent(x: f64) -> String {
    format!("{x:.2}%")
}

impl Drawing<'_> {
    /// Where an open operation ends: now, or with its run.
    fn end(&self) -> Timestamp {
        self.ended.unwrap_or(self.now)
    }

    fn rect(&self, class: &str, from: Timestamp, to: Timestamp, y: u32, height: u32) -> Markup {
        let (x, end) = (self.axis.x(from), self.axis.x(to));
        let width = end - x;
        let width = if width < NARROW { BAR_LEAST.to_owned() } else { percent(width) };
        html! { rect class=(class) x=(percent(x)) y=(y) width=(width) height=(height) rx=(height.min(6) / 2) {} }
    }

    fn line(&self, class: &str, from: Timestamp, to: Timestamp) -> Markup {
        html! {
            line class=(class) x1=(percent(self.axis.x(from))) x2=(percent(self.axis.x(to))) y1="14" y2="14" {}
        }
    }

    fn mark(&self, shape: &str, class: &str, at: Timestamp) -> Markup {
        html! { use class=(class) href={ "#tl-" (shape) } x=(percent(self.axis.x(at))) y="14" {} }
    }

    /// The bars of an operation.
    pub(super) fn operation(&self, op: &OperationJson) -> Markup {
        match op.kind.as_str() {
            "step" if !op.attempts.is_empty() && op.queue.is_none() => self.step(op),
            "step" | "child" => self.other_run(op),
            "timer" => self.timer(op),
            "hook" => self.hook(op),
            _ => self.mark("dot", &format!("c-{}", status_of(op, self.now)), op.started_at.0),
        }
    }

    /// A step: a rectangle for each attempt, and dashed lines for the pauses.
    fn step(&self, op: &OperationJson) -> Markup {
        let ends = op.attempts.iter().map(|attempt| attempt.ended_at.map(|ended| ended.0));
        let pauses = std::iter::once(None).chain(ends);
        html! {
            @for (attempt, pause_from) in op.attempts.iter().zip(pauses) {
                @let due = attempt.due_at.0;
                @if let Some(from) = pause_from { (self.line("pause", from, due)) }
                @if due > self.now && attempt.ended_at.is_none() { (self.mark("next", "c-waiting", due)) }
                @else { (self.attempt(op, attempt)) }
            }
        }
    }

    fn attempt(&self, op: &OperationJson, attempt: &AttemptJson) -> Markup {
        let from = attempt.due_at.0;
        let to = attempt.ended_at.or(op.ended_at).map_or(self.end(), |ended| ended.0);
        let class = match (&attempt.failure, attempt.ended_at) {
            (Some(_), _) => "failed",
            (None, Some(_)) if op.undoes.is_some() => "compensated",
            (None, Some(_)) => "completed",
            (None, None) if self.ended.is_some() || op.ended_at.is_some() => "cancelled",
            (None, None) => "running",
        };
        let (x, end) = (self.axis.x(from), self.axis.x(to));
        let has_number = op.attempt_count > 1 && end - x >= NUMBER_LEAST;
        html! {
            (self.rect(&format!("bar b-{class}"), from, to, 7, 14))
            @if has_number {
                text class={ "number on-" (class) } x=(percent((x + end) / 2.0)) y="18" { (attempt.number) }
            }
        }
    }

    /// A child or a queued step: a bar in the colour of its status.
    fn other_run(&self, op: &OperationJson) -> Markup {
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        let status = status_of(op, self.now);
        html! {
            (self.rect(&format!("bar b-{status} run"), op.started_at.0, to, 7, 14))
        }
    }

    /// A timer: a thin bar up to now, dashed from there to its moment.
    fn timer(&self, op: &OperationJson) -> Markup {
        let (from, until) = (op.started_at.0, op.until.map(|until| until.0));
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        html! {
            (self.rect("bar timer", from, to, 11, 6))
            @if op.ended_at.is_none() && self.ended.is_none() {
                @if let Some(until) = until.filter(|until| *until > to) { (self.line("future", to, until)) (self.mark("ring", "c-waiting", until)) }
            } @else { (self.mark("dot", &format!("c-{}", status_of(op, self.now)), to)) }
        }
    }

    /// A hook: a hollow bar, a diamond where the payload came, a cap where the wait timed out.
    fn hook(&self, op: &OperationJson) -> Markup {
        let from = op.started_at.0;
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        html! {
            (self.rect("bar hook", from, to, 9, 10))
            @for rejected in &op.rejected { (self.mark("diamond", "c-failed", rejected.at.0)) }
            @match op.status.as_str() {
                "completed" => (self.mark("diamond", "c-completed", to)),
                "open" if self.ended.is_none() => {
                    @if let Some(until) = op.until { (self.line("future", to, until.0)) (self.mark("ring", "c-waiting", until.0)) }
                },
                _ => (self.mark("dot", "c-cancelled", to)),
            }
        }
    }
}
