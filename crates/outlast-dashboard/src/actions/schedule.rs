//! Creating, changing and controlling schedules.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{
    Action, BackfillRequest, CatchUpRule, OverlapRule, Problem, ProblemCode, Rfc3339, ScheduleDefinition,
    ScheduleJson, SchedulePauseRequest, SchedulePreviewRequest, WorkflowJson,
};
use serde_json::value::RawValue;

use super::SentForm;
use super::control::{refuse_action, word_of};
use crate::app::App;
use crate::pages::problem::{Answer, OnSite, Refusal, problem_box};
use crate::pages::schedules::instants;
use crate::site::Site;
use crate::ui::command::{as_command, curl, quoted};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::{at, icon, segment};
use crate::ui::words;

/// An action on one schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleControl {
    pub(crate) action: Action,
    /// The path below the schedule.
    pub(crate) path: &'static str,
    pub(crate) verb: &'static str,
    effect: &'static str,
    pub(crate) is_dangerous: bool,
}

/// All actions on one schedule that have a page.
pub(crate) const SCHEDULE_CONTROLS: [ScheduleControl; 6] = [
    ScheduleControl {
        action: Action::TriggerSchedule,
        path: "trigger",
        verb: "Trigger",
        effect: "It fires once, now, beside its rule.",
        is_dangerous: false,
    },
    ScheduleControl {
        action: Action::PauseSchedule,
        path: "pause",
        verb: "Pause",
        effect: "It does not fire until it is resumed. Firings that run are not affected.",
        is_dangerous: false,
    },
    ScheduleControl {
        action: Action::ResumeSchedule,
        path: "resume",
        verb: "Resume",
        effect: "It fires again, from the next instant on. Instants during the pause are not caught up.",
        is_dangerous: false,
    },
    ScheduleControl {
        action: Action::BackfillSchedule,
        path: "backfill",
        verb: "Backfill",
        effect: "The instants of a range in the past fire now, one after the other. Those that have fired before are left out.",
        is_dangerous: false,
    },
    ScheduleControl {
        action: Action::UpdateSchedule,
        path: "edit",
        verb: "Edit",
        effect: "",
        is_dangerous: false,
    },
    ScheduleControl {
        action: Action::DeleteSchedule,
        path: "delete",
        verb: "Delete",
        effect: "It does not fire any more, and disappears from the list. Runs that it has started continue.",
        is_dangerous: true,
    },
];

impl ScheduleControl {
    /// Whether the action makes sense for the schedule in its current state.
    pub(crate) fn applies_to(&self, schedule: &ScheduleJson) -> bool {
        match self.action {
            Action::PauseSchedule => schedule.paused.is_none(),
            Action::ResumeSchedule => schedule.paused.is_some(),
            Action::UpdateSchedule => {
                // The form writes the input, so it must know it.
                schedule.definition.input_from.is_none() && !schedule.definition.input_omitted
            }
            _ => true,
        }
    }
}

fn control_of(site: &Site) -> Result<&'static ScheduleControl, Refusal> {
    let name = site.path.rsplit('/').next().unwrap_or_default();
    let found = SCHEDULE_CONTROLS.iter().find(|control| control.path == name);
    let not_found = || Problem::new(ProblemCode::NotFound, format!("there is no action `{name}`"));
    let control = found.ok_or_else(not_found).on(site)?;
    match site.may(control.action) {
        true => Ok(control),
        false => Err(refuse_action(site, control.action, &format!("{name} schedules"))),
    }
}

fn href(site: &Site, id: &str) -> String {
    site.href(&format!("/schedules/{}", segment(id)))
}

/// `GET /schedules/{id}/pause` and the like.
pub(crate) async fn ask_schedule(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let control = control_of(&site)?;
    let schedule = app.service_for(&site.caller).schedule(&id).await.on(&site)?;
    confirm(&site, control, &schedule, &SentForm::default(), None)
}

fn confirm(
    site: &Site,
    control: &ScheduleControl,
    schedule: &ScheduleJson,
    sent: &SentForm,
    shown: Option<Markup>,
) -> Answer {
    let body = html! {
        section.confirm {
            h1 { (control.verb) " schedule " (schedule.id) "?" }
            p.subject { (schedule.description) " · starts " span.strong { (schedule.definition.workflow) } }
            p { (control.effect) }
            @if let Some(shown) = shown { (shown) }
            form method="post" action={ (href(site, &schedule.id)) "/" (control.path) } {
                (token(site))
                input type="hidden" name="revision" value=(schedule.revision);
                @if control.action == Action::PauseSchedule {
                    (Field { name: "reason", label: "Reason", hint: "Shown with the schedule. Optional.", ..Field::default() }.line())
                }
                @if control.action == Action::BackfillSchedule { (range_fields(site, sent)) }
                div.buttons {
                    @if control.action == Action::BackfillSchedule { button.button name="dry_run" value="true" { "Count the instants" } }
                    button class=(if control.is_dangerous { "button danger" } else { "button primary" }) { (control.verb) " " (schedule.id) }
                    a.button href=(href(site, &schedule.id)) { "Go back" }
                }
            }
            (command_of(site, control, schedule))
        }
    };
    Ok(Page::new(format!("{} schedule", control.verb), body).response(site))
}

/// The same action as a command and as a request.
fn command_of(site: &Site, control: &ScheduleControl, schedule: &ScheduleJson) -> Markup {
    let path = format!("/api/schedules/{}", segment(&schedule.id));
    let day = |hours: u64| Rfc3339(site.now.minus(std::time::Duration::from_secs(hours * 3_600))).to_string();
    let (mut flags, mut body) = (String::new(), "{}".to_owned());
    if control.action == Action::BackfillSchedule {
        let (from, to) = (day(24), day(0));
        flags = format!(" --from {from} --to {to}");
        body = format!("{{\"from\":\"{from}\",\"to\":\"{to}\"}}");
    }
    let command = format!("outlast schedule {} {}{flags}", control.path, quoted(&schedule.id));
    let request = match control.action {
        Action::DeleteSchedule => curl("DELETE", &path, None),
        _ => curl("POST", &format!("{path}/{}", control.path), Some(&body)),
    };
    as_command(site, &command, &request)
}

fn range_fields(site: &Site, sent: &SentForm) -> Markup {
    let now = site.now;
    let usual = |hours: u64| Rfc3339(now.minus(std::time::Duration::from_secs(hours * 3_600))).to_string();
    let (from, to) = (
        sent.text("from").map_or_else(|| usual(24), Into::into),
        sent.text("to").map_or_else(|| usual(0), Into::into),
    );
    html! {
        div.pair {
            (Field { name: "from", label: "From", hint: "The first possible instant, such as 2026-01-31T00:00:00Z.", value: &from, error: None }.line())
            (Field { name: "to", label: "To", hint: "Not part of the range, and not in the future.", value: &to, error: None }.line())
        }
    }
}

/// `POST /schedules/{id}/pause` and the like.
pub(crate) async fn control_schedule(
    State(app): State<App>,
    site: Site,
    Path(id): Path<String>,
    body: String,
) -> Answer {
    let control = control_of(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    let (service, caller) = (&app.service, &site.caller);
    let revision = form.text("revision").and_then(|revision| revision.parse().ok());
    let controlled = match control.action {
        Action::PauseSchedule => {
            let reason = form.text("reason").map(str::to_owned);
            service.pause_schedule(caller, &id, &SchedulePauseRequest { reason }).await
        }
        Action::ResumeSchedule => service.resume_schedule(caller, &id).await,
        Action::TriggerSchedule => service.trigger_schedule(caller, &id).await,
        Action::BackfillSchedule => return backfill(&app, &site, control, &id, &form).await,
        Action::DeleteSchedule => {
            service.delete_schedule(caller, &id, revision).await.on(&site)?;
            return Ok(Redirect::to(&site.href("/schedules")).into_response());
        }
        _ => return replace(&app, &site, &id, &form).await,
    };
    Ok(Redirect::to(&format!("{}?did={}", href(&site, &id), word_of(controlled.on(&site)?.did)))
        .into_response())
}

async fn backfill(app: &App, site: &Site, control: &ScheduleControl, id: &str, form: &SentForm) -> Answer {
    let time = |name: &str| {
        let text = form.text(name).unwrap_or_default();
        text.parse::<Rfc3339>()
            .map_err(|_| Problem::field(name, format!("`{text}` is not a time; write 2026-01-31T00:00:00Z")))
    };
    let dry_run = form.text("dry_run").is_some();
    let result = match (time("from"), time("to")) {
        (Ok(from), Ok(to)) => {
            app.service.backfill_schedule(&site.caller, id, &BackfillRequest { from, to, dry_run }).await
        }
        (Err(problem), _) | (_, Err(problem)) => Err(problem),
    };
    let schedule = app.service_for(&site.caller).schedule(id).await.on(site)?;
    match result {
        Ok(filled) if dry_run => {
            let shown = html! {
                p.banner { (icon(site, "schedule")) (words::counted(filled.instants, "instant")) @if filled.more { " or more" } " in this range." }
                ol.instants { @for instant in &filled.sample { li { (at(*instant)) } } }
            };
            confirm(site, control, &schedule, form, Some(shown))
        }
        Ok(filled) => {
            Ok(Redirect::to(&format!("{}?did={}", href(site, id), word_of(filled.did))).into_response())
        }
        Err(problem) => confirm(site, control, &schedule, form, Some(problem_box(site, &problem))),
    }
}

/// `GET /schedules/new`.
pub(crate) async fn ask_new_schedule(State(app): State<App>, site: Site) -> Answer {
    may_create(&site)?;
    form_page(&app, &site, &SentForm::default(), None, None).await
}

fn may_create(site: &Site) -> Result<(), Refusal> {
    match site.may(Action::CreateSchedule) {
        true => Ok(()),
        false => Err(refuse_action(site, Action::CreateSchedule, "create schedules")),
    }
}

/// `GET /schedules/{id}/edit`.
pub(crate) async fn ask_schedule_change(
    State(app): State<App>,
    site: Site,
    Path(id): Path<String>,
) -> Answer {
    control_of(&site)?;
    let schedule = app.service_for(&site.caller).schedule(&id).await.on(&site)?;
    let form = SentForm::of_pairs(fields_of(&schedule));
    form_page(&app, &site, &form, Some(&id), None).await
}

/// The fields of the form with the definition of a schedule.
fn fields_of(schedule: &ScheduleJson) -> Vec<(&'static str, String)> {
    let definition = &schedule.definition;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    vec![
        ("id", schedule.id.clone()),
        ("revision", schedule.revision.to_string()),
        ("cron", text(&definition.cron)),
        ("every", text(&definition.every)),
        ("zone", text(&definition.zone)),
        ("workflow", definition.workflow.clone()),
        ("input", definition.input.as_ref().map(|input| input.get().to_owned()).unwrap_or_default()),
        ("queue", text(&definition.queue)),
        ("jitter", text(&definition.jitter)),
        ("overlap", definition.overlap.map(|rule| rule.to_string()).unwrap_or_default()),
        ("catch_up", definition.catch_up.map(|rule| rule.to_string()).unwrap_or_default()),
    ]
}

/// `POST /schedules/new`.
pub(crate) async fn create_schedule(State(app): State<App>, site: Site, body: String) -> Answer {
    may_create(&site)?;
    let form = SentForm::read(&app, &site, &body)?;
    if form.text("preview").is_some() {
        return form_page(&app, &site, &form, None, None).await;
    }
    let created = match definition(&form) {
        Ok(definition) => app.service.create_schedule(&site.caller, &definition).await,
        Err(problem) => Err(problem),
    };
    match created {
        Ok(schedule) => {
            Ok(Redirect::to(&format!("{}?did=created", href(&site, &schedule.id))).into_response())
        }
        Err(problem) => form_page(&app, &site, &form, None, Some(&problem)).await,
    }
}

async fn replace(app: &App, site: &Site, id: &str, form: &SentForm) -> Answer {
    if form.text("preview").is_some() {
        return form_page(app, site, form, Some(id), None).await;
    }
    let revision = form.text("revision").and_then(|revision| revision.parse().ok());
    let old = app.service_for(&site.caller).schedule(id).await.on(site)?.definition;
    let replaced = match definition(form) {
        // What the form does not show stays as it is.
        Ok(new) => {
            let definition = ScheduleDefinition {
                id: None,
                version: old.version,
                priority: old.priority,
                tags: old.tags,
                headers: old.headers,
                deadline: old.deadline,
                catch_up_limit: old.catch_up_limit.filter(|_| new.catch_up == Some(CatchUpRule::All)),
                start_at: old.start_at,
                end_at: old.end_at,
                pause_after: old.pause_after,
                ..new
            };
            app.service.replace_schedule(&site.caller, id, &definition, revision).await
        }
        Err(problem) => Err(problem),
    };
    match replaced {
        Ok(changed) => {
            Ok(Redirect::to(&format!("{}?did={}", href(site, id), word_of(changed.did))).into_response())
        }
        Err(problem) => form_page(app, site, form, Some(id), Some(&problem)).await,
    }
}

fn definition(form: &SentForm) -> Result<ScheduleDefinition, Problem> {
    let text = |name: &str| form.text(name).map(str::to_owned);
    let input = form.text("input").map(|text| RawValue::from_string(text.to_owned())).transpose();
    let rule = |name: &'static str| move |message: String| Problem::field(name, message);
    let is_cron = form.text("cron").is_some();
    Ok(ScheduleDefinition {
        id: text("id"),
        cron: text("cron"),
        zone: text("zone").filter(|_| is_cron),
        every: text("every"),
        workflow: text("workflow").ok_or_else(|| Problem::field("workflow", "choose a workflow"))?,
        input: input.map_err(|error| Problem::field("input", format!("this is not JSON: {error}")))?,
        queue: text("queue"),
        jitter: text("jitter"),
        overlap: form.text("overlap").map(str::parse::<OverlapRule>).transpose().map_err(rule("overlap"))?,
        catch_up: form
            .text("catch_up")
            .map(str::parse::<CatchUpRule>)
            .transpose()
            .map_err(rule("catch_up"))?,
        ..ScheduleDefinition::default()
    })
}

async fn form_page(
    app: &App,
    site: &Site,
    form: &SentForm,
    id: Option<&str>,
    problem: Option<&Problem>,
) -> Answer {
    let workflows = app.service.workflows().await.on(site)?.items;
    let title = id.map_or_else(|| "New schedule".to_owned(), |id| format!("Edit schedule {id}"));
    let body = html! {
        section.confirm {
            h1 { (title) }
            @if let Some(problem) = problem { (problem_box(site, problem)) }
            form method="post" action={ @match id { Some(id) => { (href(site, id)) "/edit" }, None => (site.href("/schedules/new")) } } {
                (token(site))
                (fields(app, site, form, id, &workflows))
                div.buttons {
                    button.button.primary { @if id.is_some() { "Save schedule" } @else { "Create schedule" } }
                    button.button name="preview" value="true" { "Preview" }
                    a.button href={ @match id { Some(id) => (href(site, id)), None => (site.href("/schedules")) } } { "Go back" }
                }
            }
            (definition_command(site, form, id))
        }
    };
    Ok(Page::new(title.clone(), body).response(site))
}

/// What the form says, as a command and as a request. Both are kept current only by the server: "Preview" shows them again.
fn definition_command(site: &Site, form: &SentForm, id: Option<&str>) -> Markup {
    let name = id.or_else(|| form.text("id")).unwrap_or("nightly-report");
    let verb = if id.is_some() { "update" } else { "create" };
    let mut command = format!("outlast schedule {verb} {}", quoted(name));
    let mut body = serde_json::Map::new();
    if id.is_none() {
        body.insert("id".into(), name.into());
    }
    for field in ["cron", "every", "zone", "workflow", "overlap", "catch_up", "queue"] {
        if let Some(value) = form.text(field) {
            command.push_str(&format!(" --{} {}", field.replace('_', "-"), quoted(value)));
            body.insert(field.into(), value.into());
        }
    }
    let body = serde_json::Value::Object(body).to_string();
    let path = format!("/api/schedules/{}", segment(name));
    let request = match id {
        Some(_) => curl("PUT", &path, Some(&body)).replacen(" -d ", " -H 'If-Match: *' -d ", 1),
        None => curl("POST", "/api/schedules", Some(&body)),
    };
    as_command(site, &command, &request)
}

fn fields(app: &App, site: &Site, form: &SentForm, id: Option<&str>, workflows: &[WorkflowJson]) -> Markup {
    let field = |name: &'static str, label: &'static str, hint: &'static str| Field {
        name,
        label,
        hint,
        value: form.text(name).unwrap_or_default(),
        error: None,
    };
    let choice = |name: &'static str, label: &str, options: &[(&str, &str)]| {
        html! {
            div.field {
                label for=(name) { (label) }
                select id=(name) name=(name) {
                    @for (value, text) in options { option value=(value) selected[form.text(name) == Some(value)] { (text) } }
                }
            }
        }
    };
    html! {
        @match id {
            Some(_) => input type="hidden" name="revision" value=(form.text("revision").unwrap_or_default());,
            None => (field("id", "Name", "Such as nightly-report. It cannot be changed later.").line()),
        }
        div.pair {
            (field("cron", "Cron expression", "Minute, hour, day, month, weekday: 0 3 * * MON-FRI").line())
            (field("zone", "Time zone", "Such as Europe/Berlin; UTC unless set.").line())
            (field("every", "or every", "An interval instead, such as 5m.").line())
            (field("jitter", "Jitter", "The largest delay, such as 30s.").line())
        }
        (preview(app, site, form))
        div.field {
            label for="workflow" { "Workflow" }
            input id="workflow" name="workflow" type="text" list="workflows" value=(form.text("workflow").unwrap_or_default()) autocomplete="off";
            datalist #workflows { @for workflow in workflows { option value=(workflow.name) {} } }
        }
        (field("input", "Input", "JSON. Several parameters are an array.").lines(4))
        div.pair {
            (choice("overlap", "While an earlier firing runs", &[("skip", "skip the instant"), ("queue", "wait for its end"), ("allow", "fire all the same"), ("cancel_previous", "cancel the earlier one")]))
            (choice("catch_up", "Missed instants", &[("last", "fire the last one"), ("none", "skip them"), ("all", "fire all of them")]))
            (field("queue", "Queue", "The queue of the firings; default unless set.").line())
        }
    }
}

/// The rule in words, and its next five instants in two zones.
fn preview(app: &App, site: &Site, form: &SentForm) -> Markup {
    let text = |name: &str| form.text(name).map(str::to_owned);
    let (cron, every) = (text("cron"), text("every"));
    if cron.is_none() && every.is_none() {
        return html! {};
    }
    let zone = text("zone").filter(|_| cron.is_some());
    match app.service.preview_schedule(&SchedulePreviewRequest {
        cron,
        zone,
        every,
        ..SchedulePreviewRequest::default()
    }) {
        Ok(found) => html! {
            div.preview role="status" {
                p { (icon(site, "schedule")) " " span.strong { (found.description) } }
                (instants(site, found.zone.as_deref(), &found.instants))
            }
        },
        Err(problem) => problem_box(site, &problem),
    }
}
