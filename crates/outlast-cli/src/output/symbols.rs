//! Symbols and colours of statuses.

use outlast_api::RunJson;

use super::style::{Look, Tone};

/// The symbol of a status, its ASCII form, and its colour.
fn symbol(status: &str) -> (&'static str, &'static str, Tone) {
    match status {
        "pending" => ("○", ".", Tone::Dim),
        "running" => ("●", ">", Tone::Active),
        "waiting" | "open" => ("⧗", "~", Tone::Active),
        "retry" => ("⧗", "~", Tone::Warning),
        "stuck" => ("▲", "!", Tone::Warning),
        "completed" => ("✓", "+", Tone::Good),
        "failed" => ("✕", "x", Tone::Bad),
        "cancelled" => ("⊘", "-", Tone::Dim),
        "paused" => ("‖", "=", Tone::Warning),
        "compensating" => ("↶", "<", Tone::Warning),
        "compensated" => ("↶", "<", Tone::Dim),
        _ => ("·", " ", Tone::Dim),
    }
}

/// A status with its symbol and colour.
pub(crate) fn status(look: Look, status: &str) -> String {
    let (unicode, ascii, tone) = symbol(status);
    look.paint(tone, format!("{} {status}", look.either(unicode, ascii)))
}

/// The status of a run, or the mark that says more.
pub(crate) fn run_status(look: Look, run: &RunJson) -> String {
    status(look, badge(run))
}

/// The word that says most about where a run stands.
pub(crate) fn badge(run: &RunJson) -> &str {
    let has = |mark: &str| run.marks.iter().any(|found| found == mark);
    let is_open = run.ended_at.is_none();
    match () {
        () if is_open && has("paused") => "paused",
        () if is_open && has("compensating") => "compensating",
        () if has("compensated") && run.status == "failed" => "compensated",
        () => &run.status,
    }
}

/// The colour of a status.
pub(crate) fn tone(status: &str) -> Tone {
    symbol(status).2
}
