//! What happened to a run, in words.

use maud::{Markup, html};
use outlast_api::{MomentKind, RunMoment};
use outlast_core::Timestamp;

use crate::ui::words;

/// The moments that a table lists; the others are counted.
const MOMENTS_LISTED: usize = 50;

/// What happened; `None` for what has a row of its own.
pub(super) fn moment_words(kind: &MomentKind) -> Option<String> {
    Some(match kind {
        MomentKind::CancelRequested(reason) if reason.is_empty() => "a cancel was requested".to_owned(),
        MomentKind::CancelRequested(reason) => format!("a cancel was requested: {reason}"),
        MomentKind::Compensating => "compensations began".to_owned(),
        MomentKind::Woken => "woken early".to_owned(),
        MomentKind::Generation(generation) => format!("generation {generation} began"),
        MomentKind::Build(build) => format!("build {} continued it", words::clipped(build, 20)),
        MomentKind::Retried(op) => format!("retried from #{op}"),
        MomentKind::Forked(of) => format!("forked: everything before is a copy of run {}", words::short(*of)),
        _ => return None,
    })
}

/// What happened to a run, for its row in a table.
pub(super) fn moment_list(moments: &[RunMoment], origin: Timestamp) -> Markup {
    let told: Vec<_> =
        moments.iter().filter_map(|moment| Some((moment.at, moment_words(&moment.kind)?))).collect();
    html! {
        @if !told.is_empty() {
            ol.plain {
                @for (at, text) in told.iter().take(MOMENTS_LISTED) {
                    li { "at +" (words::duration(at.since(origin))) " " (text) }
                }
                @if told.len() > MOMENTS_LISTED { li { "and " (told.len() - MOMENTS_LISTED) " more" } }
            }
        }
    }
}
