//! The same action on selected runs: asks for confirmation, and performs it one after the other.

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{Action, Problem, ProblemCode, QueryReader, RunJson};
use outlast_core::RunId;

use super::SentForm;
use super::confirm::{CONTROLS, Control};
use super::control::{change, refuse};
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::site::Site;
use crate::ui::badge::run_badge;
use crate::ui::command::{as_command, curl};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::{icon, run_link};
use crate::ui::words;

/// The most runs that can be selected: the rows of a page.
const SELECTED_MAX: usize = 200;

/// The actions on selected runs.
const SELECTED_ACTIONS: [Action; 6] =
    [Action::Cancel, Action::Pause, Action::Resume, Action::Retry, Action::Restart, Action::Delete];

/// The actions on selected runs, in their order.
pub(crate) fn selected_actions() -> impl Iterator<Item = &'static Control> {
    SELECTED_ACTIONS.into_iter().filter_map(|action| CONTROLS.iter().find(|control| control.action == action))
}

fn control_of(site: &Site, name: &str) -> Result<&'static Control, Refusal> {
    let found = selected_actions().find(|control| control.path == name);
    let not_found =
        || Problem::new(ProblemCode::NotFound, format!("there is no action `{name}` on selected runs"));
    let control = found.ok_or_else(not_found).on(site)?;
    match site.may(control.action) && site.may(Action::Bulk) {
        true => Ok(control),
        false => Err(refuse(site, control)),
    }
}

/// The runs that a query or form names, and those that could not be read.
async fn read(app: &App, site: &Site, query: &str) -> Result<(Vec<RunJson>, usize), Refusal> {
    let ids = QueryReader::new(query).on(site)?.all("run");
    let ids: Vec<RunId> = ids.iter().filter_map(|id| id.parse().ok()).collect();
    if ids.is_empty() || ids.len() > SELECTED_MAX {
        let detail = format!("select between 1 and {SELECTED_MAX} runs; {} are selected", ids.len());
        return Err(Refusal::new(site, Problem::field("?run", detail)));
    }
    let reads = ids.iter().map(|id| app.service.run(*id));
    let runs: Vec<RunJson> = futures_util::future::join_all(reads).await.into_iter().flatten().collect();
    let gone = ids.len() - runs.len();
    Ok((runs, gone))
}

/// `GET /runs/selected?action=&run=&run=`: states the effect, and asks.
pub(crate) async fn ask_selected(State(app): State<App>, site: Site) -> Answer {
    let action = QueryReader::new(&site.query).and_then(|mut reader| reader.text("action")).on(&site)?;
    let control = control_of(&site, action.as_deref().unwrap_or_default())?;
    let (runs, gone) = read(&app, &site, &site.query).await?;
    let (fitting, others): (Vec<_>, Vec<_>) = runs.into_iter().partition(|run| control.applies_to(run));
    let object = words::counted(fitting.len() as u64, "run");
    let body = html! {
        section.confirm {
            h1 { (control.verb) " " (object) "?" }
            p { (control.effect) }
            @if !others.is_empty() { p.muted { (words::counted(others.len() as u64, "selected run")) " left out: the action does not apply to its state." } }
            @if gone > 0 { p.muted { (words::counted(gone as u64, "selected run")) " left out: deleted meanwhile." } }
            @if fitting.is_empty() { a.button href=(site.href("/runs")) { "Go back" } }
            @else {
                (list(&site, &fitting))
                (form(&site, control, &fitting, &object))
                (command_of(&site, control, &fitting))
            }
        }
    };
    Ok(Page::new(format!("{} {object}", control.verb), body).response(&site))
}

fn list(site: &Site, runs: &[RunJson]) -> Markup {
    html! {
        ul.subjects {
            @for run in runs {
                li { (run_badge(site, run)) " " span.strong { (run.workflow) } " " (run_link(site, run.id)) @if let Some(key) = &run.key { " " span.muted { (key) } } }
            }
        }
    }
}

fn form(site: &Site, control: &Control, runs: &[RunJson], object: &str) -> Markup {
    let reason = Field {
        name: "reason",
        label: "Reason",
        hint: "Shown in each history. Optional.",
        ..Field::default()
    };
    html! {
        form method="post" action=(site.href("/runs/selected")) {
            (token(site))
            input type="hidden" name="action" value=(control.path);
            @for run in runs { input type="hidden" name="run" value=(run.id); }
            @if control.has_reason { (reason.line()) }
            div.buttons {
                button class=(if control.is_dangerous { "button danger" } else { "button primary" }) { (control.verb) " " (object) }
                a.button href=(site.href("/runs")) { "Go back" }
            }
        }
    }
}

fn command_of(site: &Site, control: &Control, runs: &[RunJson]) -> Markup {
    let ids: Vec<String> = runs.iter().map(|run| run.id.to_string()).collect();
    let each = |call: &str| format!("for run in {}; do {call}; done", ids.join(" "));
    let command = each(&format!("outlast run {} $run --yes", control.path));
    let request = match control.action {
        Action::Delete => curl("DELETE", "/api/runs/$run", None),
        _ => curl("POST", &format!("/api/runs/$run/{}", control.path), Some("{}")),
    };
    as_command(site, &command, &each(&request))
}

/// `POST /runs/selected`.
pub(crate) async fn perform_selected(State(app): State<App>, site: Site, body: String) -> Answer {
    let form = SentForm::read(&app, &site, &body)?;
    let control = control_of(&site, form.text("action").unwrap_or_default())?;
    let (runs, _) = read(&app, &site, &body).await?;
    let mut failed = Vec::new();
    for run in &runs {
        if let Err(problem) = one(&app, &site, control, run.id, &form).await {
            failed.push((run, problem));
        }
    }
    let done = runs.len() - failed.len();
    let body = html! {
        section.confirm {
            h1 { (control.verb) ": " (done) " of " (words::counted(runs.len() as u64, "run")) " done" }
            @if failed.is_empty() { p.done role="status" { (icon(&site, "completed")) "All requests were accepted." } }
            @for (run, problem) in &failed { p.bad { (run_link(&site, run.id)) " " (problem.detail) } }
            a.button.primary href=(site.href("/runs")) { "Back to the runs" }
        }
    };
    Ok(Page::new(format!("{} runs", control.verb), body).response(&site))
}

async fn one(app: &App, site: &Site, control: &Control, id: RunId, form: &SentForm) -> Result<(), Problem> {
    match control.action {
        Action::Delete => app.service.delete(&site.caller, id).await.map(drop),
        Action::Restart => {
            let request = outlast_api::RestartRequest::default();
            app.service.restart(&site.caller, id, &request).await.map(drop)
        }
        action => change(app, site, action, id, form).await.map(drop),
    }
}
