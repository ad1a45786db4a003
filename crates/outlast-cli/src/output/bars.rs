//! Bars: when an operation worked and waited, on the time of its run.

use outlast::Timestamp;
use outlast_api::OperationJson;

use super::style::{Look, Tone};
use super::symbols::tone;

/// A part of the time of a run, and how many columns it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    from: Timestamp,
    to: Timestamp,
    columns: usize,
}

/// What a column of a bar shows. A later one hides an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    Nothing,
    Pause,
    Wait,
    Work,
    FailedWork,
}

impl Scale {
    /// A scale from the start of a run to its end, or to now.
    pub(crate) fn new(from: Timestamp, to: Timestamp, columns: usize) -> Self {
        Self { from, to: to.max(from.plus(std::time::Duration::from_millis(1))), columns: columns.max(4) }
    }

    fn column(&self, at: Timestamp) -> usize {
        let all = self.to.since(self.from).as_micros().max(1);
        let part = at.since(self.from).as_micros().min(all);
        let column = part * (self.columns as u128 - 1) / all;
        usize::try_from(column).unwrap_or(0)
    }

    /// The bar of an operation.
    pub(crate) fn bar(&self, look: Look, operation: &OperationJson) -> String {
        let mut marks = vec![Mark::Nothing; self.columns];
        let begin = operation.started_at.0;
        let end = operation.ended_at.map_or(self.to, |at| at.0);
        if operation.kind == "step" && !operation.attempts.is_empty() {
            self.fill(&mut marks, begin, end, Mark::Pause);
            for attempt in &operation.attempts {
                let is_future = attempt.ended_at.is_none() && attempt.due_at.0 >= self.to;
                let mark = if attempt.failure.is_some() { Mark::FailedWork } else { Mark::Work };
                if !is_future {
                    self.fill(&mut marks, attempt.due_at.0, attempt.ended_at.map_or(end, |at| at.0), mark);
                }
            }
        } else {
            let mark = if operation.kind == "step" { Mark::Work } else { Mark::Wait };
            self.fill(&mut marks, begin, end, mark);
        }
        self.paint(look, operation, &marks)
    }

    fn fill(&self, marks: &mut [Mark], from: Timestamp, to: Timestamp, mark: Mark) {
        let range = self.column(from)..=self.column(to.max(from));
        for column in &mut marks[range] {
            *column = (*column).max(mark);
        }
    }

    fn paint(&self, look: Look, operation: &OperationJson, marks: &[Mark]) -> String {
        let is_open = operation.ended_at.is_none();
        let last = marks.iter().rposition(|mark| *mark != Mark::Nothing).unwrap_or(0);
        let mut text = String::new();
        for (column, mark) in marks[..=last].iter().enumerate() {
            let (unicode, ascii, tone) = match mark {
                Mark::Nothing => (" ", " ", Tone::Plain),
                Mark::Pause => ("╌", "-", Tone::Warning),
                Mark::Wait => ("─", "-", tone(&operation.status)),
                Mark::Work => ("█", "#", tone(&operation.status)),
                Mark::FailedWork => ("█", "x", Tone::Bad),
            };
            let symbol =
                if is_open && column == last { look.either("▷", ">") } else { look.either(unicode, ascii) };
            text.push_str(&look.paint(tone, symbol));
        }
        text
    }
}
