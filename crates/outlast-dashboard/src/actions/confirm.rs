//! The actions on one run: when they apply, and what their pages say.

use maud::{Markup, html};
use outlast_api::{Action, RunJson};

use crate::site::Site;
use crate::ui::parts::icon;

/// The verb of an action, as its button says it.
pub(crate) fn verb_of(action: Action) -> &'static str {
    let control = CONTROLS.iter().find(|control| control.action == action);
    control.map_or(action.as_str(), |control| control.verb)
}

/// An action on one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) action: Action,
    /// The path below the run.
    pub(crate) path: &'static str,
    /// What the button says; the object follows.
    pub(crate) verb: &'static str,
    /// What happens.
    pub(crate) effect: &'static str,
    pub(crate) has_reason: bool,
    pub(crate) is_dangerous: bool,
}

const fn control(action: Action, path: &'static str, verb: &'static str, effect: &'static str) -> Control {
    Control { action, path, verb, effect, has_reason: false, is_dangerous: false }
}

/// All actions on one run that have a page for confirmation.
pub(crate) const CONTROLS: [Control; 10] = [
    Control {
        has_reason: true,
        is_dangerous: true,
        ..control(
            Action::Cancel,
            "cancel",
            "Cancel",
            "The workflow is asked to stop. Its open operations end, its compensations run, and it may clean up \
             before it ends as cancelled.",
        )
    },
    Control {
        has_reason: true,
        ..control(
            Action::Pause,
            "pause",
            "Pause",
            "Nothing more is delivered to the run until it is resumed. Attempts that are in progress finish.",
        )
    },
    control(
        Action::Resume,
        "resume",
        "Resume",
        "The run continues where it was held back. A stuck run is tried again, also by builds that have failed.",
    ),
    control(
        Action::Wake,
        "wake",
        "Wake",
        "The run does not wait any longer: its sleep ends now, or the next attempt begins now.",
    ),
    Control {
        has_reason: true,
        ..control(
            Action::Retry,
            "retry",
            "Retry",
            "The run continues from the operation that failed. What has completed does not run again; what the workflow \
             did after the failure is skipped.",
        )
    },
    control(
        Action::Restart,
        "restart",
        "Restart",
        "A new run is started with the workflow and the input of this one. This run does not change.",
    ),
    Control {
        has_reason: true,
        is_dangerous: true,
        ..control(
            Action::Terminate,
            "terminate",
            "Terminate",
            "The run ends at once, without its code: nothing is cleaned up. Its children are cancelled.",
        )
    },
    control(
        Action::Quarantine,
        "quarantine",
        "Quarantine",
        "The run is kept until it is released: pruning, retention and bulk actions leave it out.",
    ),
    control(Action::Release, "release", "Release", "The quarantine ends: the run can be deleted again."),
    Control {
        is_dangerous: true,
        ..control(
            Action::Delete,
            "delete",
            "Delete",
            "The run, its history, its streams and its state are deleted. This cannot be undone.",
        )
    },
];

impl Control {
    /// Whether the action makes sense for the run in its current state.
    pub(crate) fn applies_to(&self, run: &RunJson) -> bool {
        let is_open = run.ended_at.is_none();
        let has = |mark: &str| run.marks.iter().any(|found| found == mark);
        match self.action {
            Action::Cancel => is_open && !run.flags.iter().any(|flag| flag == "cancelling"),
            Action::Terminate => is_open,
            Action::Pause => is_open && !has("paused"),
            Action::Resume => is_open && (has("paused") || run.stuck.is_some()),
            Action::Wake => {
                is_open && run.waits.iter().any(|wait| matches!(wait.on.as_str(), "timer" | "retry"))
            }
            Action::Retry => matches!(run.status.as_str(), "failed" | "cancelled") && !has("compensated"),
            Action::Quarantine => !has("quarantined"),
            Action::Release => has("quarantined"),
            Action::Delete => !is_open && !has("quarantined"),
            _ => true,
        }
    }
}

/// The buttons of a run: the usual actions, and a menu with the others.
pub(crate) fn run_actions(site: &Site, run: &RunJson) -> Markup {
    let possible: Vec<&Control> =
        CONTROLS.iter().filter(|control| site.may(control.action) && control.applies_to(run)).collect();
    let is_first = |control: &Control| match control.action {
        Action::Cancel | Action::Pause | Action::Resume | Action::Retry => true,
        // Of a run that has ended there is nothing else to do.
        Action::Restart => run.ended_at.is_some(),
        _ => false,
    };
    let link = |control: &Control| site.href(&format!("/runs/{}/{}", run.id, control.path));
    html! {
        div.actions {
            @for control in possible.iter().filter(|control| is_first(control)) {
                a.button href=(link(control)) { (control.verb) "…" }
            }
            details.menu {
                summary.button aria-label="More actions" title="More actions" { (icon(site, "more")) }
                ul {
                    @for control in possible.iter().filter(|control| !is_first(control)) {
                        li { a href=(link(control)) class=[control.is_dangerous.then_some("danger")] { (control.verb) "…" } }
                    }
                    @if site.may(Action::Fork) {
                        li { a href=(site.href(&format!("/runs/{}/fork", run.id))) { "Fork…" } }
                    }
                    li { a href=(site.href(&format!("/runs/{}/export", run.id))) { "Export history" } }
                }
            }
        }
    }
}
