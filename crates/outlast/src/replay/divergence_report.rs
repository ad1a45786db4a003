//! The table in the report of a divergence: the operations of the history and of the code around the difference, side
//! by side.

use std::collections::VecDeque;
use std::fmt::Write;

use outlast_core::{Event, Timestamp};

use super::divergence::describe;
use super::operation_table::SourceLocation;

/// The number of operations shown before the difference.
const BEFORE_MAX: usize = 4;

/// The number of operations shown after it.
const AFTER_MAX: usize = 2;

/// The number of characters shown of one operation; the message of a failure may be long.
const DESCRIPTION_CHARS_MAX: usize = 60;

/// The last operations that history and code agreed on, as lines of the report.
#[derive(Default)]
pub(super) struct DivergenceReport(VecDeque<ReportLine>);

/// One line of the report.
struct ReportLine {
    recorded: Option<Event>,
    requested: Option<Event>,
    location: Option<SourceLocation>,
    at: Timestamp,
}

impl DivergenceReport {
    /// Adds a request that matches the history.
    pub(super) fn add_matched(
        &mut self,
        recorded: Event,
        requested: Event,
        location: Option<SourceLocation>,
        at: Timestamp,
    ) {
        if self.0.len() == BEFORE_MAX {
            self.0.pop_front();
        }
        self.0.push_back(ReportLine { recorded: Some(recorded), requested: Some(requested), location, at });
    }

    /// The table: the operations that match, the first one that differs, and those that follow on either side.
    pub(super) fn render(
        mut self,
        recorded: impl Iterator<Item = (Event, Timestamp)>,
        requested: impl Iterator<Item = (Event, Option<SourceLocation>)>,
        now: Timestamp,
    ) -> String {
        let first_difference = self.0.len();
        let (mut recorded, mut requested) = (recorded.fuse(), requested.fuse());
        for _ in 0..=AFTER_MAX {
            let (recorded, requested) = (recorded.next(), requested.next());
            if recorded.is_none() && requested.is_none() {
                break;
            }
            let at = recorded.as_ref().map_or(now, |(_, at)| *at);
            let (requested, location) =
                requested.map_or((None, None), |(event, location)| (Some(event), location));
            let recorded = recorded.map(|(event, _)| event);
            self.0.push_back(ReportLine { recorded, requested, location, at });
        }
        self.table(first_difference)
    }

    fn table(&self, first_difference: usize) -> String {
        let columns: Vec<(String, String)> = self
            .0
            .iter()
            .map(|line| {
                (short_description(&line.recorded, line.at), short_description(&line.requested, line.at))
            })
            .collect();
        let width = |column: fn(&(String, String)) -> &String, heading: &str| {
            columns.iter().map(|texts| column(texts).chars().count()).max().unwrap_or(0).max(heading.len())
        };
        let left = width(|texts| &texts.0, "history has");
        let right = width(|texts| &texts.1, "code asked for");
        let mut text = format!("\n   op  {:left$} | code asked for", "history has");
        for (index, (line, (recorded, requested))) in self.0.iter().zip(&columns).enumerate() {
            let mark = if index == first_difference { '>' } else { ' ' };
            let op =
                line.recorded.as_ref().and_then(Event::op).or(line.requested.as_ref().and_then(Event::op));
            let op = op.map_or("-".to_owned(), |op| op.to_string());
            let location = line.location.map(|location| format!("  {}:{}", location.file(), location.line()));
            let location = location.unwrap_or_default();
            let row = format!("\n{mark} {op:>3}  {recorded:left$} | {requested:right$}{location}");
            // Writing to a String cannot fail.
            let _ = write!(text, "{}", row.trim_end_matches(' '));
        }
        text
    }
}

/// The description of an event, on one line and of limited length; `-` when there is no event.
fn short_description(event: &Option<Event>, at: Timestamp) -> String {
    let text = event.as_ref().map_or("-".to_owned(), |event| describe(event, at));
    let text = text.replace(char::is_control, " ");
    match text.char_indices().nth(DESCRIPTION_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
