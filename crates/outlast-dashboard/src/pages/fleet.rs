//! Workers and queues.

use std::collections::BTreeMap;

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{PageRequest, Problem, RunFilter, RunJson, Service, WorkerJson};
use outlast_core::SessionId;

use super::problem::{Answer, OnSite};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, icon, segment};
use crate::ui::words;

/// The newest open runs, which pages about queues and workflows count.
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
            table {
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
            td { a.id href=(site.href(&format!("/workers/{session}"))) title=(session) { "…" (short) } }
            td.clip { (worker.host) span.muted { " pid " (worker.pid) } }
            td.clip title=(worker.build) { code { (words::clipped(&worker.build, 12)) } }
            td.clip { (worker.queues.join(", ")) }
            td.n { (words::count(worker.held)) }
            td.n { (words::count(worker.attempts)) }
            td.n { (words::count(worker.completed)) }
            td.n { (words::count(worker.failed)) }
            td.n { (ago(site, worker.beat_at)) }
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

/// What the page of the queues shows of one.
#[derive(Debug, Default)]
struct QueueCounts {
    pending: u64,
    running: u64,
    waiting: u64,
    stuck: u64,
    workers: u64,
    oldest: Option<outlast_api::Rfc3339>,
}

/// `GET /queues`.
pub(crate) async fn queues(State(app): State<App>, site: Site) -> Answer {
    let body = queues_body(&app, &site).await.on(&site)?;
    let live = site.href(&format!("/queues/live?{}", site.query));
    Ok(Page::new("Queues", body).live(live).response(&site))
}

/// The part of the page of queues that is live.
pub(crate) async fn queues_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let (runs, workers) = futures_util::future::join(open_runs(&app.service), app.service.workers()).await;
    let ((runs, has_more), workers) = (runs?, workers?.items);
    let mut queues: BTreeMap<&str, QueueCounts> = BTreeMap::new();
    for worker in &workers {
        worker.queues.iter().for_each(|queue| queues.entry(queue).or_default().workers += 1);
    }
    for run in &runs {
        let queue = queues.entry(&run.queue).or_default();
        match run.status.as_str() {
            "pending" => {
                queue.pending += 1;
                queue.oldest = Some(queue.oldest.map_or(run.created_at, |oldest| oldest.min(run.created_at)));
            }
            "running" => queue.running += 1,
            "stuck" => queue.stuck += 1,
            _ => queue.waiting += 1,
        }
    }
    let body = html! {
        div #page {
        div.title { h1 { "Queues" } }
        @if queues.is_empty() {
            (empty(site, "queue", "No queues", html! { p { "A queue exists as soon as a run is in it or a worker serves it." } }))
        } @else {
            table.cards {
                caption.hidden { "Queues" }
                thead {
                    tr {
                        th scope="col" { "Queue" } th.n scope="col" { "Workers" } th.n scope="col" { "In line" }
                        th.n scope="col" { "Oldest" } th.n scope="col" { "Running" } th.n scope="col" { "Waiting" }
                        th.n scope="col" { "Stuck" }
                    }
                }
                tbody { @for (name, queue) in &queues { (queue_row(site, name, queue)) } }
            }
            @if has_more { p.muted { "Of the newest " (PageRequest::LIMIT_MAX) " open runs." } }
        }
        }
    };
    Ok(body)
}

fn queue_row(site: &Site, name: &str, queue: &QueueCounts) -> Markup {
    let filter = RunFilter { queue: Some(name.to_owned()), open: true, ..RunFilter::default() };
    let href = site.href(&format!("/runs?{}", outlast_api::QueryPairs::to_query(&filter)));
    html! {
        tr {
            td {
                a.strong href=(href) { (name) }
                @if queue.workers == 0 { span.warning { (icon(site, "stuck")) "nobody serves this queue" } }
            }
            td.n data-label="Workers" { (queue.workers) }
            td.n data-label="In line" { (words::count(queue.pending)) }
            td.n data-label="Oldest" { @if let Some(time) = queue.oldest { (ago(site, time)) } @else { "–" } }
            td.n data-label="Running" { (words::count(queue.running)) }
            td.n data-label="Waiting" { (words::count(queue.waiting)) }
            td.n data-label="Stuck" { (words::count(queue.stuck)) }
        }
    }
}
