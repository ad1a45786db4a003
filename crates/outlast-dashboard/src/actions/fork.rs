//! Forking a run: what is kept, what runs again, and other outcomes.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{
    Action, EventFilter, ForkPlanJson, ForkRequest, PlannedOperationJson, Problem, QueryReader, RunJson,
};

use super::SentForm;
use super::control::{refuse_action, subject};
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::pages::run::run_id;
use crate::site::Site;
use crate::ui::command::{as_command, curl, quoted};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::words;

/// What the form contains.
#[derive(Debug, Default)]
struct ForkForm {
    event: String,
    outputs: String,
    force: bool,
}

impl ForkForm {
    /// The request of the form, or which field is wrong and why.
    fn request(&self) -> Result<ForkRequest, (&'static str, String)> {
        let mut request = ForkRequest { force: self.force, ..ForkRequest::default() };
        if !self.outputs.is_empty() {
            let outputs = serde_json::from_str(&self.outputs);
            request.outputs = outputs.map_err(|error| {
                ("outputs", format!("This is not an object with operations and outcomes: {error}."))
            })?;
        }
        if request.outputs.is_empty() && !self.event.is_empty() {
            let event = self.event.parse();
            request.event =
                Some(event.map_err(|_| ("event", "This is not the number of an event.".to_owned()))?);
        }
        Ok(request)
    }

    fn is_empty(&self) -> bool {
        self.event.is_empty() && self.outputs.is_empty()
    }
}

fn may_fork(site: &Site) -> Result<(), Refusal> {
    match site.may(Action::Fork) {
        true => Ok(()),
        false => Err(refuse_action(site, Action::Fork, "fork runs")),
    }
}

/// `GET /runs/{id}/fork?event=`, `?before=` an operation or `?op=` with another outcome: shows what a fork would do, and
/// asks.
pub(crate) async fn ask_fork(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    may_fork(&site)?;
    let read = QueryReader::new(&site.query).and_then(|mut reader| {
        let event = reader.parse::<u64>("event")?;
        Ok((event, reader.parse::<u64>("op")?, reader.parse::<u64>("before")?))
    });
    let (mut event, op, before) = read.on(&site)?;
    if let Some(before) = before {
        let run = run_id(&id).on(&site)?;
        let of_operation = EventFilter { op: Some(before), ..EventFilter::default() };
        let events = app.service.events(run, &of_operation).await.on(&site)?;
        event = events.items.first().map(|event| event.number);
    }
    let form = ForkForm {
        event: event.map(|event| event.to_string()).unwrap_or_default(),
        outputs: op.map(|op| format!("{{\"{op}\": null}}")).unwrap_or_default(),
        force: false,
    };
    page(&app, &site, &id, &form).await
}

async fn page(app: &App, site: &Site, id: &str, form: &ForkForm) -> Answer {
    let id = run_id(id).on(site)?;
    let run = app.service.run(id).await.on(site)?;
    let (mut wrong, mut plan) = (None, None);
    if !form.is_empty() {
        match form.request() {
            // Forced, so that steps that are attempted at most once are listed.
            Ok(request) => {
                let request = ForkRequest { force: true, dry_run: true, ..request };
                plan = Some(app.service.fork_plan(&site.caller, id, &request).await);
            }
            Err(problem) => wrong = Some(problem),
        }
    }
    let body = html! {
        section.confirm {
            h1 { "Fork run " (words::short(id)) "?" }
            (subject(site, &run))
            p { "A new run begins with the events of this one before an event, and continues there with the code as it is \
                 now. Steps that had completed do not run again. This run does not change." }
            (plan_of(plan.as_ref()))
            (fields(site, &run, form, wrong.as_ref()))
            (command_of(site, &run, form))
        }
    };
    Ok(Page::new("Fork run", body).response(site))
}

/// What the fork would keep and run again, or why it is refused.
fn plan_of(plan: Option<&Result<ForkPlanJson, Problem>>) -> Markup {
    match plan {
        None => html! {},
        Some(Err(problem)) => html! { p.bad { "It will be refused: " (problem.detail) } },
        Some(Ok(plan)) => html! {
            p { (words::counted(plan.event, "event")) " are kept, " (words::counted(plan.dropped_events, "event"))
                " are dropped." }
            (operations("In progress there; these begin again:", &plan.open))
            @if !plan.outputs.is_empty() {
                p { "These get another outcome:" }
                ul { @for output in &plan.outputs {
                    li { "#" (output.op) " " (output.kind) " " span.strong { (output.name) } }
                } }
            }
            (operations("Dropped; the workflow may request these again:", &plan.later))
        },
    }
}

fn operations(title: &str, operations: &[PlannedOperationJson]) -> Markup {
    html! {
        @if !operations.is_empty() {
            p { (title) }
            ul {
                @for operation in operations {
                    li {
                        "#" (operation.op) " " (operation.kind) " " span.strong { (operation.name) }
                        @if let Some(queue) = &operation.queue { " in queue " (queue) }
                        @if operation.at_most_once { " (attempted at most once)" }
                    }
                }
            }
        }
    }
}

fn fields(site: &Site, run: &RunJson, form: &ForkForm, wrong: Option<&(&str, String)>) -> Markup {
    let error_of = |name| wrong.filter(|(field, _)| *field == name).map(|(_, error)| error.as_str());
    let event = Field {
        name: "event",
        label: "Before event",
        hint: "The events before this number are kept. The list of events shows the numbers.",
        value: &form.event,
        error: error_of("event"),
    };
    let outputs = Field {
        name: "outputs",
        label: "Other outcomes",
        hint: "Instead of an event: a JSON object with numbers of operations, for example {\"3\": 120}. Everything after \
               the earliest of their outcomes is dropped.",
        value: &form.outputs,
        error: error_of("outputs"),
    };
    html! {
        form method="post" action=(site.href(&format!("/runs/{}/fork", run.id))) {
            (token(site))
            (event.line())
            (outputs.lines(4))
            label.check {
                input type="checkbox" name="force" value="true" checked[form.force];
                "Also attempt steps again that are attempted at most once"
            }
            div.buttons {
                button.button name="do" value="explain" { "Explain" }
                button.button.primary name="do" value="fork" { "Fork run " (words::short(run.id)) }
                a.button href=(site.href(&format!("/runs/{}", run.id))) { "Go back" }
            }
        }
    }
}

/// The same fork as a command and as a request, with what the form contains.
fn command_of(site: &Site, run: &RunJson, form: &ForkForm) -> Markup {
    let mut command = format!("outlast run fork {}", run.id);
    let body = match form.request() {
        Ok(request) if !form.is_empty() => {
            if let Some(event) = request.event {
                command.push_str(&format!(" --event {event}"));
            }
            for (op, output) in &request.outputs {
                command.push_str(&format!(" --output {}", quoted(&format!("{op}={output}"))));
            }
            if request.force {
                command.push_str(" --force");
            }
            serde_json::to_string(&request).unwrap_or_default()
        }
        _ => {
            command.push_str(" --event N");
            "{\"event\":N}".to_owned()
        }
    };
    as_command(site, &command, &curl("POST", &format!("/api/runs/{}/fork", run.id), Some(&body)))
}

/// `POST /runs/{id}/fork`: explains or forks.
pub(crate) async fn fork(State(app): State<App>, site: Site, Path(id): Path<String>, body: String) -> Answer {
    may_fork(&site)?;
    let sent = SentForm::read(&app, &site, &body)?;
    let text = |name: &str| sent.text(name).unwrap_or_default().to_owned();
    let form =
        ForkForm { event: text("event"), outputs: text("outputs"), force: sent.text("force").is_some() };
    let run = run_id(&id).on(&site)?;
    match form.request() {
        Ok(request) if sent.text("do") != Some("explain") && !form.is_empty() => {
            let forked = app.service.fork(&site.caller, run, &request).await.on(&site)?;
            let href = site.href(&format!("/runs/{}?did=started", forked.run.id));
            Ok(Redirect::to(&href).into_response())
        }
        _ => page(&app, &site, &id, &form).await,
    }
}
