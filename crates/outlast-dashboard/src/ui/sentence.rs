//! Sentences of the engine: names in backquotes become code, times become times of the browser's zone, ids become links.

use maud::{Markup, html};
use outlast_api::Rfc3339;
use outlast_core::{IntoDuration, RunId, SessionId};

use super::parts::{run_link, short_time, worker_link};
use super::words::duration;
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
            @else if let Some(time) = spaced_duration(plain) { (time) (rest) }
            @else { (word) }
        }
    }
}

/// A duration such as `(1d2h1m` as pages show it elsewhere: `(1 d 2 h`. `None` if it is something else.
fn spaced_duration(word: &str) -> Option<String> {
    let text = word.trim_start_matches('(');
    let opening = &word[..word.len() - text.len()];
    let has_two_units = text.chars().filter(char::is_ascii_alphabetic).count() > 1;
    let is_duration = has_two_units && text.starts_with(|first: char| first.is_ascii_digit());
    let time = text.into_duration().ok().filter(|_| is_duration && !text.contains("ms"))?;
    Some(format!("{opening}{}", duration(time)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_in_sentences_look_like_all_others() {
        let texts = ["(1d2h1m", "4h1m", "90s", "3d", "exe-1d2h", "1d2x", "820ms", "v1"].map(spaced_duration);
        let expected = [Some("(1 d 2 h"), Some("4 h 1 m"), None, None, None, None, None, None];
        assert_eq!(texts, expected.map(|text| text.map(str::to_owned)));
    }
}
