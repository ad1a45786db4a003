//! The rows of a timeline, and its axis.

use maud::{Markup, html};
use outlast_api::{OperationJson, RunJson};
use outlast_core::Timestamp;

use super::axis::{Axis, Scale};
use super::bars::Drawing;
use crate::site::Site;
use crate::ui::badge::shown_status;
use crate::ui::parts::{icon, run_link, took};
use crate::ui::words;

/// The timeline of a run.
#[derive(Debug)]
pub(crate) struct Timeline<'a> {
    pub(crate) run: &'a RunJson,
    pub(crate) operations: &'a [OperationJson],
    /// The operation that the panel shows.
    pub(crate) selected: Option<u64>,
    pub(crate) scale: Scale,
    /// The query of a row's link, without the operation.
    pub(crate) query: &'a str,
    /// Whether the rows begin with the first operation of the run.
    pub(crate) is_first_page: bool,
    /// Whether the rows end with the last operation of the run.
    pub(crate) is_last_page: bool,
}

/// The status that an operation is drawn with.
pub(crate) fn status_of(op: &OperationJson, now: Timestamp) -> &'static str {
    match op.status.as_str() {
        "completed" if op.undoes.is_some() => "compensated",
        "completed" => "completed",
        "failed" => "failed",
        "cancelled" | "dropped" | "abandoned" => "cancelled",
        _ if op.kind == "step" && op.retry_at.is_none_or(|time| time.0 <= now) => "running",
        _ if op.kind == "child" => "running",
        _ => "waiting",
    }
}

/// The icon of an operation's kind.
pub(crate) fn operation_icon(op: &OperationJson) -> &'static str {
    match op.kind.as_str() {
        "step" if op.undoes.is_some() => "compensated",
        "step" => "step",
        "timer" => "timer",
        "hook" => "hook",
        "child" => "child",
        "compensation" => "compensated",
        _ => "value",
    }
}

impl Timeline<'_> {
    /// The timeline as a part of the page.
    pub(crate) fn render(&self, site: &Site) -> Markup {
        let axis = self.axis(site.now);
        let drawing = Drawing { axis: &axis, now: site.now, ended: self.run.ended_at.map(|ended| ended.0) };
        let (undoing, plain): (Vec<_>, Vec<_>) =
            self.operations.iter().partition(|op| op.kind == "step" && op.undoes.is_some());
        html! {
            div.timeline #timeline {
                (shapes())
                div.axis { span {} (self.axis_picture(&axis)) span {} }
                div.rows {
                    (self.grid(&axis, site.now))
                    ol data-rows {
                        @if self.is_first_page { (self.run_row(site, &axis)) }
                        @for op in plain { (self.row(site, &drawing, op)) }
                        @if !undoing.is_empty() {
                            li.group { (icon(site, "compensated")) "Compensations" }
                            @for op in undoing { (self.row(site, &drawing, op)) }
                        }
                    }
                }
            }
        }
    }

    fn axis(&self, now: Timestamp) -> Axis {
        let ended = self.run.ended_at.map(|ended| ended.0);
        let open_end = ended.unwrap_or(now);
        let (mut busy, mut bounds, mut end) = (Vec::new(), Vec::new(), open_end);
        let first = self.operations.first().map(|op| op.started_at.0);
        let begin = if self.is_first_page { Some(self.run.created_at.0) } else { first };
        let begin = begin.unwrap_or(self.run.created_at.0);
        if !self.is_last_page {
            end = begin;
        }
        for op in self.operations {
            let op_end = op.ended_at.map_or(open_end, |ended| ended.0);
            bounds.extend([op.started_at.0, op_end]);
            end = end.max(op_end);
            for attempt in op.attempts.iter().filter(|_| op.queue.is_none()) {
                let to = attempt.ended_at.map_or(op_end, |ended| ended.0);
                busy.push((attempt.due_at.0, to));
                bounds.push(attempt.due_at.0);
                end = end.max(if ended.is_none() { attempt.due_at.0 } else { begin });
            }
            if let (Some(until), None, None) = (op.until, op.ended_at, ended) {
                end = end.max(until.0);
                bounds.push(until.0);
            }
        }
        bounds.push(open_end.min(end));
        Axis::new(begin, end, &busy, &bounds, self.scale)
    }

    fn axis_picture(&self, axis: &Axis) -> Markup {
        html! {
            svg width="100%" height="26" aria-hidden="true" {
                @for tick in axis.ticks() {
                    @let is_start = tick.x < 1.0;
                    text x={ (format!("{:.2}", tick.x)) "%" } y="17" text-anchor=[(!is_start).then_some("middle")] {
                        @if tick.is_after_gap { "+" }
                        (words::duration(tick.time))
                    }
                }
                @for gap in axis.gaps() {
                    text.gap x={ (format!("{:.2}", gap.x + gap.width / 2.0)) "%" } y="17" text-anchor="middle" {
                        (words::rough(gap.time()))
                    }
                }
            }
        }
    }

    /// Lines and bands behind all rows.
    fn grid(&self, axis: &Axis, now: Timestamp) -> Markup {
        let is_open = self.run.ended_at.is_none() && self.is_last_page;
        let line = |x: f64, class: &str| {
            html! { line class=(class) x1={ (format!("{x:.2}")) "%" } x2={ (format!("{x:.2}")) "%" } y1="0" y2="100%" {} }
        };
        html! {
            svg.grid width="100%" height="100%" aria-hidden="true" {
                @for gap in axis.gaps() {
                    rect.gap x={ (format!("{:.2}", gap.x)) "%" } width={ (format!("{:.2}", gap.width)) "%" } height="100%" {}
                }
                @for tick in axis.ticks() { (line(tick.x, "tick")) }
                @if is_open { (line(axis.x(now), "now")) }
            }
        }
    }

    /// The row of the run itself.
    fn run_row(&self, site: &Site, axis: &Axis) -> Markup {
        let (from, to) =
            (axis.x(self.run.created_at.0), axis.x(self.run.ended_at.map_or(site.now, |ended| ended.0)));
        let (_, class) = crate::ui::badge::look(shown_status(self.run));
        let href = if self.query.is_empty() { "?".to_owned() } else { format!("?{}", self.query) };
        html! {
            li.row aria-current=[self.selected.is_none().then_some("true")] {
                a.label href=(href) data-row { span.number {} (icon(site, "workflow")) span { (self.run.workflow) } }
                svg.bars width="100%" height="28" aria-hidden="true" {
                    rect class={ "bar whole b-" (class) } x={ (format!("{from:.2}")) "%" } y="11" rx="3"
                        width={ (format!("{:.2}", (to - from).max(0.4))) "%" } height="6" {}
                }
                span.took { (took(site, self.run.created_at, self.run.ended_at)) }
            }
        }
    }

    fn row(&self, site: &Site, drawing: &Drawing<'_>, op: &OperationJson) -> Markup {
        let status = status_of(op, site.now);
        let and = if self.query.is_empty() { "" } else { "&" };
        let end = op.ended_at.or(self.run.ended_at);
        html! {
            li.row id={ "op-" (op.op) } data-status=(op.status) data-failed[op.failure.is_some()]
                class=[op.skipped.then_some("skipped")] aria-current=[(self.selected == Some(op.op)).then_some("true")] {
                a.label href={ "?" (self.query) (and) "op=" (op.op) } data-row aria-label=(name_of(op)) {
                    span.number { (op.op) }
                    span class={ "s-" (status) } { (icon(site, operation_icon(op))) }
                    span.name { @if op.kind == "timer" { "sleep " } (label(op)) }
                    @if op.attempt_count > 1 { span.attempts title={ (op.attempt_count) " attempts" } { "×" (op.attempt_count) } }
                    @if let Some(undone) = op.undoes { span.muted { "undoes #" (undone) } }
                }
                svg.bars width="100%" height="28" aria-hidden="true" { (drawing.operation(op)) }
                span.took {
                    @if let Some(run) = op.run { (run_link(site, run)) }
                    @else if matches!(op.kind.as_str(), "step" | "timer" | "hook") { (took(site, op.started_at, end)) }
                }
            }
        }
    }
}

/// The label of a row.
fn label(op: &OperationJson) -> String {
    match (op.kind.as_str(), op.name.is_empty()) {
        ("tags", _) => {
            op.tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        }
        (kind, true) => kind.to_owned(),
        _ => op.name.clone(),
    }
}

/// The whole row in words, for those who do not see the bars.
fn name_of(op: &OperationJson) -> String {
    let mut text = format!("{} {}, {}", op.kind, label(op), op.status);
    if op.attempt_count > 1 {
        text.push_str(&format!(", attempt {}", op.attempt_count));
    }
    if let Some(ended) = op.ended_at {
        text.push_str(&format!(", after {}", words::duration(ended.0.since(op.started_at.0))));
    }
    text
}

/// The shapes that marks use, and the pattern of failed attempts.
fn shapes() -> Markup {
    html! {
        svg.shapes width="0" height="0" aria-hidden="true" {
            defs {
                circle #tl-dot r="4" {}
                circle #tl-ring.ring r="4" {}
                path #tl-diamond d="M0-6 6 0 0 6-6 0Z" {}
                path #tl-next d="M-4-6 5 0-4 6Z" {}
                pattern #tl-hatch width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect.hatch-back width="5" height="5" {}
                    line.hatch-line x1="0" y1="0" x2="0" y2="5" {}
                }
            }
        }
    }
}
