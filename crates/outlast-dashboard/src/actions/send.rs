//! Sending a payload to a hook that a run waits for.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use outlast_api::{Action, Problem, ProblemCode, QueryReader, SendRequest, SentJson};
use serde_json::value::RawValue;

use super::SentForm;
use super::control::subject;
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::pages::run::run_id;
use crate::site::Site;
use crate::ui::command::{as_command, curl, quoted};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::segment;

/// How long a page waits for the reply of a run.
const REPLY_WITHIN: &str = "20s";

/// What the form shows when it is shown again.
#[derive(Debug, Default)]
struct ShownAgain<'a> {
    payload: &'a str,
    error: Option<String>,
}

fn may_send(site: &Site) -> Result<(), Refusal> {
    if site.may(Action::Send) {
        return Ok(());
    }
    Err(Refusal::new(site, Problem::new(ProblemCode::ReadOnly, "you may not send to hooks here")))
}

/// `GET /runs/{id}/send?op=`: asks for the payload.
pub(crate) async fn ask_payload(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    may_send(&site)?;
    let op: Option<u64> =
        QueryReader::new(&site.query).and_then(|mut reader| reader.parse("op")).on(&site)?;
    let op = op.ok_or_else(|| Problem::field("?op", "the operation is missing")).on(&site)?;
    page(&app, &site, &id, op, ShownAgain::default()).await
}

async fn page(app: &App, site: &Site, id: &str, op: u64, shown: ShownAgain<'_>) -> Answer {
    let id = run_id(id).on(site)?;
    let (run, hook) = futures_util::future::join(app.service.run(id), app.service.operation(id, op)).await;
    let (run, hook) = (run.on(site)?, hook.on(site)?);
    let is_open = hook.kind == "hook" && hook.ended_at.is_none() && run.ended_at.is_none();
    let field = Field {
        name: "payload",
        label: "Payload",
        hint: "JSON of the type that the workflow expects. A payload that it cannot decode is rejected, and the run \
               keeps waiting.",
        value: shown.payload,
        error: shown.error.as_deref(),
    };
    let path = format!("/api/runs/{id}/hooks/{}", segment(&hook.name));
    let request = curl("POST", &path, Some("{\"payload\":null}"));
    let body = html! {
        section.confirm {
            h1 { "Answer hook " (hook.name) }
            (subject(site, &run))
            @if is_open {
                form method="post" action=(site.href(&format!("/runs/{id}/send"))) {
                    (token(site))
                    input type="hidden" name="op" value=(op);
                    (field.lines(8))
                    label.check { input type="checkbox" name="reply" value="true"; "Wait for a reply, for at most 20 seconds" }
                    @for rejected in &hook.rejected { p.bad { "Rejected before: " (rejected.reason) } }
                    div.buttons {
                        button.button.primary { "Send to " (hook.name) }
                        a.button href=(site.href(&format!("/runs/{id}"))) { "Go back" }
                    }
                }
                (as_command(site, &format!("outlast send {id} {} null", quoted(&hook.name)), &request))
            } @else {
                p { "The run does not wait for this hook any more." }
                a.button href=(site.href(&format!("/runs/{id}"))) { "Go back" }
            }
        }
    };
    Ok(Page::new(format!("Answer {}", hook.name), body).response(site))
}

/// `POST /runs/{id}/send`.
pub(crate) async fn send(State(app): State<App>, site: Site, Path(id): Path<String>, body: String) -> Answer {
    may_send(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let op: Option<u64> = form.text("op").and_then(|op| op.parse().ok());
    let op = op.ok_or_else(|| Problem::field("op", "the operation is missing")).on(&site)?;
    let text = form.text("payload").unwrap_or("null");
    let payload = match RawValue::from_string(text.to_owned()) {
        Ok(payload) => payload,
        Err(error) => {
            let error = Some(format!("This is not JSON: {error}."));
            return page(&app, &site, &id, op, ShownAgain { payload: text, error }).await;
        }
    };
    let run = run_id(&id).on(&site)?;
    let hook = app.service.operation(run, op).await.on(&site)?;
    let reply_within = form.text("reply").map(|_| REPLY_WITHIN.to_owned());
    let request = SendRequest { payload: Some(payload), key: None, reply_within };
    let sent =
        app.service_for(&site.caller).send(&site.caller, run, &hook.name, request, None).await.on(&site)?;
    if sent.answer.is_some() || sent.delivery == "rejected" {
        return Ok(reply_page(&site, &hook.name, &sent));
    }
    Ok(Redirect::to(&site.href(&format!("/runs/{run}?did=delivered"))).into_response())
}

/// What became of a payload whose sender has waited for the reply.
fn reply_page(site: &Site, hook: &str, sent: &SentJson) -> Response {
    let why = sent.why.as_deref().unwrap_or("the run did not reply");
    let body = html! {
        section.confirm {
            h1 { "Answer hook " (hook) }
            (subject(site, &sent.run))
            @match (sent.answer.as_deref(), &sent.reply) {
                (Some("reply"), Some(reply)) => {
                    p { "The run has replied:" }
                    pre { (reply.get()) }
                }
                (Some("timeout"), _) => p { "The payload is sent. The run has not replied yet." },
                (Some(_), _) => p { "The payload is sent. " (why) "." },
                (None, _) => p.bad { "The payload was rejected: " (why) },
            }
            a.button href=(site.href(&format!("/runs/{}", sent.run.id))) { "Go back" }
        }
    };
    Page::new(format!("Reply of {hook}"), body).response(site)
}
