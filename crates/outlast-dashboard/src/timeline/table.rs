//! The rows of a timeline as a table, with the same facts as the picture.

use maud::{Markup, html};
use outlast_api::{AttemptJson, OperationJson};
use outlast_core::Timestamp;

use super::moments::moment_list;
use super::rows::{Row, RowKind, RowSource};
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::parts::{ago, icon, moment, run_link, took};
use crate::ui::words;

/// The table.
pub(super) fn table(
    site: &Site,
    source: &RowSource<'_>,
    rows: &[&Row],
    to_op: &dyn Fn(Option<u64>) -> String,
) -> Markup {
    let origin = source.origin();
    html! {
        table.facts-table.cards {
            caption.hidden { "Operations of the run" }
            thead {
                tr {
                    th.n scope="col" { "#" } th scope="col" { "Operation" } th scope="col" { "Status" }
                    th.n scope="col" { "Begins at" } th.n scope="col" { "Took" } th scope="col" { "Attempts and outcome" }
                }
            }
            tbody {
                @for row in rows {
                    @let op = row.op.filter(|_| row.depth == 0).and_then(|number| source.timeline.operations.iter().find(|op| op.op == number));
                    tr id=(row.key) {
                        td.n { @if let Some(number) = row.op { (number) } }
                        td.wrap {
                            span class={ "s-" (row.status) } { (icon(site, row.icon)) } " "
                            @match row.op.filter(|_| row.depth == 0) {
                                Some(number) => a href=(to_op(Some(number))) { (row.label) },
                                None => span.strong { (row.label) },
                            }
                            @if !row.note.is_empty() { " " span.muted { (row.note) } }
                        }
                        td data-label="Status" { @if let Some(op) = op { (badge(site, &op.status)) } @else if row.kind == RowKind::Run { (badge(site, &source.run.status)) } }
                        td.n data-label="Begins at" { time datetime=(outlast_api::Rfc3339(row.from)) title=(moment(row.from.into())) { "+" (words::duration(row.from.since(origin))) } }
                        td.n data-label="Took" { @if row.has_time { (took(site, row.from.into(), row.to.map(Into::into))) } }
                        td.wrap {
                            @if let Some(op) = op { (outcome(site, op, origin)) }
                            @else if row.kind == RowKind::Run { (moment_list(&source.timeline.moments, origin)) }
                        }
                    }
                }
            }
        }
    }
}

/// The attempts of an operation, its next moment, and where it leads.
fn outcome(site: &Site, op: &OperationJson, origin: Timestamp) -> Markup {
    let has_several = op.attempts.len() > 1 || op.failure.is_some();
    html! {
        @if has_several {
            ol.plain {
                @for attempt in &op.attempts { li { (attempt_words(site, op, attempt, origin)) } }
            }
        }
        @if op.attempts.is_empty() { @if let Some(failure) = &op.failure { span.bad { (failure.message) } } }
        @if op.ended_at.is_none() { @if let Some(until) = op.until { "until " (ago(site, until)) } }
        @if let Some(run) = op.run { " " (run_link(site, run)) }
        @for rejected in &op.rejected { p.bad { "rejected: " (rejected.reason) } }
    }
}

fn attempt_words(site: &Site, op: &OperationJson, attempt: &AttemptJson, origin: Timestamp) -> Markup {
    let is_due = attempt.ended_at.is_none() && attempt.due_at.0 > site.now;
    html! {
        "attempt " (attempt.number) " "
        @if is_due { "is due " (ago(site, attempt.due_at)) }
        @else {
            "at +" (words::duration(attempt.due_at.0.since(origin)))
            @match (&attempt.failure, attempt.ended_at.or(op.ended_at)) {
                (Some(failure), Some(ended)) => {
                    ", failed after " (words::duration(ended.0.since(attempt.due_at.0))) ": "
                    @if let Some(code) = &failure.code { code.bad { (code) } " " }
                    (words::clipped(&failure.message, 200))
                },
                (_, Some(ended)) => { ", ended after " (words::duration(ended.0.since(attempt.due_at.0))) },
                _ => ", in progress",
            }
        }
    }
}
