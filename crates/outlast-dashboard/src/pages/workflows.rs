//! Workflows: those that workers have code for, and those that only have runs.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{Action, PageRequest, QueryPairs, RunFilter, RunJson, WorkflowJson};
use outlast_core::Status;

use super::fleet::open_runs;
use super::problem::{Answer, OnSite};
use super::runs::plain_table;
use crate::app::App;
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{empty, icon, segment};
use crate::ui::pictures::stacked;
use crate::ui::words;

/// The newest ended runs that the statistics of a workflow are of.
const ENDED_MAX: usize = 500;

/// `GET /workflows`.
pub(crate) async fn list(State(app): State<App>, site: Site) -> Answer {
    let (workflows, runs) =
        futures_util::future::join(app.service.workflows(), open_runs(&app.service)).await;
    let (workflows, (runs, _)) = (workflows.on(&site)?.items, runs.on(&site)?);
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    runs.iter()
        .filter(|run| !run.is_queued_step)
        .for_each(|run| *open.entry(&run.workflow).or_default() += 1);
    let known: Vec<&str> = workflows.iter().map(|workflow| workflow.name.as_str()).collect();
    let without_worker: Vec<_> = open.iter().filter(|(name, _)| !known.contains(name)).collect();
    let body = html! {
        div.title { h1 { "Workflows" } }
        @if workflows.is_empty() && without_worker.is_empty() {
            (empty(&site, "workflow", "No workflows", html! {
                p { "A worker registers them when it joins:" }
                pre { "Worker::builder(world).register((checkout, charge)).start().await?;" }
            }))
        } @else {
            table {
                caption.hidden { "Workflows" }
                thead {
                    tr {
                        th scope="col" { "Workflow" } th scope="col" { "Versions" } th scope="col" { "Builds" }
                        th scope="col" { "Queues" } th.n scope="col" { "Workers" } th.n scope="col" { "Open runs" }
                        th scope="col" { span.hidden { "Action" } }
                    }
                }
                tbody {
                    @for workflow in &workflows {
                        (row(&site, workflow, open.get(workflow.name.as_str()).copied().unwrap_or(0)))
                    }
                    @for (name, runs) in without_worker {
                        tr {
                            td { (link(&site, name)) span.warning { (icon(&site, "stuck")) "no worker has its code" } }
                            td { "–" } td { "–" } td { "–" } td.n { "0" } td.n { (words::count(*runs)) } td {}
                        }
                    }
                }
            }
        }
    };
    Ok(Page::new("Workflows", body).response(&site))
}

fn link(site: &Site, name: &str) -> Markup {
    html! { a.strong href=(site.href(&format!("/workflows/{}", segment(name)))) { (name) } }
}

fn row(site: &Site, workflow: &WorkflowJson, open: u64) -> Markup {
    html! {
        tr {
            td { (link(site, &workflow.name)) }
            td { @for version in &workflow.versions { span.muted { "v" (version) " " } } }
            td.clip { @for build in &workflow.builds { code title=(build) { (words::clipped(build, 12)) } " " } }
            td.clip { (workflow.queues.join(", ")) }
            td.n { (workflow.workers) }
            td.n { (words::count(open)) }
            td.n {
                @if site.may(Action::Start) {
                    a.button href=(site.href(&format!("/runs/new?{}", start_query(&workflow.name)))) { "Start…" }
                }
            }
        }
    }
}

/// The query of the form that starts a run of a workflow.
fn start_query(name: &str) -> String {
    let mut writer = outlast_api::QueryWriter::default();
    writer.set("workflow", Some(name));
    writer.finish()
}

/// `GET /workflows/{name}`.
pub(crate) async fn show(State(app): State<App>, site: Site, Path(name): Path<String>) -> Answer {
    let of = |statuses: &[Status], limit| RunFilter {
        statuses: statuses.to_vec(),
        workflow: Some(name.clone()),
        page: PageRequest { limit: Some(limit), ..PageRequest::default() },
        ..RunFilter::default()
    };
    let (newest, ended) =
        (of(&[], 20), of(&[Status::Completed, Status::Failed, Status::Cancelled], ENDED_MAX));
    let (workflow, newest, ended) = futures_util::future::join3(
        app.service.workflow(&name),
        app.service.runs(&newest),
        app.service.runs(&ended),
    )
    .await;
    let (newest, ended) = (newest.on(&site)?.items, ended.on(&site)?.items);
    let workflow = match workflow {
        Ok(workflow) => Some(workflow),
        Err(problem) if newest.is_empty() => return Err(problem).on(&site),
        Err(_) => None,
    };
    let all = RunFilter { workflow: Some(name.clone()), ..RunFilter::default() };
    let body = html! {
        p.crumbs { a href=(site.href("/workflows")) { "Workflows" } }
        div.title {
            h1 { (name) }
            div.space {}
            @if site.may(Action::Start) && workflow.is_some() {
                a.button.primary href=(site.href(&format!("/runs/new?{}", start_query(&name)))) { (icon(&site, "start")) "Start run" }
            }
        }
        @match &workflow {
            Some(workflow) => dl.facts.row {
                dt { "Versions" } dd { @for version in &workflow.versions { "v" (version) " " } }
                dt { "Workers" } dd { (workflow.workers) }
                dt { "Queues" } dd { (workflow.queues.join(", ")) }
                dt { "Builds" } dd { @for build in &workflow.builds { code { (words::clipped(build, 16)) } " " } }
            },
            None => p.banner { (icon(&site, "stuck")) "No joined worker has the code of this workflow." },
        }
        (statistics(&site, &ended))
        h2 { "Newest runs" }
        (plain_table(&site, &newest, "Newest runs"))
        p { a href=(site.href(&format!("/runs?{}", all.to_query()))) { "All runs of " (name) } }
    };
    Ok(Page::new(name.clone(), body).response(&site))
}

/// Outcomes and durations of the newest ended runs.
fn statistics(site: &Site, ended: &[RunJson]) -> Markup {
    let count = |status: &str| ended.iter().filter(|run| run.status == status).count() as u64;
    let parts = ["completed", "failed", "cancelled"].map(|status| (status, count(status)));
    let mut times: Vec<Duration> =
        ended.iter().filter_map(|run| Some(run.ended_at?.0.since(run.created_at.0))).collect();
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let text = |part| at(part).map_or_else(|| "–".to_owned(), |time| words::duration(*time));
    let ratio = (parts[0].1 * 1_000).checked_div(ended.len() as u64);
    html! {
        @if !ended.is_empty() {
            section.statistics {
                div { span.muted { "Completed" } b { @if let Some(ratio) = ratio { (ratio / 10) "." (ratio % 10) " %" } } }
                div { span.muted { "p50" } b { (text(50)) } }
                div { span.muted { "p95" } b { (text(95)) } }
                div.wide {
                    span.muted { "Newest " (words::counted(ended.len() as u64, "ended run")) }
                    (stacked(&parts, "Outcomes"))
                    p { @for (status, runs) in parts.iter().filter(|(_, runs)| *runs > 0) { (badge(site, status)) " " (words::count(*runs)) "  " } }
                }
            }
        }
    }
}
