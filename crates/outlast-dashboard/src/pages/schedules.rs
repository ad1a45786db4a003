//! Schedules: when they fire next, what became of the last firings, and what can be done.

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{
    Action, FiringJson, PageRequest, Problem, QueryPairs, QueryReader, Rfc3339, RunJson, ScheduleDefinition,
    ScheduleFilter, ScheduleJson, local_minute,
};

use super::problem::{Answer, OnSite};
use super::run::done;
use super::runs::plain_table;
use crate::actions::SCHEDULE_CONTROLS;
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::badge::{badge, look, shown_status};
use crate::ui::layout::Page;
use crate::ui::parts::{ago, at, empty, icon, moment, pager, run_link, segment, tag};
use crate::ui::payload::json_tree;
use crate::ui::words;

/// The firings that the strip of a schedule shows.
const STRIP: usize = 20;

/// `GET /schedules`.
pub(crate) async fn list(State(app): State<App>, site: Site) -> Answer {
    let body = list_body(&app, &site).await.on(&site)?;
    let live = site.href(&format!("/schedules/live?{}", site.query));
    Ok(Page::new("Schedules", body).live(live).response(&site))
}

/// The part of the list that is live.
pub(crate) async fn list_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let filter = ScheduleFilter::from_query(&site.query)?;
    let page = app.service.schedules(&filter).await?;
    let recent = PageRequest { limit: Some(STRIP), cursor: None };
    let firings = page.items.iter().map(|schedule| app.service.firings(&schedule.id, &recent));
    let firings = futures_util::future::join_all(firings).await;
    let to = |cursor: &Option<String>| {
        let page = PageRequest { cursor: Some(cursor.clone()?), ..filter.page.clone() };
        Some(format!("?{}", ScheduleFilter { page, ..filter.clone() }.to_query()))
    };
    let body = html! {
        div #page {
        div.title {
            h1 { "Schedules" }
            div.space {}
            @if site.may(Action::CreateSchedule) {
                a.button.primary href=(site.href("/schedules/new")) { (icon(site, "start")) "New schedule" }
            }
        }
        @if page.items.is_empty() { (nothing(site)) }
        @else {
            ul.schedules {
                @for (schedule, firings) in page.items.iter().zip(firings) {
                    (row(site, schedule, &firings.map(|page| page.items).unwrap_or_default()))
                }
            }
            (pager(to(&page.prev), to(&page.next), ("Earlier", "Later")))
        }
        }
    };
    Ok(body)
}

fn nothing(site: &Site) -> Markup {
    empty(
        site,
        "schedule",
        "No schedules",
        html! {
            p { "A schedule starts runs of a workflow again and again:" }
            pre { "client.schedule(\"nightly-report\")\n    .cron(\"0 3 * * MON-FRI\").timezone(\"Europe/Berlin\")\n    .start(report, \"sales\").await?;" }
            @if site.may(Action::CreateSchedule) { a.button.primary href=(site.href("/schedules/new")) { "New schedule" } }
        },
    )
}

fn href(site: &Site, id: &str) -> String {
    site.href(&format!("/schedules/{}", segment(id)))
}

fn row(site: &Site, schedule: &ScheduleJson, firings: &[FiringJson]) -> Markup {
    html! {
        li {
            div.main {
                h2 { a href=(href(site, &schedule.id)) { (schedule.id) } @if schedule.paused.is_some() { " " (badge(site, "paused")) } }
                p { (schedule.description) @if let Some(cron) = &schedule.definition.cron { " " code.muted { (cron) } } }
                p.muted { "starts " (schedule.definition.workflow) }
            }
            div { (strip(site, firings)) (counts(schedule)) }
            div.next {
                @match (&schedule.paused, schedule.next_at.or(schedule.next.first().copied())) {
                    (Some(_), _) => span.muted { "paused" },
                    (None, Some(next)) => { span.muted { "next " } span.strong { (ago(site, next)) } },
                    (None, None) => span.muted { "does not fire any more" },
                }
                @if let Some(problem) = &schedule.problem { p.bad { (problem) } }
            }
            (controls(site, schedule))
        }
    }
}

/// The rule as it was given.
fn timing(definition: &ScheduleDefinition) -> String {
    let zone = definition.zone.as_deref().filter(|zone| *zone != "UTC");
    match (&definition.cron, &definition.every) {
        (Some(cron), _) => zone.map_or_else(|| cron.clone(), |zone| format!("{cron} {zone}")),
        (None, Some(every)) => format!("every {every}"),
        (None, None) => String::new(),
    }
}

/// The last firings as small squares, the oldest first.
fn strip(site: &Site, firings: &[FiringJson]) -> Markup {
    html! {
        span.strip role="group" aria-label={ "The last " (words::counted(firings.len() as u64, "firing")) } {
            @for firing in firings.iter().rev() {
                @let (word, class) = look(shown_status(&firing.run));
                a class={ "firing s-" (class) } href=(site.href(&format!("/runs/{}", firing.run.id))) title={ (word) ", " (moment(firing.run.created_at)) } {
                    (icon(site, class)) span.hidden { (word) }
                }
            }
        }
    }
}

fn counts(schedule: &ScheduleJson) -> Markup {
    let counts = &schedule.counts;
    let others = [
        ("failed", counts.failed),
        ("skipped", counts.skipped),
        ("missed", counts.missed),
        ("refused", counts.refused),
    ];
    html! {
        span.muted.small {
            (words::counted(counts.fired, "firing"))
            @for (name, count) in others.into_iter().filter(|(_, count)| *count > 0) { " · " (words::count(count)) " " (name) }
        }
    }
}

/// The actions of a schedule, each with a page that asks for confirmation.
fn controls(site: &Site, schedule: &ScheduleJson) -> Markup {
    let possible: Vec<_> = SCHEDULE_CONTROLS
        .iter()
        .filter(|control| site.may(control.action) && control.applies_to(schedule))
        .collect();
    let is_first = |path: &str| matches!(path, "trigger" | "pause" | "resume");
    let link = |path: &str| format!("{}/{path}", href(site, &schedule.id));
    html! {
        div.actions {
            @for control in possible.iter().filter(|control| is_first(control.path)) {
                a.button href=(link(control.path)) { (control.verb) "…" }
            }
            @if possible.iter().any(|control| !is_first(control.path)) {
                details.menu {
                    summary.button aria-label={ "More actions on " (schedule.id) } title="More actions" { (icon(site, "more")) }
                    ul {
                        @for control in possible.iter().filter(|control| !is_first(control.path)) {
                            li { a href=(link(control.path)) class=[control.is_dangerous.then_some("danger")] { (control.verb) "…" } }
                        }
                    }
                }
            }
        }
    }
}

/// `GET /schedules/{id}`.
pub(crate) async fn show(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let mut reader = QueryReader::new(&site.query).on(&site)?;
    let did = reader.text("did").on(&site)?;
    let cursor = reader.text("cursor").on(&site)?;
    let request = PageRequest { limit: Some(STRIP), cursor };
    let service = app.service_for(&site.caller);
    let (schedule, firings) =
        futures_util::future::join(service.schedule(&id), service.firings(&id, &request)).await;
    let (schedule, firings) = (schedule.on(&site)?, firings.on(&site)?);
    let to = |cursor: &Option<String>| {
        let mut writer = outlast_api::QueryWriter::default();
        writer.set("cursor", Some(cursor.as_ref()?));
        Some(format!("?{}", writer.finish()))
    };
    let runs: Vec<RunJson> = firings.items.iter().map(|firing| firing.run.clone()).collect();
    let body = html! {
        @if let Some(did) = &did { (done(did)) }
        p.crumbs { a href=(site.href("/schedules")) { "Schedules" } }
        div.title {
            h1 { (schedule.id) }
            @if schedule.paused.is_some() { (badge(&site, "paused")) }
            div.space {}
            (controls(&site, &schedule))
        }
        @if let Some(pause) = &schedule.paused {
            p.banner { (icon(&site, "paused")) "Paused " (ago(&site, pause.since)) @if let Some(actor) = &pause.actor { " by " (actor) } @if !pause.reason.is_empty() { ": " (pause.reason) } }
        }
        @if let Some(problem) = &schedule.problem { p.banner { (icon(&site, "stuck")) (problem) } }
        @if let Some(refusal) = &schedule.refusal { p.banner { (icon(&site, "failed")) "A start was refused " (ago(&site, refusal.at)) ": " (refusal.message) } }
        div.columns {
            (rule(&site, &schedule))
            section {
                h2 { "Next instants" }
                @if schedule.next.is_empty() { p.muted { "None." } }
                (instants(&site, schedule.definition.zone.as_deref(), &schedule.next))
                @if let Some(input) = &schedule.definition.input { h2 { "Input" } (json_tree(input)) }
                @if let Some(step) = &schedule.definition.input_from { h2 { "Input" } p { "computed by the step " code { (step) } } }
            }
        }
        h2 { "Firings" }
        @if runs.is_empty() { p.muted { "It has not fired yet." } }
        @else { (plain_table(&site, &runs, "Firings, the newest first")) (pager(to(&firings.prev), to(&firings.next), ("Newer", "Older"))) }
    };
    Ok(Page::new(schedule.id.clone(), body).response(&site))
}

/// Instants in two zones: that of the browser, and that of the rule.
pub(crate) fn instants(site: &Site, zone: Option<&str>, instants: &[Rfc3339]) -> Markup {
    let zone = zone.filter(|zone| *zone != "UTC");
    let of_rule = |instant: Rfc3339| {
        let local = zone.and_then(|zone| Some(format!("{} {zone}", local_minute(zone, instant)?)));
        local.unwrap_or_else(|| moment(instant))
    };
    html! {
        ol.instants {
            @for instant in instants {
                li { (at(*instant)) " " span.muted { (ago(site, *instant)) } span.muted.small { (of_rule(*instant)) } }
            }
        }
    }
}

fn rule(site: &Site, schedule: &ScheduleJson) -> Markup {
    let definition = &schedule.definition;
    html! {
        section {
            h2 { "Rule" }
            dl.facts {
                dt { "Fires" } dd { (schedule.description) }
                dt { "Written" } dd { code { (timing(definition)) } }
                dt { "Starts" } dd { a href=(site.href(&format!("/workflows/{}", segment(&definition.workflow)))) { (definition.workflow) } @if let Some(version) = definition.version { span.muted { " v" (version) } } }
                dt { "Overlap" } dd { (definition.overlap.map_or("skip", |rule| rule.as_str())) }
                dt { "Missed" } dd { (definition.catch_up.map_or("last", |rule| rule.as_str())) }
                @if let Some(jitter) = &definition.jitter { dt { "Jitter" } dd { (jitter) } }
                @if let Some(queue) = &definition.queue { dt { "Queue" } dd { (queue) } }
                @if let Some(failures) = definition.pause_after { dt { "Pauses after" } dd { (words::counted(u64::from(failures), "failure")) } }
                @if let Some(time) = definition.start_at { dt { "From" } dd { (at(time)) } }
                @if let Some(time) = definition.end_at { dt { "Until" } dd { (at(time)) } }
                dt { "Counts" } dd { (counts(schedule)) }
                dt { "Run" } dd { (run_link(site, schedule.run)) span.muted { " revision " (schedule.revision) } }
            }
            @if !definition.tags.is_empty() { p { @for (name, value) in &definition.tags { (tag(site, name, value)) " " } } }
        }
    }
}
