//! The same action on all runs of a filter: a preview, a confirmation, and a page that follows it.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect};
use maud::{Markup, html};
use outlast_api::{
    Action, BulkAction, BulkJson, BulkPreview, BulkRequest, BulkRunFilter, BulkStopRequest, Problem,
    ProblemCode, QueryPairs, QueryReader, Rfc3339, RunFilter,
};
use outlast_core::Status;

use super::SentForm;
use super::control::refuse_action;
use crate::app::{App, AppState};
use crate::pages::problem::{Answer, OnSite, Refusal};
use crate::pages::run::run_id;
use crate::site::Site;
use crate::ui::badge::{badge, run_badge};
use crate::ui::command::{as_command, curl, quoted};
use crate::ui::fields::{Field, token};
use crate::ui::layout::Page;
use crate::ui::parts::{ago, icon, run_link};
use crate::ui::pictures::stacked;
use crate::ui::words;

/// The actions on all runs of a filter: path and verb.
pub(crate) const BULK_ACTIONS: [(&str, &str, BulkAction); 7] = [
    ("cancel", "Cancel", BulkAction::Cancel),
    ("pause", "Pause", BulkAction::Pause),
    ("resume", "Resume", BulkAction::Resume),
    ("retry", "Retry", BulkAction::Retry),
    ("restart", "Restart", BulkAction::Restart),
    ("terminate", "Terminate", BulkAction::Terminate),
    ("delete", "Delete", BulkAction::Delete),
];

fn action_of(site: &Site, name: Option<&str>) -> Result<(&'static str, BulkAction), Refusal> {
    let found = BULK_ACTIONS.iter().find(|(path, ..)| Some(*path) == name);
    let not_found = || Problem::new(ProblemCode::NotFound, "there is no such action on many runs");
    let (_, verb, action) = found.ok_or_else(not_found).on(site)?;
    match site.may(Action::Bulk) && site.caller.role.includes(action.role()) {
        true => Ok((*verb, *action)),
        false => Err(refuse_action(site, Action::Bulk, "change many runs")),
    }
}

/// Whether a bulk action can concern exactly the runs of a filter.
pub(crate) fn is_supported(filter: &RunFilter) -> bool {
    let is_narrow = !filter.filters().is_empty();
    let has_more = filter.flag.is_some()
        || filter.key.is_some()
        || filter.ended_from.is_some()
        || filter.ended_before.is_some();
    is_narrow && !has_more
}

/// The request for a filter. It is frozen: runs that are started later are left out.
fn request(site: &Site, action: BulkAction, query: &str) -> Result<BulkRequest, Problem> {
    let filter = RunFilter::from_query(query)?;
    if !is_supported(&filter) {
        return Err(Problem::field(
            "?",
            "this filter cannot be used for many runs; filter by status, workflow, queue, tag or text",
        ));
    }
    let mut query = BulkRunFilter::from(&filter);
    if filter.open {
        query.status = vec![Status::Pending, Status::Running, Status::Waiting, Status::Stuck];
    }
    query.created_before = query.created_before.or(Some(Rfc3339(site.now)));
    Ok(BulkRequest { query, ..BulkRequest::new(action) })
}

/// `GET /runs/bulk?action=…` with the filters of a list: counts the runs, and asks.
pub(crate) async fn ask_bulk(State(app): State<App>, site: Site) -> Answer {
    let mut reader = QueryReader::new(&site.query).on(&site)?;
    let name = reader.text("bulk").on(&site)?;
    let (verb, action) = action_of(&site, name.as_deref())?;
    let is_dangerous = matches!(action, BulkAction::Cancel | BulkAction::Terminate | BulkAction::Delete);
    let query: Vec<&str> = site.query.split('&').filter(|pair| !pair.starts_with("bulk=")).collect();
    let query = query.join("&");
    let request = BulkRequest { dry_run: true, ..request(&site, action, &query).on(&site)? };
    let preview = app.service.preview_bulk(&site.caller, &request).await.on(&site)?;
    let count =
        format!("{}{}", words::counted(preview.matched, "run"), if preview.more { " or more" } else { "" });
    let body = html! {
        section.confirm {
            h1 { (verb) " " (count) "?" }
            p { "A run of the engine makes the calls, one after the other, and survives a restart of the server. Runs that are started later, queued steps and runs in quarantine are left out." }
            (sample(&site, &preview))
            @if preview.matched == 0 { a.button href={ (site.href("/runs")) "?" (query) } { "Go back" } }
            @else {
                form method="post" action=(site.href("/runs/bulk")) {
                    (token(&site))
                    input type="hidden" name="bulk" value=(name.as_deref().unwrap_or_default());
                    input type="hidden" name="filter" value=(query);
                    input type="hidden" name="at_most" value=(if preview.more { String::new() } else { preview.matched.to_string() });
                    (Field { name: "reason", label: "Reason", hint: "Shown in each history. Optional.", ..Field::default() }.line())
                    div.buttons {
                        button class=(if is_dangerous { "button danger" } else { "button primary" }) { (verb) " " (count) }
                        a.button href={ (site.href("/runs")) "?" (query) } { "Go back" }
                    }
                }
                (command_of(&site, &request, name.as_deref().unwrap_or_default(), preview.matched))
            }
        }
    };
    Ok(Page::new(format!("{verb} {count}"), body).response(&site))
}

/// The same action as a command and as a request.
fn command_of(site: &Site, request: &BulkRequest, verb: &str, matched: u64) -> Markup {
    let query = &request.query;
    let mut command = format!("outlast run {verb}");
    let mut add = |flag: &str, value: &str| command.push_str(&format!(" --{flag} {}", quoted(value)));
    query.status.iter().for_each(|status| add("status", status.as_str()));
    query.mark.iter().for_each(|mark| add("mark", mark));
    query.tags.iter().for_each(|(name, value)| add("tag", &format!("{name}={value}")));
    let texts = [("workflow", &query.workflow), ("queue", &query.queue), ("text", &query.text)];
    for (flag, text) in texts {
        if let Some(text) = text {
            add(flag, text);
        }
    }
    for (flag, run) in [("parent", query.parent), ("root", query.root)] {
        if let Some(run) = run {
            add(flag, &run.to_string());
        }
    }
    for (flag, time) in [("since", query.created_from), ("until", query.created_before)] {
        if let Some(time) = time {
            add(flag, &time.to_string());
        }
    }
    command.push_str(&format!(" --at-most {matched}"));
    let sent = BulkRequest { dry_run: false, expect_at_most: Some(matched), ..request.clone() };
    let body = serde_json::to_string(&sent).unwrap_or_default();
    as_command(site, &command, &curl("POST", "/api/bulk", Some(&body)))
}

fn sample(site: &Site, preview: &BulkPreview) -> Markup {
    html! {
        p { @for (status, runs) in &preview.by_status { (badge(site, status)) " " (words::count(*runs)) "  " } }
        ul.subjects {
            @for run in &preview.sample {
                li { (run_badge(site, run)) " " span.strong { (run.workflow) } " " (run_link(site, run.id)) @if let Some(key) = &run.key { " " span.muted { (key) } } }
            }
        }
    }
}

/// `POST /runs/bulk`.
pub(crate) async fn start_bulk(State(app): State<App>, site: Site, body: String) -> Answer {
    let form = SentForm::read(&app, &site, &body)?;
    let (_, action) = action_of(&site, form.text("bulk"))?;
    let request = BulkRequest {
        reason: form.text("reason").map(str::to_owned),
        expect_at_most: form.text("at_most").and_then(|limit| limit.parse().ok()),
        ..request(&site, action, form.text("filter").unwrap_or_default()).on(&site)?
    };
    let started = app.service.start_bulk(&site.caller, &request).await.on(&site)?;
    Ok(Redirect::to(&site.href(&format!("/bulk/{}", started.id))).into_response())
}

/// `GET /bulk/{id}`.
pub(crate) async fn show_bulk(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let body = bulk_body(&app, &site, &id).await.on(&site)?;
    let live = site.href(&format!("/bulk/{id}/live"));
    Ok(Page::new("Action on many runs", body).live(live).response(&site))
}

/// The part of the page that is live.
pub(crate) async fn bulk_body(app: &AppState, site: &Site, id: &str) -> Result<Markup, Problem> {
    let bulk = app.service.bulk(run_id(id)?).await?;
    let parts = [("completed", bulk.done), ("failed", bulk.failed), ("pending", bulk.left.unwrap_or(0))];
    Ok(html! {
        div #page {
            p.crumbs { a href=(site.href("/runs")) { "Runs" } }
            div.title {
                h1 { (bulk.action) " " (words::counted(bulk.matched, "run")) @if bulk.more { " or more" } }
                (badge(site, &bulk.state))
                div.space {}
                @if bulk.ended_at.is_none() && site.may(Action::StopBulk) { a.button href=(site.href(&format!("/bulk/{id}/stop"))) { "Stop…" } }
            }
            (stacked(&parts, "Progress"))
            (facts(site, &bulk))
            @for problem in &bulk.problems { p.bad { (run_link(site, problem.run)) " " (problem.message) } }
        }
    })
}

fn facts(site: &Site, bulk: &BulkJson) -> Markup {
    html! {
        dl.facts {
            dt { "Done" } dd { (words::count(bulk.done)) @if bulk.without_effect > 0 { span.muted { ", " (words::count(bulk.without_effect)) " without effect" } } }
            dt { "Refused" } dd { (words::count(bulk.failed)) }
            @if let Some(left) = bulk.left { dt { "Left" } dd { (words::count(left)) } }
            dt { "Started" } dd { (ago(site, bulk.created_at)) @if let Some(actor) = &bulk.actor { " by " (actor) } }
            @if let Some(ended) = bulk.ended_at { dt { "Ended" } dd { (ago(site, ended)) } }
            @if let Some(stopped) = &bulk.stopped { dt { "Stopped" } dd { (stopped.reason) @if let Some(actor) = &stopped.actor { " by " (actor) } } }
            dt { "Run" } dd { (run_link(site, bulk.id)) }
        }
    }
}

/// `GET /bulk/{id}/stop`.
pub(crate) async fn ask_stop_bulk(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    if !site.may(Action::StopBulk) {
        return Err(refuse_action(&site, Action::StopBulk, "stop actions on many runs"));
    }
    let bulk = app.service.bulk(run_id(&id).on(&site)?).await.on(&site)?;
    let body = html! {
        section.confirm {
            h1 { "Stop this action?" }
            p { (icon(&site, "stuck")) " What was done stays done: " (words::counted(bulk.done, "run")) " so far. The others are left as they are." }
            form method="post" action=(site.href(&format!("/bulk/{id}/stop"))) {
                (token(&site))
                (Field { name: "reason", label: "Reason", hint: "Optional.", ..Field::default() }.line())
                div.buttons { button.button.danger { "Stop the action" } a.button href=(site.href(&format!("/bulk/{id}"))) { "Go back" } }
            }
            (as_command(&site, &format!("outlast bulk stop {}", bulk.id), &curl("POST", &format!("/api/bulk/{}/stop", bulk.id), Some("{}"))))
        }
    };
    Ok(Page::new("Stop an action", body).response(&site))
}

/// `POST /bulk/{id}/stop`.
pub(crate) async fn stop_bulk(
    State(app): State<App>,
    site: Site,
    Path(id): Path<String>,
    body: String,
) -> Answer {
    if !site.may(Action::StopBulk) {
        return Err(refuse_action(&site, Action::StopBulk, "stop actions on many runs"));
    }
    let form = SentForm::read(&app, &site, &body)?;
    let request = BulkStopRequest { reason: form.text("reason").map(str::to_owned) };
    app.service.stop_bulk(&site.caller, run_id(&id).on(&site)?, &request).await.on(&site)?;
    Ok(Redirect::to(&site.href(&format!("/bulk/{id}"))).into_response())
}
