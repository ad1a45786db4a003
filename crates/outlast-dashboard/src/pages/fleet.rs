//! Workers.

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{PageRequest, Problem, RunFilter, RunJson, Service, WorkerJson};
use outlast_core::SessionId;

use super::problem::{Answer, OnSite};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, segment};
use crate::ui::words;

/// The newest open runs, which the page about workflows counts.
pub(crate) async fn open_runs(service: &Service) -> Result<(Vec<RunJson>, bool), Problem> {
    let filter = RunFilter {
        open: true,
        queued_steps: true,
        page: PageRequest { limit: Some(PageRequest::LIMIT_MAX), ..PageRequest::default() },
        ..RunFilter::default()
    };
    let page = service.runs(&filter).await?;
    Ok((page.items, page.next.is_some()))
}

/// `GET /workers`.
pub(crate) async fn workers(State(app): State<App>, site: Site) -> Answer {
    let body = workers_body(&app, &site).await.on(&site)?;
    let live = site.href(&format!("/workers/live?{}", site.query));
    Ok(Page::new("Workers", body).live(live).response(&site))
}

/// The part of the page of workers that is live.
pub(crate) async fn workers_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let workers = app.service.workers().await?.items;
    let body = html! {
        div #page {
        div.title { h1 { "Workers" } }
        @if workers.is_empty() {
            (empty(site, "worker", "No worker has joined", html! {
                p { "Runs wait until a worker with their code joins:" }
                pre { "Worker::builder(world).register((checkout, charge)).start().await?;" }
            }))
        } @else {
            table.cards {
                caption.hidden { "Joined workers" }
                thead {
                    tr {
                        th scope="col" { "Status" } th scope="col" { "Worker" } th scope="col" { "Host" }
                        th scope="col" { "Build" } th scope="col" { "Queues" } th.n scope="col" { "Holds" }
                        th.n scope="col" { "Attempts" } th.n scope="col" { "Completed" } th.n scope="col" { "Failed" }
                        th.n scope="col" { "Last beat" }
                    }
                }
                tbody { @for worker in &workers { (worker_row(site, worker)) } }
            }
        }
        }
    };
    Ok(body)
}

fn worker_row(site: &Site, worker: &WorkerJson) -> Markup {
    let session = worker.session.to_string();
    let short = session.get(session.len().saturating_sub(6)..).unwrap_or(&session);
    html! {
        tr {
            td { (badge(site, &worker.status)) }
            td data-label="Worker" { a.id href=(site.href(&format!("/workers/{session}"))) title=(session) { "…" (short) } }
            td.clip data-label="Host" { (worker.host) span.muted { " pid " (worker.pid) } }
            td.clip data-label="Build" title=(worker.build) { code { (words::clipped(&worker.build, 12)) } }
            td.clip data-label="Queues" { (worker.queues.join(", ")) }
            td.n data-label="Holds" { (words::count(worker.held)) }
            td.n data-label="Attempts" { (words::count(worker.attempts)) }
            td.n data-label="Completed" { (words::count(worker.completed)) }
            td.n data-label="Failed" { (words::count(worker.failed)) }
            td.n data-label="Last beat" { (ago(site, worker.beat_at)) }
        }
    }
}

/// `GET /workers/{session}`.
pub(crate) async fn worker(State(app): State<App>, site: Site, Path(session): Path<String>) -> Answer {
    let session: SessionId = session.parse().map_err(|_| not_a_worker(&session)).on(&site)?;
    let worker = app.service.worker(session).await.on(&site)?;
    let facts = [
        ("Host", worker.host.clone()),
        ("Process", worker.pid.to_string()),
        ("Build", worker.build.clone()),
        ("Library", worker.library.clone().unwrap_or_else(|| "unknown".into())),
        ("Queues", worker.queues.join(", ")),
        ("Runs held", words::count(worker.held)),
        ("Live runs", words::count(worker.live)),
        ("Turns", words::count(worker.turns)),
        ("Replays", words::count(worker.replays)),
        ("Completed", words::count(worker.completed)),
        ("Failed", words::count(worker.failed)),
    ];
    let body = html! {
        p.crumbs { a href=(site.href("/workers")) { "Workers" } }
        div.title { h1.id { (session) } (badge(&site, &worker.status)) }
        div.columns {
            section {
                dl.facts {
                    @for (name, value) in facts { dt { (name) } dd { (value) } }
                    dt { "Joined" } dd { (ago(&site, worker.joined_at)) }
                    dt { "Last beat" } dd { (ago(&site, worker.beat_at)) }
                    dt { "Expires" } dd { (ago(&site, worker.expires_at)) }
                }
            }
            section {
                h2 { "Attempts in progress" }
                @if worker.steps.is_empty() { p.muted { "None at the last beat." } }
                @else { dl.facts { @for (step, attempts) in &worker.steps { dt { (step) } dd { (attempts) } } } }
                h2 { "Workflows" }
                ul.plain {
                    @for code in &worker.workflows {
                        li { a href=(site.href(&format!("/workflows/{}", segment(&code.workflow)))) { (code.workflow) } span.muted { " v" (code.version) } }
                    }
                }
            }
        }
    };
    Ok(Page::new(format!("Worker {session}"), body).response(&site))
}

fn not_a_worker(session: &str) -> Problem {
    Problem::new(outlast_api::ProblemCode::NotFound, format!("`{session}` is not the session of a worker"))
}
