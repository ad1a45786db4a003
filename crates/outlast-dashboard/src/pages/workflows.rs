//! Workflows: those that workers have code for, those that had workers, and those that only have runs.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{
    Action, EndedRunsJson, OpenRunsJson, PageRequest, QueryPairs, RunFilter, WorkflowDefinitionJson,
    WorkflowJson,
};
use outlast_core::queue::BUILT_IN_PREFIX;

use super::fleet::open_runs;
use super::problem::{Answer, OnSite};
use super::runs::plain_table;
use crate::app::App;
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, icon, segment};
use crate::ui::pictures::stacked;
use crate::ui::words;

/// The steps of a build that are named.
const STEPS_SHOWN: usize = 12;

/// `GET /workflows`.
pub(crate) async fn list(State(app): State<App>, site: Site) -> Answer {
    let (workflows, runs) =
        futures_util::future::join(app.service.workflows(), open_runs(&app.service)).await;
    let (workflows, (runs, _)) = (workflows.on(&site)?.items, runs.on(&site)?);
    let mut open: BTreeMap<&str, u64> = BTreeMap::new();
    runs.iter()
        .filter(|run| !run.is_queued_step)
        .for_each(|run| *open.entry(&run.workflow).or_default() += 1);
    let of = |workflow: &WorkflowJson| open.get(workflow.name.as_str()).copied().unwrap_or(0);
    let (shown, folded): (Vec<&WorkflowJson>, Vec<&WorkflowJson>) =
        workflows.iter().partition(|workflow| workflow.workers > 0 || of(workflow) > 0);
    let unknown = open.iter().filter(|(name, _)| workflows.iter().all(|workflow| workflow.name != **name));
    let unknown: Vec<_> = unknown.collect();
    let body = html! {
        div.title { h1 { "Workflows" } }
        @if workflows.is_empty() && unknown.is_empty() {
            (empty(&site, "workflow", "No workflows", html! {
                p { "A worker registers them when it joins:" }
                pre { "Worker::builder(world).register((checkout, charge)).start().await?;" }
            }))
        } @else {
            (table("Workflows", html! {
                @for workflow in shown { (row(&site, workflow, of(workflow))) }
                @for (name, runs) in unknown {
                    tr {
                        td { (link(&site, name)) (without_code(&site)) }
                        td data-label="Versions" { "–" } td data-label="Builds" { "–" } td data-label="Queues" { "–" }
                        td.n data-label="Workers" { "0" } td.n data-label="Open runs" { (words::count(*runs)) } td {}
                    }
                }
            }))
            @if !folded.is_empty() {
                details {
                    summary { (words::counted(folded.len() as u64, "workflow")) " without a worker or open runs" }
                    (table("Workflows without a worker or open runs", html! {
                        @for workflow in folded { (row(&site, workflow, 0)) }
                    }))
                }
            }
        }
    };
    Ok(Page::new("Workflows", body).response(&site))
}

fn table(caption: &str, rows: Markup) -> Markup {
    html! {
        table.cards {
            caption.hidden { (caption) }
            thead {
                tr {
                    th scope="col" { "Workflow" } th scope="col" { "Versions" } th scope="col" { "Builds" }
                    th scope="col" { "Queues" } th.n scope="col" { "Workers" } th.n scope="col" { "Open runs" }
                    th scope="col" { span.hidden { "Action" } }
                }
            }
            tbody { (rows) }
        }
    }
}

fn link(site: &Site, name: &str) -> Markup {
    html! { a.strong href=(site.href(&format!("/workflows/{}", segment(name)))) { (name) } }
}

fn without_code(site: &Site) -> Markup {
    html! { span.warning { (icon(site, "stuck")) "no worker has its code" } }
}

fn row(site: &Site, workflow: &WorkflowJson, open: u64) -> Markup {
    html! {
        tr {
            td { (link(site, &workflow.name)) @if workflow.workers == 0 && open > 0 { (without_code(site)) } }
            td data-label="Versions" { @for version in &workflow.versions { span.muted { "v" (version) " " } } }
            td.clip data-label="Builds" { @for build in &workflow.builds { code title=(build) { (words::clipped(build, 12)) } " " } }
            td.clip data-label="Queues" { (workflow.queues.join(", ")) }
            td.n data-label="Workers" { (workflow.workers) }
            td.n data-label="Open runs" { (words::count(open)) }
            td.n {
                @if site.may(Action::Start) && workflow.workers > 0 {
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
    let newest = RunFilter {
        workflow: Some(name.clone()),
        page: PageRequest { limit: Some(20), ..PageRequest::default() },
        ..RunFilter::default()
    };
    let (detail, newest) =
        futures_util::future::join(app.service.workflow(&name), app.service.runs(&newest)).await;
    let (detail, newest) = (detail.on(&site)?, newest.on(&site)?.items);
    let workflow = &detail.workflow;
    let all = RunFilter { workflow: Some(name.clone()), ..RunFilter::default() };
    let body = html! {
        p.crumbs { a href=(site.href("/workflows")) { "Workflows" } }
        div.title {
            h1 { (name) }
            div.space {}
            @if site.may(Action::Start) && !workflow.versions.is_empty() {
                a.button.primary href=(site.href(&format!("/runs/new?{}", start_query(&name)))) { (icon(&site, "start")) "Start run" }
            }
        }
        @if workflow.workers == 0 {
            p.banner { (icon(&site, "stuck")) "No joined worker has the code of this workflow." }
        }
        dl.facts.row {
            dt { "Versions" } dd { @for version in &workflow.versions { "v" (version) " " } }
            dt { "Workers" } dd { (workflow.workers) }
            dt { "Queues" } dd { (workflow.queues.join(", ")) }
            dt { "Open runs" } dd { (open_by_version(&detail.open)) }
        }
        (statistics(&site, &detail.ended))
        (builds(&site, &detail.definitions))
        h2 { "Newest runs" }
        (plain_table(&site, &newest, "Newest runs"))
        p { a href=(site.href(&format!("/runs?{}", all.to_query()))) { "All runs of " (name) } }
    };
    Ok(Page::new(name.clone(), body).response(&site))
}

fn open_by_version(open: &OpenRunsJson) -> Markup {
    html! {
        @if open.by_version.is_empty() { "none" }
        @for version in &open.by_version { (words::count(version.runs)) span.muted { " of v" (version.version) "  " } }
        @if open.more { "and more" }
    }
}

/// What builds have said about the workflow.
fn builds(site: &Site, definitions: &[WorkflowDefinitionJson]) -> Markup {
    html! {
        @if !definitions.is_empty() {
            h2 { "Builds" }
            table.cards {
                caption.hidden { "Builds that have the workflow" }
                thead {
                    tr {
                        th scope="col" { "Version" } th scope="col" { "Build" } th scope="col" { "Queues" }
                        th scope="col" { "Steps of the program" } th.n scope="col" { "Joined last" }
                    }
                }
                tbody {
                    @for of in definitions {
                        tr {
                            td { "v" (of.version) }
                            td.clip data-label="Build" { code title=(of.build) { (words::clipped(&of.build, 24)) } }
                            td.clip data-label="Queues" { (of.queues.join(", ")) }
                            td.wrap data-label="Steps" title=(of.steps.join(", ")) { (steps(&of.steps)) }
                            td.n data-label="Joined last" { (ago(site, of.seen_at)) }
                        }
                    }
                }
            }
            @for (what, schema) in [("input", &definitions[0].input), ("output", &definitions[0].output)] {
                @if let Some(schema) = schema {
                    details {
                        summary { "JSON Schema of the " (what) }
                        pre { (serde_json::to_string_pretty(schema).unwrap_or_default()) }
                    }
                }
            }
        }
    }
}

/// The first steps by name, and how many more there are.
fn steps(steps: &[String]) -> String {
    let own: Vec<&str> =
        steps.iter().map(String::as_str).filter(|step| !step.starts_with(BUILT_IN_PREFIX)).collect();
    let (first, more) = own.split_at(own.len().min(STEPS_SHOWN));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!("{}{more}", first.join(", "))
}

/// Outcomes and durations of the newest ended runs.
fn statistics(site: &Site, ended: &EndedRunsJson) -> Markup {
    let parts = [("completed", ended.completed), ("failed", ended.failed), ("cancelled", ended.cancelled)];
    let text =
        |ms: Option<u64>| ms.map_or_else(|| "–".to_owned(), |ms| words::duration(Duration::from_millis(ms)));
    html! {
        @if let Some(ratio) = ended.success_ratio {
            section.statistics {
                div { span.muted { "Completed" } b { (format!("{:.1} %", ratio * 100.0)) } }
                div { span.muted { "p50" } b { (text(ended.p50_ms)) } }
                div { span.muted { "p95" } b { (text(ended.p95_ms)) } }
                div.wide {
                    span.muted { "Newest " (words::counted(ended.runs, "ended run")) }
                    (stacked(&parts, "Outcomes"))
                    p { @for (status, runs) in parts.iter().filter(|(_, runs)| *runs > 0) { (badge(site, status)) " " (words::count(*runs)) "  " } }
                }
            }
        }
    }
}
