//! Deleting the runs that ended long ago.

use std::time::Duration;

use axum::extract::State;
use maud::html;
use outlast_api::{Action, Problem, PruneRequest, QueryReader, Rfc3339};
use outlast_core::Timestamp;

use super::SentForm;
use super::control::refuse_action;
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::site::Site;
use crate::ui::command::{as_command, curl};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::{icon, moment};
use crate::ui::words;

fn may_prune(site: &Site) -> Result<(), Refusal> {
    match site.may(Action::Prune) {
        true => Ok(()),
        false => Err(refuse_action(site, Action::Prune, "delete old runs")),
    }
}

/// `GET /settings/prune?ended_before=`: how many runs would be deleted, and the question.
pub(crate) async fn ask_prune(State(app): State<App>, site: Site) -> Answer {
    may_prune(&site)?;
    let given = QueryReader::new(&site.query).and_then(|mut reader| reader.text("ended_before")).on(&site)?;
    let month_ago = site.now.minus(Duration::from_secs(30 * 86_400)).as_micros();
    // A whole second is easier to read and to change.
    let month_ago = Rfc3339(Timestamp::from_micros(month_ago - month_ago.rem_euclid(1_000_000)));
    let ended_before = given.map_or(Ok(month_ago), |text| time(&text)).on(&site)?;
    let dry = PruneRequest { ended_before, dry_run: true };
    let counted = app.service.prune(&dry).await.on(&site)?;
    let body = format!("{{\"ended_before\":\"{}\"}}", plain(ended_before));
    let request = curl("POST", "/api/world/prune", Some(&body));
    let text = plain(ended_before);
    let field = Field {
        name: "ended_before",
        label: "Ended before",
        hint: "Such as 2026-01-31T00:00:00Z.",
        value: &text,
        error: None,
    };
    let body = html! {
        section.confirm {
            h1 { "Delete old runs?" }
            p { "All runs that ended before a time are deleted, with their histories, streams and states. Runs in quarantine stay. This cannot be undone." }
            form action=(site.href("/settings/prune")) {
                (field.line())
                button.button { "Count again" }
            }
            p.strong {
                @if counted.more { "More than " }
                (words::counted(counted.deleted, "run")) " ended before " (moment(ended_before)) "."
            }
            form method="post" action=(site.href("/settings/prune")) {
                (token(&site))
                input type="hidden" name="ended_before" value=(text);
                div.buttons {
                    @if counted.deleted > 0 {
                        button.button.danger {
                            "Delete " @if counted.more { "more than " } (words::counted(counted.deleted, "run"))
                        }
                    }
                    a.button href=(site.href("/settings")) { "Go back" }
                }
            }
            (as_command(&site, &format!("outlast world prune --ended-before {text}"), &request))
        }
    };
    Ok(Page::new("Delete old runs", body).response(&site))
}

/// A time without a fraction of zero.
fn plain(time: Rfc3339) -> String {
    time.to_string().replace(".000000Z", "Z")
}

fn time(text: &str) -> Result<Rfc3339, Problem> {
    text.parse().map_err(|_| {
        Problem::field("ended_before", format!("`{text}` is not a time; write 2026-01-31T00:00:00Z"))
    })
}

/// `POST /settings/prune`.
pub(crate) async fn prune(State(app): State<App>, site: Site, body: String) -> Answer {
    may_prune(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let ended_before = time(form.text("ended_before").unwrap_or_default()).on(&site)?;
    let pruned = app.service.prune(&PruneRequest { ended_before, dry_run: false }).await.on(&site)?;
    let body = html! {
        section.confirm {
            h1 { (words::counted(pruned.deleted, "run")) " deleted" }
            p.done role="status" { (icon(&site, "completed")) "Done." }
            a.button.primary href=(site.href("/runs")) { "Back to the runs" }
        }
    };
    Ok(Page::new("Deleted", body).response(&site))
}
