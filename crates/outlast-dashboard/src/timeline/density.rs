//! The density strip: how many attempts were in progress, and where they failed.

use maud::{Markup, html};
use outlast_core::Timestamp;

use super::axis::Axis;
use super::rows::RowSource;

/// The columns of the strip.
const COLUMNS: usize = 600;

/// The height of the strip.
const HEIGHT: f64 = 22.0;

/// Runs with fewer operations have no strip: their rows show the same.
const OPERATIONS_LEAST: usize = 40;

/// The strip, on the axis of the timeline.
pub(super) fn density(source: &RowSource<'_>, axis: &Axis) -> Markup {
    if source.timeline.operations.len() < OPERATIONS_LEAST {
        return html! {};
    }
    let (busy, failed) = columns(source, axis);
    let most = busy.iter().copied().max().unwrap_or(0).max(1);
    html! {
        div.density title="Attempts in progress; drag to zoom" {
            span.muted { (crate::ui::words::count(source.timeline.operations.len() as u64)) " operations" }
            svg width="100%" height="22" viewBox={ "0 0 " (COLUMNS) " 22" } preserveAspectRatio="none" aria-hidden="true" {
                path.busy d=(area(&busy, most)) {}
                path.bad d=(area(&failed, most)) {}
            }
            span {}
        }
    }
}

/// The attempts in progress in each column, and those that failed in it.
fn columns(source: &RowSource<'_>, axis: &Axis) -> (Vec<u32>, Vec<u32>) {
    let mut changes = vec![0_i64; COLUMNS + 1];
    let mut failed = vec![0_u32; COLUMNS];
    let column = |time: Timestamp| ((axis.x(time) / 100.0 * COLUMNS as f64) as usize).min(COLUMNS - 1);
    for (from, to) in source.bars().attempts().filter(|(from, to)| axis.shows(*from, *to)) {
        changes[column(from)] += 1;
        changes[column(to) + 1] -= 1;
    }
    let attempts = source.timeline.operations.iter().flat_map(|op| &op.attempts);
    for ended in attempts.filter(|attempt| attempt.failure.is_some()).filter_map(|attempt| attempt.ended_at) {
        if axis.shows(ended.0, ended.0) {
            failed[column(ended.0)] += 1;
        }
    }
    let mut now = 0;
    let busy = changes[..COLUMNS].iter().map(|change| {
        now += change;
        u32::try_from(now).unwrap_or(0)
    });
    (busy.collect(), failed)
}

/// An area chart as the path of an SVG.
fn area(values: &[u32], most: u32) -> String {
    let mut path = format!("M0 {HEIGHT}");
    let mut last = None;
    for (x, value) in values.iter().enumerate() {
        if last == Some(*value) {
            continue;
        }
        let height = |value: u32| {
            if value == 0 {
                HEIGHT
            } else {
                HEIGHT - 2.0 - (HEIGHT - 4.0) * f64::from(value) / f64::from(most)
            }
        };
        path.push_str(&format!("L{x} {:.1}L{x} {:.1}", height(last.unwrap_or(0)), height(*value)));
        last = Some(*value);
    }
    path.push_str(&format!("V{HEIGHT}Z"));
    path
}
