//! Notes: what a run waits for or failed with, in one line.

use maud::{Markup, html};
use outlast_api::{RunFailureJson, RunJson, WaitJson};

use outlast_core::queue::BUILT_IN_PREFIX;

use super::parts::{run_link, until};
use super::sentence::with_code;
use super::words::clipped;
use crate::site::Site;

/// The characters of a message that a table shows; the rest is in its title.
const MESSAGE_CHARACTERS: usize = 120;

/// What a run waits for, or failed with.
pub(crate) fn note(site: &Site, run: &RunJson) -> Markup {
    if let Some(failure) = &run.failure {
        return failure_note(failure);
    }
    if let Some(stuck) = &run.stuck {
        return html! { span.bad title=(stuck.message) { (stuck.reason) ": " (with_code(&clipped(&stuck.message, MESSAGE_CHARACTERS))) } };
    }
    if run.ended_at.is_some() {
        return tags(run);
    }
    match run.waits.as_slice() {
        [] if run.status == "pending" => match run.wake_at {
            Some(time) if time.0 > site.now => html! { "begins " (until(site, time)) },
            _ => html! { "in line for queue " code { (run.queue) } },
        },
        [] => tags(run),
        [first] => wait(site, first),
        [first, rest @ ..] => html! { (wait(site, first)) span.muted { " and " (rest.len()) " more" } },
    }
}

/// The tags of a run, where there is nothing more important to say.
fn tags(run: &RunJson) -> Markup {
    let own = run.tags.iter().filter(|(name, _)| !name.starts_with(BUILT_IN_PREFIX));
    html! { @for (name, value) in own { span.muted { (name) "=" } (value) "  " } }
}

/// A failure in one line: the step, the code or the message.
pub(crate) fn failure_note(failure: &RunFailureJson) -> Markup {
    html! {
        span title=(failure.message) {
            @if let Some(step) = &failure.step { span.strong { (step) } ": " }
            @if let Some(code) = &failure.code { code.bad { (code) } " " }
            (with_code(&clipped(&failure.message, MESSAGE_CHARACTERS)))
        }
    }
}

/// One thing that a run waits for.
pub(crate) fn wait(site: &Site, wait: &WaitJson) -> Markup {
    let name = wait.name.as_deref().unwrap_or_default();
    html! {
        @match wait.on.as_str() {
            "timer" => "sleeps",
            "hook" => { "hook " span.strong { (name) } },
            "child" => { "child " span.strong { (name) } @if let Some(run) = wait.run { " " (run_link(site, run)) } },
            "retry" => { "retries " span.strong { (name) } },
            "step" => { "step " span.strong { (name) } @if let Some(queue) = &wait.queue { " in queue " code { (queue) } } },
            other => (other),
        }
        @if let Some(time) = wait.until {
            @match wait.on.as_str() {
                "hook" | "child" => { span.muted { ", times out " (until(site, time)) } },
                "timer" => { ", wakes " (until(site, time)) },
                _ => { " " (until(site, time)) },
            }
        }
    }
}
