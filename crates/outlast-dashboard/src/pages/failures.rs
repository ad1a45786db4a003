//! Failures: the newest failed runs in groups, stuck runs and quarantined ones.

use std::collections::BTreeMap;

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{
    Action, PageRequest, Problem, QueryPairs, QueryReader, RunFailureJson, RunFilter, RunJson,
};
use outlast_core::Status;

use super::problem::{Answer, OnSite};
use super::runs::plain_table;
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, run_link};
use crate::ui::pictures::sparkline;
use crate::ui::sentence::sentence;
use crate::ui::words;

/// The newest failed runs that are grouped.
const GROUPED_MAX: usize = 200;

/// The runs of a group that can be retried at once: their ids are part of an address.
const RETRIED_MAX: usize = 100;

/// The columns of a group's chart: one for each of the last 24 hours.
const HOURS: usize = 24;

/// The tabs of the page: the name and the filter of each.
const TABS: [(&str, &str); 3] = [("failed", "Failed"), ("stuck", "Stuck"), ("quarantined", "Quarantine")];

/// `GET /failures?tab=`.
pub(crate) async fn show(State(app): State<App>, site: Site) -> Answer {
    let body = show_body(&app, &site).await.on(&site)?;
    let live = site.href(&format!("/failures/live?{}", site.query));
    Ok(Page::new("Failures", body).live(live).response(&site))
}

/// The part of the page that is live.
pub(crate) async fn show_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let tab = QueryReader::new(&site.query).and_then(|mut reader| reader.text("tab"))?;
    let tab =
        TABS.iter().map(|(tab, _)| *tab).find(|known| tab.as_deref() == Some(*known)).unwrap_or("failed");
    let filter = RunFilter {
        statuses: match tab {
            "failed" => vec![Status::Failed],
            "stuck" => vec![Status::Stuck],
            _ => Vec::new(),
        },
        marks: if tab == "quarantined" { vec![tab.to_owned()] } else { Vec::new() },
        page: PageRequest { limit: Some(GROUPED_MAX), ..PageRequest::default() },
        ..RunFilter::default()
    };
    let (counts, runs) = futures_util::future::join(app.service.counts(), app.service.runs(&filter)).await;
    let (counts, runs) = (counts?, runs?.items);
    let count = |tab: &str| counts.counts.get(tab).or_else(|| counts.marks.get(tab)).copied().unwrap_or(0);
    let body = html! {
        div #page {
        div.title { h1 { "Failures" } }
        nav.tabs aria-label="Kinds of failures" {
            @for (name, title) in TABS {
                a href={ (site.href("/failures")) "?tab=" (name) } aria-current=[(name == tab).then_some("page")] {
                    (title) b { (words::count(count(name))) }
                }
            }
        }
        @if runs.is_empty() { (nothing(site, tab)) }
        @else if tab == "failed" { (groups(site, &runs)) }
        @else { (plain_table(site, &runs, tab)) }
        }
    };
    Ok(body)
}

fn nothing(site: &Site, tab: &str) -> Markup {
    let (title, text) = match tab {
        "failed" => ("Nothing has failed", "Runs that fail appear here, in groups with the same cause."),
        "stuck" => {
            ("Nothing is stuck", "A run is stuck when its code cannot continue it; a fixed build resumes it.")
        }
        _ => ("Nothing is in quarantine", "A quarantined run is kept until it is released."),
    };
    empty(site, "completed", title, html! { p { (text) } })
}

/// The runs in groups of the same workflow and cause, the largest first.
fn groups(site: &Site, runs: &[RunJson]) -> Markup {
    let mut groups: BTreeMap<(&str, &str), Vec<(&RunJson, &RunFailureJson)>> = BTreeMap::new();
    for run in runs {
        let Some(failure) = &run.failure else { continue };
        groups.entry((&run.workflow, &failure.fingerprint)).or_default().push((run, failure));
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|members| std::cmp::Reverse((members.len(), members[0].0.created_at)));
    html! {
        p.muted { (words::counted(groups.len() as u64, "group")) " with the same cause, of the newest " (words::counted(runs.len() as u64, "failed run")) "." }
        ul.groups { @for members in &groups { (group(site, members)) } }
    }
}

fn group(site: &Site, members: &[(&RunJson, &RunFailureJson)]) -> Markup {
    let (newest, failure) = &members[0];
    let of_workflow = RunFilter {
        statuses: vec![Status::Failed],
        workflow: Some(newest.workflow.clone()),
        ..RunFilter::default()
    };
    html! {
        li {
            span.count { (words::count(members.len() as u64)) }
            (sparkline(&by_hour(site, members), "failed", "Failures of the last 24 hours"))
            div.grow {
                h2 {
                    a href=(site.href(&format!("/runs?{}", of_workflow.to_query()))) { (newest.workflow) }
                    @if let Some(step) = &failure.step { span.muted { " / " } (step) }
                    @if let Some(code) = &failure.code { " " code.bad { (code) } }
                }
                p.pre { (sentence(site, &failure.message)) }
                p.muted {
                    "last " (ago(site, newest.ended_at.unwrap_or(newest.updated_at))) " · "
                    @for (run, _) in members.iter().take(3) { (run_link(site, run.id)) " " }
                    @if members.len() > 3 { "and " (members.len() - 3) " more" }
                }
            }
            @if site.may(Action::Bulk) && site.may(Action::Retry) {
                a.button href=(retry_href(site, members)) { "Retry " (words::counted(members.len().min(RETRIED_MAX) as u64, "run")) "…" }
            }
        }
    }
}

/// How many members failed in each of the last hours, the oldest first.
fn by_hour(site: &Site, members: &[(&RunJson, &RunFailureJson)]) -> Vec<u64> {
    let mut hours = vec![0; HOURS];
    for (run, _) in members {
        let age = site.now.since(run.ended_at.unwrap_or(run.updated_at).0).as_secs() / 3_600;
        if let Some(column) = usize::try_from(age).ok().and_then(|age| HOURS.checked_sub(age + 1)) {
            hours[column] += 1;
        }
    }
    hours
}

/// The page that asks whether the newest runs of a group are to be retried.
fn retry_href(site: &Site, members: &[(&RunJson, &RunFailureJson)]) -> String {
    let mut writer = outlast_api::QueryWriter::default();
    writer.set("action", Some("retry"));
    for (run, _) in members.iter().take(RETRIED_MAX) {
        writer.set("run", Some(run.id));
    }
    site.href(&format!("/runs/selected?{}", writer.finish()))
}
