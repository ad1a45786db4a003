//! Queues: how many of their runs are ready, and who serves them.

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{Problem, QueryPairs, QueueJson, RunFilter};
use outlast_core::limits::QUEUE_COUNT_MAX;

use super::problem::{Answer, OnSite};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, icon, segment, worker_link};
use crate::ui::words;

/// `GET /queues`.
pub(crate) async fn list(State(app): State<App>, site: Site) -> Answer {
    let body = list_body(&app, &site).await.on(&site)?;
    // Not below `/queues`: a queue may be named `live`.
    let live = site.href(&format!("/all-queues/live?{}", site.query));
    Ok(Page::new("Queues", body).live(live).response(&site))
}

/// The part of the page that is live.
pub(crate) async fn list_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let queues = app.service.queues().await?.items;
    Ok(html! {
        div #page {
        div.title { h1 { "Queues" } }
        @if queues.is_empty() {
            (empty(site, "queue", "No queues", html! { p { "A queue exists as soon as a run is in it or a worker serves it." } }))
        } @else {
            table.cards {
                caption.hidden { "Queues" }
                thead {
                    tr {
                        th scope="col" { "Queue" } th.n scope="col" { "Ready" } th.n scope="col" { "Oldest" }
                        th.n scope="col" { "Running" } th.n scope="col" { "Stuck" } th.n scope="col" { "Workers" }
                    }
                }
                tbody { @for queue in &queues { (row(site, queue)) } }
            }
        }
        }
    })
}

fn row(site: &Site, queue: &QueueJson) -> Markup {
    html! {
        tr {
            td.clip {
                a.strong href=(site.href(&format!("/queues/{}", segment(&queue.name)))) { (queue.name) }
                @if queue.workers == 0 { span.warning { (icon(site, "stuck")) "nobody serves this queue" } }
            }
            td.n data-label="Ready" { (counted(queue.ready)) }
            td.n data-label="Oldest" { @if let Some(time) = queue.oldest_ready_at { (ago(site, time)) } @else { "–" } }
            td.n data-label="Running" { (words::count(queue.running)) }
            td.n data-label="Stuck" { (counted(queue.stuck)) }
            td.n data-label="Workers" { (words::count(queue.workers)) }
        }
    }
}

/// A number that is counted up to a limit.
fn counted(runs: u64) -> String {
    let more = if runs >= QUEUE_COUNT_MAX as u64 { "+" } else { "" };
    format!("{}{more}", words::count(runs))
}

/// `GET /queues/{name}`.
pub(crate) async fn show(State(app): State<App>, site: Site, Path(name): Path<String>) -> Answer {
    let body = show_body(&app, &site, &name).await.on(&site)?;
    let live = site.href(&format!("/queues/{}/live?{}", segment(&name), site.query));
    Ok(Page::new(format!("Queue {name}"), body).live(live).response(&site))
}

/// The part of the page of a queue that is live.
pub(crate) async fn show_body(app: &AppState, site: &Site, name: &str) -> Result<Markup, Problem> {
    let detail = app.service.queue(name).await?;
    let queue = &detail.queue;
    let open = RunFilter { queue: Some(name.to_owned()), open: true, ..RunFilter::default() };
    Ok(html! {
        div #page {
        p.crumbs { a href=(site.href("/queues")) { "Queues" } }
        div.title { h1 { (name) } }
        @if queue.workers == 0 {
            p.banner { (icon(site, "stuck")) "Nobody serves this queue: its runs wait until a worker joins that does." }
        }
        dl.facts.row {
            dt { "Ready" } dd { (counted(queue.ready)) }
            dt { "Oldest ready" } dd { @if let Some(time) = queue.oldest_ready_at { (ago(site, time)) } @else { "–" } }
            dt { "Running" } dd { (words::count(queue.running)) }
            dt { "Stuck" } dd { (counted(queue.stuck)) }
        }
        h2 { "Workers" }
        @if detail.served_by.is_empty() { p.muted { "None." } }
        @else {
            table.cards {
                caption.hidden { "Workers that serve the queue" }
                thead {
                    tr {
                        th scope="col" { "Status" } th scope="col" { "Worker" } th scope="col" { "Host" }
                        th.n scope="col" { "Holds" } th.n scope="col" { "Attempts" } th.n scope="col" { "Last beat" }
                    }
                }
                tbody {
                    @for worker in &detail.served_by {
                        tr {
                            td { (badge(site, &worker.status)) }
                            td data-label="Worker" { (worker_link(site, worker.session)) }
                            td.clip data-label="Host" { (worker.host) span.muted { " pid " (worker.pid) } }
                            td.n data-label="Holds" { (words::count(worker.held)) }
                            td.n data-label="Attempts" { (words::count(worker.attempts)) }
                            td.n data-label="Last beat" { (ago(site, worker.beat_at)) }
                        }
                    }
                }
            }
        }
        p { a href=(site.href(&format!("/runs?{}", open.to_query()))) { "Open runs of this queue" } }
        }
    })
}
