//! Sentences of the engine: names in backquotes become code, times become times of the browser's zone, ids become links.

use maud::{Markup, html};
use outlast_api::Rfc3339;
use outlast_core::{RunId, SessionId};

use super::parts::{run_link, short_time, worker_link};
use crate::site::Site;

/// A sentence with its names, times and ids.
pub(crate) fn sentence(site: &Site, text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } }
            @else { (words(site, part)) }
        }
    }
}

/// A text whose names in backquotes become code.
pub(crate) fn with_code(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn words(site: &Site, text: &str) -> Markup {
    html! {
        @for (index, word) in text.split(' ').enumerate() {
            @if index > 0 { " " }
            @let plain = word.trim_end_matches([',', '.', ':', ';', ')']);
            @let rest = &word[plain.len()..];
            @if let Ok(time) = plain.parse::<Rfc3339>() { (short_time(time)) (rest) }
            @else if let Ok(run) = plain.parse::<RunId>() { (run_link(site, run)) (rest) }
            @else if let Ok(session) = plain.parse::<SessionId>() { (worker_link(site, session)) (rest) }
            @else { (word) }
        }
    }
}
