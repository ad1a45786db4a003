//! The rows of a timeline, as data.

use std::collections::{BTreeMap, BTreeSet};

use outlast_api::{OperationJson, RunJson, RunTimeline};
use outlast_core::{RunId, Timestamp};

use super::bars::Bars;
use super::group::{GROUPED_FROM, fold_skipped, group_equal};
use super::shape::Shape;
use crate::ui::words;

/// Kinds of operations that are bookkeeping; the timeline shows them only if asked.
const BOOKKEEPING: [&str; 3] = ["compensation", "keep", "tags"];

/// Which rows are shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowFilter {
    /// Only operations that are `open` or have `failed` attempts.
    pub(crate) status: Option<String>,
    /// Whether bookkeeping is shown.
    pub(crate) has_all: bool,
    /// Groups and children that are expanded, by the number of their first operation.
    pub(crate) expanded: BTreeSet<u64>,
}

/// A row of a timeline.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) kind: RowKind,
    /// The operation that the panel shows.
    pub(crate) op: Option<u64>,
    pub(crate) icon: &'static str,
    /// The status, as the name of a colour.
    pub(crate) status: &'static str,
    pub(crate) label: String,
    /// What follows the label: attempts, or what it undoes.
    pub(crate) note: String,
    /// Whether the note is about failed attempts.
    pub(crate) is_warning: bool,
    /// The row in words, for those who do not see the bars.
    pub(crate) words: String,
    pub(crate) from: Timestamp,
    /// `None` while it is open.
    pub(crate) to: Option<Timestamp>,
    /// The other run that it links to.
    pub(crate) run: Option<RunId>,
    /// The number with which it is expanded, and whether it is.
    pub(crate) expand: Option<(u64, bool)>,
    pub(crate) depth: u8,
    pub(crate) is_failed: bool,
    pub(crate) is_open: bool,
    pub(crate) is_skipped: bool,
    /// Whether it shows how long it took.
    pub(crate) has_time: bool,
    pub(crate) shapes: Vec<Shape>,
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowKind {
    Run,
    Operation,
    /// Several operations in one row.
    Group,
    /// The title of the rows below.
    Section,
}

impl RowKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Operation => "operation",
            Self::Group => "group",
            Self::Section => "section",
        }
    }
}

/// A child whose operations are shown in place.
#[derive(Debug)]
pub(crate) struct ExpandedChild {
    pub(crate) run: RunJson,
    pub(crate) timeline: RunTimeline,
}

/// The rows of a run.
#[derive(Debug)]
pub(crate) struct RowSource<'a> {
    pub(crate) run: &'a RunJson,
    pub(crate) timeline: &'a RunTimeline,
    pub(crate) children: &'a BTreeMap<u64, ExpandedChild>,
    pub(crate) filter: &'a RowFilter,
    pub(crate) now: Timestamp,
}

impl RowSource<'_> {
    /// When the axis begins: with the run, or with the copied operations of a fork, which are older.
    pub(crate) fn origin(&self) -> Timestamp {
        let begin = self.run.created_at.0;
        let copied = self.timeline.operations.iter().filter(|_| self.run.forked_from.is_some());
        copied.map(|op| op.started_at.0).chain([begin]).min().unwrap_or(begin)
    }

    /// Whether an operation ended before the run began: a fork has it from another run.
    fn is_copied(&self, op: &OperationJson) -> bool {
        let ended = op.ended_at.filter(|_| self.run.forked_from.is_some());
        ended.is_some_and(|ended| ended.0 < self.run.created_at.0)
    }

    pub(super) fn bars(&self) -> Bars<'_> {
        Bars { run: self.run, timeline: self.timeline, now: self.now }
    }

    /// All rows: the run, its operations, and its compensations.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let shown: Vec<&OperationJson> =
            self.timeline.operations.iter().filter(|op| self.is_shown(op)).collect();
        let (undoing, plain): (Vec<_>, Vec<_>) =
            shown.into_iter().partition(|op| op.kind == "step" && op.undoes.is_some());
        let mut rows = Vec::new();
        if self.filter.status.is_none() {
            rows.push(self.run_row());
        }
        let is_grouped = plain.len() >= GROUPED_FROM;
        for part in fold_skipped(self, &plain) {
            match part {
                Err(row) => rows.push(row),
                Ok(ops) if is_grouped => rows.extend(group_equal(self, &ops)),
                Ok(ops) => ops.into_iter().for_each(|op| self.push_operation(&mut rows, op)),
            }
        }
        if !undoing.is_empty() {
            let title = format!("Compensations, {}", words::counted(undoing.len() as u64, "step"));
            rows.push(section("compensations", "compensated", "compensated", title, undoing[0].started_at.0));
            undoing.into_iter().for_each(|op| self.push_operation(&mut rows, op));
        }
        rows
    }

    fn is_shown(&self, op: &OperationJson) -> bool {
        let has_failed = op.status == "failed" || op.attempts.iter().any(|attempt| attempt.failure.is_some());
        match self.filter.status.as_deref() {
            Some("failed") => has_failed,
            Some(_) => op.status == "open" && op.kind != "compensation",
            None => self.filter.has_all || !BOOKKEEPING.contains(&op.kind.as_str()),
        }
    }

    fn run_row(&self) -> Row {
        let run = self.run;
        Row {
            kind: RowKind::Run,
            has_time: true,
            to: run.ended_at.map(|ended| ended.0),
            shapes: self.bars().run(),
            words: format!("run {}, {}", run.workflow, run.status),
            ..section("run", "workflow", "pending", run.workflow.clone(), run.created_at.0)
        }
    }

    /// Adds the row of an operation, and the rows of its child if it is expanded.
    pub(super) fn push_operation(&self, rows: &mut Vec<Row>, op: &OperationJson) {
        rows.push(self.operation_row(op));
        let Some(child) = self.children.get(&op.op) else { return };
        let filter = RowFilter::default();
        let none = BTreeMap::new();
        let source = RowSource {
            run: &child.run,
            timeline: &child.timeline,
            children: &none,
            filter: &filter,
            now: self.now,
        };
        for row in source.rows().into_iter().filter(|row| row.kind != RowKind::Run) {
            let key = format!("child-{}-{}", op.op, row.key);
            rows.push(Row {
                key,
                depth: row.depth + 1,
                expand: None,
                run: row.run.or(Some(child.run.id)),
                op: None,
                ..row
            });
        }
    }

    pub(super) fn operation_row(&self, op: &OperationJson) -> Row {
        let failed = op.attempts.iter().filter(|attempt| attempt.failure.is_some()).count() as u64;
        let undone = op.undoes.map(|undone| self.undone(undone));
        let note = match &undone {
            Some(undone) => format!("undoes {}", undone.split(' ').next().unwrap_or_default()),
            None if op.attempt_count > 1 => format!("×{}", op.attempt_count),
            None if self.is_copied(op) => "copied".to_owned(),
            None => op.queue.as_ref().map(|queue| format!("in {queue}")).unwrap_or_default(),
        };
        let is_child = op.run.is_some() && op.kind == "child";
        Row {
            key: format!("op-{}", op.op),
            kind: RowKind::Operation,
            op: Some(op.op),
            icon: operation_icon(op),
            status: status_of(self.run, op, self.now),
            label: if op.kind == "timer" { format!("sleep {}", label(op)) } else { label(op) },
            is_warning: undone.is_none() && failed > 0,
            note,
            words: words_of(op, undone.as_deref()),
            from: op.started_at.0,
            to: op.ended_at.or(self.run.ended_at).map(|ended| ended.0),
            run: op.run,
            expand: is_child.then(|| (op.op, self.children.contains_key(&op.op))),
            depth: 0,
            is_failed: op.failure.is_some() || failed > 0,
            is_open: op.status == "open",
            is_skipped: op.skipped,
            has_time: matches!(op.kind.as_str(), "step" | "timer" | "hook" | "child"),
            shapes: self.bars().operation(op),
        }
    }

    /// The step that a compensation undoes. The number is that of the registration, which names the step.
    fn undone(&self, registration: u64) -> String {
        let find = |number: u64| self.timeline.operations.iter().find(|op| op.op == number);
        let step = find(registration).and_then(|found| find(found.undoes?));
        match step.or_else(|| find(registration)) {
            Some(step) => format!("#{} {}", step.op, step.name),
            None => format!("#{registration}"),
        }
    }
}

/// A row without bars, at a time.
pub(super) fn section(
    key: impl Into<String>,
    icon: &'static str,
    status: &'static str,
    label: String,
    from: Timestamp,
) -> Row {
    Row {
        key: key.into(),
        kind: RowKind::Section,
        op: None,
        icon,
        status,
        words: label.clone(),
        label,
        note: String::new(),
        is_warning: false,
        from,
        to: Some(from),
        run: None,
        expand: None,
        depth: 0,
        is_failed: false,
        is_open: false,
        is_skipped: false,
        has_time: false,
        shapes: Vec::new(),
    }
}

/// The status that an operation is drawn with.
pub(crate) fn status_of(run: &RunJson, op: &OperationJson, now: Timestamp) -> &'static str {
    match op.status.as_str() {
        "completed" if op.undoes.is_some() => "compensated",
        "completed" => "completed",
        "failed" => "failed",
        "cancelled" | "dropped" | "abandoned" => "cancelled",
        _ if op.kind == "child" => "running",
        _ if op.kind != "step" || op.retry_at.is_some_and(|time| time.0 > now) => "waiting",
        _ if run.owner.is_none() => "pending",
        _ => "running",
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

/// The whole row in words.
fn words_of(op: &OperationJson, undone: Option<&str>) -> String {
    let mut text = format!("{} {}, number {}, {}", op.kind, label(op), op.op, op.status);
    if op.attempt_count > 1 {
        text.push_str(&format!(", attempt {}", op.attempt_count));
    }
    if let Some(ended) = op.ended_at {
        text.push_str(&format!(" after {}", words::duration(ended.0.since(op.started_at.0))));
    }
    if let Some(undone) = undone {
        text.push_str(&format!(", undoes {undone}"));
    }
    text
}
