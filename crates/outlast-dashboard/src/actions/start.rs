//! Starting a run.

use std::collections::BTreeMap;

use axum::extract::State;
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{Action, Problem, ProblemCode, QueryReader, QueryWriter, StartRequest, WorkflowJson};
use serde_json::Value;
use serde_json::value::RawValue;

use super::SentForm;
use super::schema_form::SchemaForm;
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

/// `GET /runs/new`: with a workflow whose schema is known, a form of its input; otherwise the input is written as JSON.
pub(crate) async fn ask_start(State(app): State<App>, site: Site) -> Answer {
    may_start(&site)?;
    let read = |name: &str| QueryReader::new(&site.query).and_then(|mut reader| reader.text(name));
    let workflow = read("workflow").on(&site)?.unwrap_or_default();
    let mut form = vec![("workflow", workflow)];
    if read("input").on(&site)?.as_deref() != Some("json") {
        form.push(("fields", "true".to_owned()));
    }
    page(&app, &site, &SentForm::of_pairs(form), None).await
}

async fn page(app: &App, site: &Site, form: &SentForm, problem: Option<&Problem>) -> Answer {
    let (workflows, schemas) =
        futures_util::future::join(app.service.workflows(), app.service.input_schemas()).await;
    let (workflows, schemas) = (workflows.on(site)?.items, schemas.on(site)?);
    let body = html! {
        section.confirm {
            h1 { "Start run" }
            @if workflows.is_empty() {
                (empty(site, "worker", "No worker has joined", html! {
                    p { "The form lists the workflows of workers that have joined. Start one:" }
                    pre { "Worker::builder(world).register((checkout, charge)).start().await?;" }
                }))
            } @else {
                @if let Some(problem) = problem { (problem_box(site, problem)) }
                (start_form(site, &workflows, &schemas, form))
                (command_of(site, &workflows, form))
            }
        }
    };
    Ok(Page::new("Start run", body).response(site))
}

/// The address of the form for a workflow.
fn form_of(site: &Site, workflow: &str, input: Option<&str>) -> String {
    let mut writer = QueryWriter::default();
    writer.set("workflow", Some(workflow));
    writer.set("input", input);
    site.href(&format!("/runs/new?{}", writer.finish()))
}

fn start_form(
    site: &Site,
    workflows: &[WorkflowJson],
    schemas: &BTreeMap<String, Value>,
    form: &SentForm,
) -> Markup {
    let chosen = form.text("workflow").filter(|_| form.text("fields").is_some());
    let made = chosen.and_then(|workflow| Some((workflow, SchemaForm::of_schema(schemas.get(workflow)?)?)));
    html! {
        form method="post" action=(site.href("/runs/new")) {
            (token(site))
            @match made {
                Some((workflow, made)) => {
                    input type="hidden" name="fields" value="true";
                    input type="hidden" name="workflow" value=(workflow);
                    p {
                        "Workflow " strong { (workflow) } " · "
                        a href=(form_of(site, workflow, Some("json"))) { "write the input as JSON" } " · "
                        a href=(site.href("/runs/new")) { "choose another one" }
                    }
                    (made.fields(form))
                }
                None => (json_input(site, workflows, schemas, form)),
            }
            (start_options(form))
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

fn field_of<'a>(form: &'a SentForm, name: &'a str, label: &'a str, hint: &'a str) -> Field<'a> {
    Field { name, label, hint, value: form.text(name).unwrap_or_default(), error: None }
}

/// The choice of a workflow, and its input as JSON.
fn json_input(
    site: &Site,
    workflows: &[WorkflowJson],
    schemas: &BTreeMap<String, Value>,
    form: &SentForm,
) -> Markup {
    let with_form: Vec<&String> = schemas
        .iter()
        .filter(|(_, schema)| SchemaForm::of_schema(schema).is_some())
        .map(|(workflow, _)| workflow)
        .collect();
    html! {
        div.field {
            label for="workflow" { "Workflow" }
            select id="workflow" name="workflow" {
                @for workflow in workflows {
                    option value=(workflow.name) selected[form.text("workflow") == Some(&workflow.name)] { (workflow.name) }
                }
            }
            @if !with_form.is_empty() {
                p.hint {
                    "With a form:"
                    @for workflow in with_form { " " a href=(form_of(site, workflow, None)) { (workflow) } }
                }
            }
        }
        (field_of(form, "input", "Input", "JSON. Several parameters are an array.").lines(8))
    }
}

fn start_options(form: &SentForm) -> Markup {
    html! {
        div.pair {
            (field_of(form, "key", "Key", "A second start with the same key returns the first run.").line())
            (field_of(form, "queue", "Queue", "`default` unless set.").line())
            (field_of(form, "after", "Begin after", "Such as 30s or 1h30m.").line())
            (field_of(form, "tags", "Tags", "name:value, separated by spaces.").line())
        }
    }
}

/// `POST /runs/new`.
pub(crate) async fn start(State(app): State<App>, site: Site, body: String) -> Answer {
    may_start(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let request = match input(&app, &form).await {
        Ok(input) => request(&form, input),
        Err(problem) => Err(problem),
    };
    let started = match request {
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

/// The input of the run: from fields, or as JSON.
async fn input(app: &App, form: &SentForm) -> Result<Option<Box<RawValue>>, Problem> {
    let mut text = form.text("input").map(str::to_owned);
    if form.text("fields").is_some() {
        let schemas = app.service.input_schemas().await?;
        let schema = form.text("workflow").and_then(|workflow| schemas.get(workflow));
        let made = schema.and_then(|schema| Some((schema, SchemaForm::of_schema(schema)?)));
        let Some((schema, made)) = made else {
            let detail =
                "the schema of the workflow has changed since the form was shown; load the form again";
            return Err(Problem::field("workflow", detail));
        };
        text = Some(made.read(schema, form)?);
    }
    let input = text.map(RawValue::from_string).transpose();
    input.map_err(|error| Problem::field("input", format!("this is not JSON: {error}")))
}

fn request(form: &SentForm, input: Option<Box<RawValue>>) -> Result<StartRequest, Problem> {
    let text = |name: &str| form.text(name).map(str::to_owned);
    let tags = form.text("tags").unwrap_or_default().split_whitespace().map(|tag| {
        let pair = tag.split_once(':').map(|(name, value)| (name.to_owned(), value.to_owned()));
        pair.ok_or_else(|| Problem::field("tags", format!("`{tag}` is not a tag; write name:value")))
    });
    Ok(StartRequest {
        workflow: text("workflow").ok_or_else(|| Problem::field("workflow", "choose a workflow"))?,
        input,
        key: text("key"),
        queue: text("queue"),
        after: text("after"),
        tags: tags.collect::<Result<_, _>>()?,
        ..StartRequest::default()
    })
}
