//! Starting a run.

use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{Action, Problem, ProblemCode, QueryReader, StartRequest, WorkflowJson};
use serde_json::value::RawValue;

use super::SentForm;
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal, problem_box};
use crate::site::Site;
use crate::ui::command::{as_command, curl, quoted};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::empty;

fn may_start(site: &Site) -> Result<(), Refusal> {
    if site.may(Action::Start) {
        return Ok(());
    }
    Err(Refusal::new(site, Problem::new(ProblemCode::ReadOnly, "you may not start runs here")))
}

/// `GET /runs/new`.
pub(crate) async fn ask_start(State(app): State<App>, site: Site) -> Answer {
    may_start(&site)?;
    let workflow = QueryReader::new(&site.query).and_then(|mut reader| reader.text("workflow")).on(&site)?;
    let form = SentForm([("workflow".to_owned(), workflow.unwrap_or_default())].into());
    page(&app, &site, &form, None).await
}

async fn page(app: &App, site: &Site, form: &SentForm, problem: Option<&Problem>) -> Answer {
    let workflows = app.service.workflows().await.on(site)?.items;
    let body = html! {
        section.confirm {
            h1 { "Start run" }
            @if workflows.is_empty() {
                (empty(site, "worker", "No worker has joined", html! {
                    p { "The form lists the workflows of joined workers. Start one:" }
                    pre { "Worker::builder(world).register((checkout, charge)).start().await?;" }
                }))
            } @else {
                @if let Some(problem) = problem { (problem_box(site, problem)) }
                (fields(site, &workflows, form))
                (command_of(site, &workflows, form))
            }
        }
    };
    Ok(Page::new("Start run", body).response(site))
}

fn fields(site: &Site, workflows: &[WorkflowJson], form: &SentForm) -> Markup {
    let field = |name: &'static str, label: &'static str, hint: &'static str| Field {
        name,
        label,
        hint,
        value: form.text(name).unwrap_or_default(),
        error: None,
    };
    html! {
        form method="post" action=(site.href("/runs/new")) {
            (token(site))
            div.field {
                label for="workflow" { "Workflow" }
                select id="workflow" name="workflow" {
                    @for workflow in workflows {
                        option value=(workflow.name) selected[form.text("workflow") == Some(&workflow.name)] { (workflow.name) }
                    }
                }
            }
            (field("input", "Input", "JSON. Several parameters are an array.").lines(8))
            div.pair {
                (field("key", "Key", "A second start with the same key returns the first run.").line())
                (field("queue", "Queue", "`default` unless set.").line())
                (field("after", "Begin after", "Such as 30s or 1h30m.").line())
                (field("tags", "Tags", "name:value, separated by spaces.").line())
            }
            div.buttons {
                button.button.primary { "Start run" }
                a.button href=(site.href("/runs")) { "Go back" }
            }
        }
    }
}

/// The same start as a command and as a request, with what the form contains.
fn command_of(site: &Site, workflows: &[WorkflowJson], form: &SentForm) -> Markup {
    let first = workflows.first().map_or("", |workflow| workflow.name.as_str());
    let workflow = form.text("workflow").unwrap_or(first);
    let input = form.text("input").filter(|text| serde_json::from_str::<&RawValue>(text).is_ok());
    let input = input.unwrap_or("null");
    let mut command = format!("outlast start {} {}", quoted(workflow), quoted(input));
    for name in ["key", "queue", "after"] {
        if let Some(value) = form.text(name) {
            command.push_str(&format!(" --{name} {}", quoted(value)));
        }
    }
    let workflow = serde_json::Value::from(workflow);
    let body = format!("{{\"workflow\":{workflow},\"input\":{input}}}");
    as_command(site, &command, &curl("POST", "/api/runs", Some(&body)))
}

/// `POST /runs/new`.
pub(crate) async fn start(State(app): State<App>, site: Site, body: String) -> Answer {
    may_start(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let started = match request(&form) {
        Ok(request) => app.service.start(&site.caller, request, None).await,
        Err(problem) => Err(problem),
    };
    match started {
        Ok(started) => {
            Ok(Redirect::to(&site.href(&format!("/runs/{}?did=started", started.run.id))).into_response())
        }
        Err(problem) => page(&app, &site, &form, Some(&problem)).await,
    }
}

fn request(form: &SentForm) -> Result<StartRequest, Problem> {
    let text = |name: &str| form.text(name).map(str::to_owned);
    let input = form.text("input").map(|text| RawValue::from_string(text.to_owned())).transpose();
    let tags = form.text("tags").unwrap_or_default().split_whitespace().map(|tag| {
        let pair = tag.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Problem::field("tags", format!("`{tag}` is not a tag; write name:value")))
    });
    Ok(StartRequest {
        workflow: text("workflow").ok_or_else(|| Problem::field("workflow", "choose a workflow"))?,
        input: input.map_err(|error| Problem::field("input", format!("this is not JSON: {error}")))?,
        key: text("key"),
        queue: text("queue"),
        after: text("after"),
        tags: tags.collect::<Result<_, _>>()?,
        ..StartRequest::default()
    })
}
