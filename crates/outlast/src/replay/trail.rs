//! The trail of a replay: the last operations that history and code agreed on, for the report when they
//! no longer do.

use std::collections::VecDeque;
use std::fmt::Write;

use outlast_core::{Event, Timestamp};

use super::cell::Place;
use super::divergence::words;

/// Operations shown before the one that differs.
const BEFORE_MAX: usize = 4;

/// Operations shown after it.
const AFTER_MAX: usize = 2;

/// Characters of what is said of one operation; a failure's message may be long.
const WORDS_MAX: usize = 60;

/// What history has and what the code asked, side by side.
#[derive(Default)]
pub(super) struct Trail(VecDeque<Step>);

/// One line of the trail.
struct Step {
    recorded: Option<Event>,
    asked: Option<Event>,
    place: Option<Place>,
    at: Timestamp,
}

impl Trail {
    /// Adds what history and code agree on.
    pub(super) fn agreed(&mut self, recorded: Event, asked: Event, place: Option<Place>, at: Timestamp) {
        if self.0.len() == BEFORE_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Step { recorded: Some(recorded), asked: Some(asked), place, at });
    }

    /// The report in two columns: the trail, what differs, and what both have next.
    pub(super) fn report(
        mut self,
        recorded: impl Iterator<Item = (Event, Timestamp)>,
        asked: impl Iterator<Item = (Event, Option<Place>)>,
        now: Timestamp,
    ) -> String {
        let differs = self.0.len();
        let (mut recorded, mut asked) = (recorded.fuse(), asked.fuse());
        for _ in 0..=AFTER_MAX {
            let (recorded, asked) = (recorded.next(), asked.next());
            if recorded.is_none() && asked.is_none() {
                break;
            }
            let at = recorded.as_ref().map_or(now, |(_, at)| *at);
            let (asked, place) = asked.map_or((None, None), |(event, place)| (Some(event), place));
            self.0.push_back(Step { recorded: recorded.map(|(event, _)| event), asked, place, at });
        }
        self.table(differs)
    }

    fn table(&self, differs: usize) -> String {
        let said = |event: &Option<Event>, at| {
            let text = event.as_ref().map_or("-".to_owned(), |event| words(event, at));
            let text = text.replace(char::is_control, " ");
            match text.char_indices().nth(WORDS_MAX) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        };
        let lines: Vec<_> =
            self.0.iter().map(|step| (said(&step.recorded, step.at), said(&step.asked, step.at))).collect();
        let wide = |side: fn(&(String, String)) -> &String, head: &str| {
            lines.iter().map(|line| side(line).chars().count()).max().unwrap_or(0).max(head.len())
        };
        let (left, right) = (wide(|line| &line.0, "history has"), wide(|line| &line.1, "code asked for"));
        let mut text = format!("\n   op  {:left$} | code asked for", "history has");
        for (index, (step, (recorded, asked))) in self.0.iter().zip(&lines).enumerate() {
            let mark = if index == differs { '>' } else { ' ' };
            let op = step.recorded.as_ref().and_then(Event::op).or(step.asked.as_ref().and_then(Event::op));
            let op = op.map_or("-".to_owned(), |op| op.to_string());
            let place =
                step.place.map_or(String::new(), |place| format!("  {}:{}", place.file(), place.line()));
            let line = format!("\n{mark} {op:>3}  {recorded:left$} | {asked:right$}{place}");
            // Writing to a String cannot fail.
            let _ = write!(text, "{}", line.trim_end_matches(' '));
        }
        text
    }
}
