//! Badges: a status as icon and word.

use maud::{Markup, html};
use outlast_api::RunJson;

use super::parts::icon;
use crate::site::Site;

/// How a status is shown: its word, and the name of its icon, which is also the class with its colour.
pub(crate) fn look(status: &str) -> (&str, &'static str) {
    let icon = match status {
        "running" | "busy" | "working" => "running",
        "waiting" | "open" | "retrying" => "waiting",
        "stuck" => "stuck",
        "completed" => "completed",
        "failed" => "failed",
        "cancelled" | "dropped" | "abandoned" | "cancelling" => "cancelled",
        "paused" | "draining" => "paused",
        "compensating" | "compensated" => "compensated",
        "quarantined" => "quarantined",
        _ => "pending",
    };
    (status, icon)
}

/// The word that a run's badge shows: its first mark, or its status.
pub(crate) fn shown_status(run: &RunJson) -> &str {
    // The mark of an ended run that has been undone says more than `failed`; a quarantine does not hide the status.
    let mark = run.marks.iter().find(|mark| *mark != "quarantined");
    mark.map_or(&run.status, |mark| mark)
}

/// A badge with this word.
pub(crate) fn badge(site: &Site, status: &str) -> Markup {
    let (word, name) = look(status);
    html! {
        span class={ "badge s-" (name) } { (icon(site, name)) (word) }
    }
}

/// The badge of a run in a list: its mark or status.
pub(crate) fn run_badge(site: &Site, run: &RunJson) -> Markup {
    let is_cancelling = run.flags.iter().any(|flag| flag == "cancelling") && run.marks.is_empty();
    badge(site, if is_cancelling { "cancelling" } else { shown_status(run) })
}

/// All badges of a run: its mark, its status, its flags, and whether it is in quarantine.
pub(crate) fn run_badges(site: &Site, run: &RunJson) -> Markup {
    let shown = shown_status(run);
    html! {
        (badge(site, shown))
        @if shown != run.status && run.ended_at.is_some() { (badge(site, &run.status)) }
        @if run.marks.iter().any(|mark| mark == "quarantined") { (badge(site, "quarantined")) }
        @for flag in &run.flags { (badge(site, flag)) }
    }
}
