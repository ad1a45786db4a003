//! Rows that stand for several operations: those that a replay skips, and equal ones of long runs.

use outlast_api::{MomentKind, OperationJson};
use outlast_core::Timestamp;

use super::rows::{Row, RowKind, RowSource, operation_icon, section};
use super::shape::Shape;
use crate::ui::words;

/// From this number of operations on, equal ones in a row are shown as one.
pub(super) const GROUPED_FROM: usize = 2_000;

/// The least number of operations in a group.
const GROUP_LEAST: usize = 3;

/// The bars of a group are merged into at most this many.
const GROUP_BARS_MAX: usize = 40;

/// Operations that are shown as they are, or a row.
type Part<'a> = Result<Vec<&'a OperationJson>, Row>;

/// Splits operations into those that are shown, and rows for those that a replay skips. Generations and iterations that
/// are shown get a title.
pub(super) fn fold_skipped<'a>(source: &RowSource<'_>, ops: &[&'a OperationJson]) -> Vec<Part<'a>> {
    let places = places(source, ops);
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut titled = Place { generation: 1, iteration: 0 };
    let mut at = 0;
    while let Some(first) = ops.get(at) {
        let place = places[at];
        let is_same = |index: &usize| {
            let (op, other) = (ops[*index], places[*index]);
            op.skipped == first.skipped
                && other.generation == place.generation
                && (op.skipped || other == place)
        };
        let end = (at..ops.len()).take_while(is_same).last().unwrap_or(at) + 1;
        let members = &ops[at..end];
        let last = places[end - 1];
        at = end;
        if first.skipped && source.filter.status.is_none() {
            let is_open = source.filter.expanded.contains(&first.op);
            parts.push(Err(skipped_row(source, members, (place, last), is_open)));
            if !is_open {
                continue;
            }
        } else if place != titled && !first.skipped {
            parts.push(Err(place.title(first)));
        }
        titled = place;
        parts.push(Ok(members.to_vec()));
    }
    parts
}

/// The generation and the iteration of an operation; the iteration is 0 before a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    generation: u64,
    iteration: u64,
}

/// The places of operations, which are in order.
fn places(source: &RowSource<'_>, ops: &[&OperationJson]) -> Vec<Place> {
    let mut place = Place { generation: 1, iteration: 0 };
    let mut moments = source.timeline.moments.iter().peekable();
    let of = |op: &&OperationJson| {
        while let Some(moment) = moments.next_if(|moment| moment.next_op <= op.op) {
            match moment.kind {
                MomentKind::Generation(generation) => place = Place { generation, iteration: 0 },
                MomentKind::Loop => place.iteration = 1,
                MomentKind::Iteration(number) => place.iteration = number + 1,
                _ => {}
            }
        }
        place
    };
    ops.iter().map(of).collect()
}

impl Place {
    fn title(self, first: &OperationJson) -> Row {
        let text = match self.iteration {
            0 => format!("Generation {}", self.generation),
            iteration => format!("Iteration {iteration}"),
        };
        section(format!("part-{}", first.op), "loop", "pending", text, first.started_at.0)
    }
}

/// The row for operations that a replay skips.
fn skipped_row(
    source: &RowSource<'_>,
    members: &[&OperationJson],
    (first, last): (Place, Place),
    is_open: bool,
) -> Row {
    let title = match (first.iteration, last.iteration) {
        _ if first.generation < source.run.generation => format!("Generation {}", first.generation),
        (from, to) if from == to => format!("Iteration {from}"),
        (from, to) => format!("Iterations {from} to {to}"),
    };
    let note = words::counted(members.len() as u64, "operation");
    let words = format!("{title}: {note}, which a replay skips");
    Row { icon: "loop", is_skipped: true, note, words, ..merged(source, members, title, is_open) }
}

/// Rows for equal operations that follow each other. Those that failed or are open have rows of their own.
pub(super) fn group_equal(source: &RowSource<'_>, ops: &[&OperationJson]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut rest = ops;
    while let Some(first) = rest.first() {
        let is_equal = |op: &&&OperationJson| {
            op.kind == first.kind && op.name == first.name && op.status == "completed" && op.failure.is_none()
        };
        let count = rest.iter().take_while(is_equal).count();
        let (members, others) = rest.split_at(count.max(1));
        rest = others;
        let is_open = source.filter.expanded.contains(&first.op);
        if members.len() >= GROUP_LEAST {
            rows.push(equal_row(source, members, is_open));
        }
        if members.len() < GROUP_LEAST || is_open {
            members.iter().for_each(|op| source.push_operation(&mut rows, op));
        }
    }
    rows
}

fn equal_row(source: &RowSource<'_>, members: &[&OperationJson], is_open: bool) -> Row {
    let first = members[0];
    let retried = members.iter().filter(|op| op.attempt_count > 1).count() as u64;
    let count = words::count(members.len() as u64);
    let (note, is_warning) = match retried {
        0 => (format!("×{count}"), false),
        retried => (format!("×{count}, {} retried", words::count(retried)), true),
    };
    let words = format!(
        "{count} completed {} {}, from number {}, {retried} retried",
        first.kind, first.name, first.op
    );
    Row {
        icon: operation_icon(first),
        note,
        is_warning,
        words,
        ..merged(source, members, first.name.clone(), is_open)
    }
}

/// One row for several operations.
fn merged(source: &RowSource<'_>, members: &[&OperationJson], label: String, is_open: bool) -> Row {
    let end = source.bars().end();
    let spans = members.iter().map(|op| (op.started_at.0, op.ended_at.map_or(end, |ended| ended.0)));
    let spans = merge(spans.collect());
    let first = members[0].op;
    let to = spans.iter().map(|(_, to)| *to).max();
    let class = if members[0].skipped { "bar b-skipped" } else { "bar b-completed" };
    Row {
        kind: RowKind::Group,
        to,
        has_time: true,
        expand: Some((first, is_open)),
        shapes: spans.into_iter().map(|(from, to)| Shape::bar(14, class, from, to)).collect(),
        ..section(format!("group-{first}"), "step", "completed", label, members[0].started_at.0)
    }
}

/// Spans without overlaps; the ones with the smallest distances are merged until there are few.
fn merge(mut spans: Vec<(Timestamp, Timestamp)>) -> Vec<(Timestamp, Timestamp)> {
    spans.sort_unstable();
    let whole =
        spans.iter().map(|(_, to)| *to).max().zip(spans.first()).map(|(to, (from, _))| to.since(*from));
    let least = whole.unwrap_or_default() / GROUP_BARS_MAX as u32;
    let mut merged: Vec<(Timestamp, Timestamp)> = Vec::new();
    for (from, to) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1.plus(least) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}
