//! Deleting the runs that ended long ago.

use axum::extract::State;
use maud::html;
use outlast_api::{Action, Problem, PruneRequest, Rfc3339};

use super::SentForm;
use super::control::refuse_action;
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::site::Site;
use crate::ui::command::{as_command, curl};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::icon;
use crate::ui::words;

fn may_prune(site: &Site) -> Result<(), Refusal> {
    match site.may(Action::Prune) {
        true => Ok(()),
        false => Err(refuse_action(site, Action::Prune, "delete old runs")),
    }
}

/// `GET /settings/prune`.
pub(crate) async fn ask_prune(State(_): State<App>, site: Site) -> Answer {
    may_prune(&site)?;
    let month_ago = Rfc3339(site.now.minus(std::time::Duration::from_secs(30 * 86_400))).to_string();
    let body = format!("{{\"ended_before\":\"{month_ago}\"}}");
    let request = curl("POST", "/api/world/prune", Some(&body));
    let time = Field {
        name: "ended_before",
        label: "Ended before",
        hint: "Such as 2026-01-31T00:00:00Z.",
        value: &month_ago,
        error: None,
    };
    let body = html! {
        section.confirm {
            h1 { "Delete old runs?" }
            p { "All runs that ended before a time are deleted, with their histories, streams and states. Runs in quarantine stay. This cannot be undone." }
            form method="post" action=(site.href("/settings/prune")) {
                (token(&site))
                (time.line())
                div.buttons {
                    button.button.danger { "Delete old runs" }
                    a.button href=(site.href("/settings")) { "Go back" }
                }
            }
            (as_command(&site, "outlast world prune --ended-before 30d", &request))
        }
    };
    Ok(Page::new("Delete old runs", body).response(&site))
}

/// `POST /settings/prune`.
pub(crate) async fn prune(State(app): State<App>, site: Site, body: String) -> Answer {
    may_prune(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let text = form.text("ended_before").unwrap_or_default();
    let invalid =
        |_| Problem::field("ended_before", format!("`{text}` is not a time; write 2026-01-31T00:00:00Z"));
    let ended_before = text.parse::<Rfc3339>().map_err(invalid).on(&site)?;
    let pruned = app.service.prune(&PruneRequest { ended_before }).await.on(&site)?;
    let body = html! {
        section.confirm {
            h1 { (words::counted(pruned.deleted, "run")) " deleted" }
            p.done role="status" { (icon(&site, "completed")) "Done." }
            a.button.primary href=(site.href("/runs")) { "Back to the runs" }
        }
    };
    Ok(Page::new("Deleted", body).response(&site))
}
