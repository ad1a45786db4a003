//! Asking for confirmation of an action on one run, and performing it.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{
    Action, CancelRequest, ControlledJson, DidWhat, PauseRequest, Problem, ProblemCode, QueryReader,
    RestartRequest, RetryRunRequest, RunJson, TerminateRequest, WakeRequest,
};
use outlast_core::RunId;

use super::SentForm;
use super::confirm::{CONTROLS, Control};
use crate::access::forbidden;
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::pages::run::run_id;
use crate::site::Site;
use crate::ui::badge::run_badges;
use crate::ui::command::{as_command, curl};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::words;

/// The control of a path, if the caller may use it.
fn control_of(site: &Site) -> Result<&'static Control, Refusal> {
    let name = site.path.rsplit('/').next().unwrap_or_default();
    let found = CONTROLS.iter().find(|control| control.path == name);
    let not_found = || Problem::new(ProblemCode::NotFound, format!("there is no action `{name}`"));
    let control = found.ok_or_else(not_found).on(site)?;
    if site.may(control.action) {
        return Ok(control);
    }
    Err(refuse(site, control))
}

/// The refusal of an action that the caller may not use.
pub(super) fn refuse(site: &Site, control: &Control) -> Refusal {
    refuse_action(site, control.action, &format!("{} runs", control.path))
}

/// The refusal of an action: what the caller may not do.
pub(super) fn refuse_action(site: &Site, action: Action, what: &str) -> Refusal {
    let detail = format!("you may not {what} here");
    let problem = match site.is_read_only {
        true => Problem::new(ProblemCode::ReadOnly, detail),
        false => forbidden(action.role(), detail),
    };
    Refusal::new(site, problem)
}

/// `GET /runs/{id}/cancel` and the like: states the effect and asks.
pub(crate) async fn confirm(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let control = control_of(&site)?;
    let id = run_id(&id).on(&site)?;
    let op: Option<u64> =
        QueryReader::new(&site.query).and_then(|mut reader| reader.parse("op")).on(&site)?;
    let run = app.service.run(id).await.on(&site)?;
    let back = site.href(&format!("/runs/{id}"));
    let applies = control.applies_to(&run);
    let plan = match control.action {
        Action::Retry if applies => retry_plan(&app, &site, id, op).await,
        _ => html! {},
    };
    let body = html! {
        section.confirm {
            h1 { (control.verb) " run " (words::short(id)) "?" }
            (subject(&site, &run))
            @if applies {
                p { (control.effect) }
                (plan)
                (form(&site, control, id, op))
                (command_of(&site, control, id, op))
            } @else {
                p { "This does not apply to the run any more: its state has changed." }
                a.button href=(back) { "Go back" }
            }
        }
    };
    Ok(Page::new(format!("{} run", control.verb), body).response(&site))
}

fn form(site: &Site, control: &Control, id: RunId, op: Option<u64>) -> Markup {
    let reason = Field {
        name: "reason",
        label: "Reason",
        hint: "Shown in the history. Optional.",
        ..Field::default()
    };
    html! {
        form method="post" action=(site.href(&format!("/runs/{id}/{}", control.path))) {
            (token(site))
            @if let Some(op) = op { input type="hidden" name="op" value=(op); }
            @if control.has_reason { (reason.line()) }
            @if control.action == Action::Retry {
                label.check { input type="checkbox" name="force" value="true"; "Also attempt steps again that are attempted at most once" }
            }
            @if control.action == Action::Terminate {
                label.check { input type="checkbox" name="compensating" value="true"; "Run its compensations first" }
            }
            div.buttons {
                button class=(if control.is_dangerous { "button danger" } else { "button primary" }) {
                    (control.verb) " run " (words::short(id))
                }
                a.button href=(site.href(&format!("/runs/{id}"))) { "Go back" }
            }
        }
    }
}

/// What a retry would run again, or why it is refused. Forced, so that steps that are attempted at most once are listed.
async fn retry_plan(app: &App, site: &Site, id: RunId, op: Option<u64>) -> Markup {
    let request = RetryRunRequest { from: op, force: true, dry_run: true, ..RetryRunRequest::default() };
    match app.service.retry(&site.caller, id, &request).await {
        Ok(ControlledJson { plan: Some(plan), .. }) => html! {
            p { "It continues from operation " (plan.reopens) ". " (plan.skipped_events) " events are skipped, and "
                (plan.recorded_again) " outcomes among them are kept. Open again:" }
            ul {
                @for open in &plan.open {
                    li {
                        "#" (open.op) " " (open.kind) " " span.strong { (open.name) }
                        @if let Some(queue) = &open.queue { " in queue " (queue) }
                        @if open.at_most_once { " (attempted at most once)" }
                    }
                }
            }
        },
        Ok(_) => html! {},
        Err(problem) => html! { p { "It will be refused: " (problem.detail) } },
    }
}

/// The run that an action is about.
pub(crate) fn subject(site: &Site, run: &RunJson) -> Markup {
    html! {
        p.subject {
            (run_badges(site, run)) " " span.strong { (run.workflow) } " v" (run.version)
            @if let Some(key) = &run.key { " · " (key) }
            " · " span.id { (run.id) }
        }
    }
}

/// The same action as a command and as a request.
fn command_of(site: &Site, control: &Control, id: RunId, op: Option<u64>) -> Markup {
    let flag = match control.action {
        Action::Wake => Some(("--op", "op")),
        Action::Retry => Some(("--from", "from")),
        _ => None,
    };
    let (mut command, mut body) = (format!("outlast run {} {id}", control.path), "{}".to_owned());
    if let Some(((flag, field), op)) = flag.zip(op) {
        command.push_str(&format!(" {flag} {op}"));
        body = format!("{{\"{field}\":{op}}}");
    }
    let request = match control.action {
        Action::Delete => curl("DELETE", &format!("/api/runs/{id}"), None),
        _ => curl("POST", &format!("/api/runs/{id}/{}", control.path), Some(&body)),
    };
    as_command(site, &command, &request)
}

/// `POST /runs/{id}/cancel` and the like.
pub(crate) async fn perform(
    State(app): State<App>,
    site: Site,
    Path(id): Path<String>,
    body: String,
) -> Answer {
    let control = control_of(&site)?;
    let id = run_id(&id).on(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    if control.action == Action::Delete {
        app.service.delete(&site.caller, id).await.on(&site)?;
        return Ok(Redirect::to(&site.href("/runs")).into_response());
    }
    if control.action == Action::Restart {
        let started = app.service.restart(&site.caller, id, &RestartRequest::default()).await.on(&site)?;
        return Ok(Redirect::to(&site.href(&format!("/runs/{}?did=started", started.run.id))).into_response());
    }
    let done = change(&app, &site, control.action, id, &form).await.on(&site)?;
    let did = word_of(done.did);
    Ok(Redirect::to(&site.href(&format!("/runs/{id}?did={did}"))).into_response())
}

/// What was done, as a part of an address.
pub(crate) fn word_of(did: DidWhat) -> &'static str {
    match did {
        DidWhat::Requested => "requested",
        DidWhat::Already => "already",
        DidWhat::Nothing => "nothing",
    }
}

pub(super) async fn change(
    app: &App,
    site: &Site,
    action: Action,
    id: RunId,
    form: &SentForm,
) -> Result<ControlledJson, Problem> {
    let (service, caller) = (&app.service, &site.caller);
    let reason = form.text("reason").map(str::to_owned);
    match action {
        Action::Cancel => service.cancel(caller, id, &CancelRequest { reason }).await,
        Action::Terminate => {
            let compensating = form.text("compensating").is_some();
            service.terminate(caller, id, &TerminateRequest { reason, compensating }).await
        }
        Action::Pause => service.pause(caller, id, &PauseRequest { reason }).await,
        Action::Resume => service.resume(caller, id).await,
        Action::Wake => {
            let op = form.text("op").and_then(|op| op.parse().ok());
            service.wake(caller, id, &WakeRequest { op }).await
        }
        Action::Retry => {
            let from = form.text("op").and_then(|op| op.parse().ok());
            let force = form.text("force").is_some();
            let request = RetryRunRequest { from, force, reason, ..RetryRunRequest::default() };
            service.retry(caller, id, &request).await
        }
        Action::Quarantine => service.quarantine(caller, id).await,
        Action::Release => service.release(caller, id).await,
        _ => Err(Problem::new(ProblemCode::NotFound, format!("`{action}` is not an action on one run"))),
    }
}
