//! The header of a run, and its tabs: events, streams and state, children.

use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use maud::{Markup, html};
use outlast_api::{
    Action, ChunkFilter, ChunkJson, EventFilter, EventJson, PageRequest, QueryPairs, QueryReader, RunJson,
};
use outlast_core::RunId;
use outlast_core::queue::BUILT_IN_PREFIX;

use super::problem::{Answer, OnSite};
use super::run::{log_of, operation, operation_for, run_id};
use super::runs::plain_table;
use crate::actions::run_actions;
use crate::app::App;
use crate::site::Site;
use crate::ui::badge::{badge, run_badges};
use crate::ui::layout::Page;
use crate::ui::parts::{ago, copy, empty, icon, moment, pager, run_link, tag};
use crate::ui::payload::{json_tree, payload};
use crate::ui::words;

/// The entries of a stream that the page shows: the last ones.
const CHUNKS_SHOWN: i64 = 200;

/// The tabs of a run: path below the run, name.
const TABS: [(&str, &str); 4] =
    [("timeline", "Timeline"), ("events", "Events"), ("data", "Streams and state"), ("children", "Children")];

/// The header of the pages of a run.
pub(crate) fn head(site: &Site, run: &RunJson) -> Markup {
    html! {
        header.run #run-head {
            p.crumbs {
                a href=(site.href("/runs")) { "Runs" }
                @if let Some(parent) = run.parent { " / " (run_link(site, parent.run)) }
            }
            div.title {
                h1 { (run.workflow) " " span.muted { "v" (run.version) } }
                (run_badges(site, run))
                div.space {}
                (run_actions(site, run))
            }
            p.meta {
                span.id title=(run.id) data-run-id=(run.id) { (run.id) } (copy(site, &run.id.to_string(), "the id"))
                @if let Some(key) = &run.key { span { span.muted { "key " } (key) } }
                span { span.muted { "started " } (ago(site, run.created_at)) }
                @if let Some(from) = run.forked_from { span { span.muted { "forked from " } (run_link(site, from)) } }
                @if let Some(from) = run.restarted_from { span { span.muted { "restarted from " } (run_link(site, from)) } }
                @for (name, value) in own_tags(run) { (tag(site, name, value)) }
            }
        }
    }
}

/// The tags of the program. Those of the engine are shown in other words.
fn own_tags(run: &RunJson) -> impl Iterator<Item = (&String, &String)> {
    run.tags.iter().filter(|(name, _)| !name.starts_with(BUILT_IN_PREFIX))
}

/// The tabs of a run.
pub(crate) fn tabs(site: &Site, id: RunId, current: &str) -> Markup {
    html! {
        nav.tabs aria-label="Parts of the run" {
            @for (index, (path, name)) in TABS.iter().enumerate() {
                @let below = if *path == "timeline" { String::new() } else { format!("/{path}") };
                a href=(site.href(&format!("/runs/{id}{below}"))) data-tab=(index + 1)
                    aria-current=[(*path == current).then_some("page")] { (name) }
            }
        }
    }
}

/// `GET /runs/{id}/events`.
pub(crate) async fn events(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let filter = EventFilter::from_query(&site.query).on(&site)?;
    let service = app.service_for(&site.caller);
    let (run, page) = futures_util::future::join(service.run(id), service.events(id, &filter)).await;
    let (run, page) = (run.on(&site)?, page.on(&site)?);
    let to = |cursor: &Option<String>| {
        let cursor = Some(cursor.clone()?);
        let page = PageRequest { cursor, ..filter.page.clone() };
        Some(format!("?{}", EventFilter { page, ..filter.clone() }.to_query()))
    };
    let body = html! {
        (head(&site, &run))
        (tabs(&site, id, "events"))
        table.events {
            caption.hidden { "Events" }
            thead {
                tr { th.n scope="col" { "#" } th scope="col" { "Event" } th.n scope="col" { "Op" } th.n scope="col" { "Time" } th scope="col" { "Data" } }
            }
            tbody { @for event in &page.items { (event_row(&site, &run, event)) } }
        }
        (pager(to(&page.prev), to(&page.next), ("Earlier", "Later")))
        p { a.button href=(site.href(&format!("/runs/{id}/export"))) { (icon(&site, "download")) "Export history" } }
    };
    Ok(Page::new(format!("Events of {}", words::short(id)), body).response(&site))
}

fn event_row(site: &Site, run: &RunJson, event: &EventJson) -> Markup {
    html! {
        tr class=[event.skipped.then_some("skipped")] {
            td.n {
                @if site.may(Action::Fork) && event.number > 0 {
                    a href=(site.href(&format!("/runs/{}/fork?event={}", run.id, event.number))) title="Fork before this event" { (event.number) }
                } @else { (event.number) }
            }
            td { code { (event.kind) } }
            td.n { @if let Some(op) = event.op { a href=(site.href(&format!("/runs/{}?op={op}", run.id))) { (op) } } }
            td.n { time datetime=(event.at) title=(moment(event.at)) { (offset(run, event)) } }
            td { details { summary { (words::clipped(event.data.get(), 90)) } (json_tree(&event.data)) } }
        }
    }
}

/// The time of an event, from the start of the run on. The copied events of a fork are older.
fn offset(run: &RunJson, event: &EventJson) -> String {
    let (begin, at) = (run.created_at.0, event.at.0);
    if at < begin {
        format!("\u{2212}{}", words::duration(begin.since(at)))
    } else {
        format!("+{}", words::duration(at.since(begin)))
    }
}

/// `GET /runs/{id}/export`.
pub(crate) async fn export(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let history = app.service_for(&site.caller).export(id).await.on(&site)?;
    let mut response = history.into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.json\"")) {
        fields.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// `GET /runs/{id}/data`: the published state, and the streams.
pub(crate) async fn data(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let wanted = QueryReader::new(&site.query).and_then(|mut reader| reader.text("stream")).on(&site)?;
    let service = app.service_for(&site.caller);
    let (run, state, streams) =
        futures_util::future::join3(service.run(id), service.state(id), service.streams(id)).await;
    let (run, state, streams) = (run.on(&site)?, state.on(&site)?, streams.on(&site)?.items);
    let shown = wanted.or_else(|| streams.first().map(|stream| stream.name.clone()));
    let filter = ChunkFilter { from: Some(-CHUNKS_SHOWN), ..ChunkFilter::default() };
    let chunks = match &shown {
        Some(name) => service.chunks(id, name, &filter).await.on(&site)?.items,
        None => Vec::new(),
    };
    let body = html! {
        (head(&site, &run))
        (tabs(&site, id, "data"))
        @if state.state.is_none() && streams.is_empty() {
            (empty(&site, "stream", "Nothing published", html! {
                p { "A workflow publishes its state, and steps write to streams:" }
                pre { "ctx.publish(&progress);\ncx.stream(\"log\").write(\"half done\").await?;" }
            }))
        } @else {
            div.columns {
                section {
                    h2 { "State" }
                    @if let Some(value) = &state.state {
                        (payload(&site, "Published", value))
                        p.muted { "Published " (words::counted(state.version, "time")) @if let Some(time) = state.at { ", last " (ago(&site, time)) } }
                    } @else { p.muted { "The run has published no state." } }
                }
                section {
                    h2 { "Streams" }
                    nav.tabs aria-label="Streams" {
                        @for stream in &streams {
                            @let query = stream_query(&stream.name);
                            a href={ "?" (query) } aria-current=[(shown.as_deref() == Some(&stream.name)).then_some("page")] {
                                (stream.name) b { (words::count(stream.end)) }
                                @if stream.closed { span.muted { " closed" } }
                            }
                        }
                    }
                    @if streams.is_empty() { p.muted { "The run has no streams." } }
                    (chunk_list(&chunks))
                }
            }
        }
    };
    Ok(Page::new(format!("Data of {}", words::short(id)), body).response(&site))
}

fn stream_query(name: &str) -> String {
    let mut writer = outlast_api::QueryWriter::default();
    writer.set("stream", Some(name));
    writer.finish()
}

fn chunk_list(chunks: &[ChunkJson]) -> Markup {
    html! {
        ol.chunks {
            @for chunk in chunks {
                li class=[chunk.superseded.then_some("skipped")] {
                    span.n { (chunk.index) }
                    @match &chunk.value.json {
                        Some(json) => {
                            @match serde_json::from_str::<String>(json.get()) {
                                Ok(text) => span.pre { (text) },
                                Err(_) => (json_tree(json)),
                            }
                        },
                        None => span.muted { (chunk.kind) ", " (chunk.value.bytes) " bytes" },
                    }
                }
            }
        }
    }
}

/// `GET /runs/{id}/children`.
pub(crate) async fn children(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let page = PageRequest::from_query(&site.query).on(&site)?;
    let (run, children) =
        futures_util::future::join(app.service.run(id), app.service.children(id, &page)).await;
    let (run, children) = (run.on(&site)?, children.on(&site)?);
    let to = |cursor: &Option<String>| {
        let cursor = Some(cursor.clone()?);
        Some(format!("?{}", PageRequest { cursor, ..page.clone() }.to_query()))
    };
    let body = html! {
        (head(&site, &run))
        (tabs(&site, id, "children"))
        @if children.items.is_empty() {
            (empty(&site, "child", "No children", html! { p { "A workflow starts one with " code { "ctx.child(…)" } "." } }))
        } @else {
            p.pad {
                @for (status, runs) in children.counts.iter().filter(|(_, runs)| **runs > 0) {
                    (badge(&site, status)) " " (words::count(*runs)) @if children.more { "+" } "   "
                }
            }
            (plain_table(&site, &children.items, "Children, the oldest first"))
            (pager(to(&children.prev), to(&children.next), ("Earlier", "Later")))
        }
    };
    Ok(Page::new(format!("Children of {}", words::short(id)), body).response(&site))
}

/// `GET /runs/{id}/ops/{op}`: one operation with full payloads.
pub(crate) async fn show_operation(
    State(app): State<App>,
    site: Site,
    Path((id, op)): Path<(String, u64)>,
) -> Answer {
    let id = run_id(&id).on(&site)?;
    let operation_read = operation_for(&app, &site.caller, id, op);
    let (run, found) = futures_util::future::join(app.service.run(id), operation_read).await;
    let (run, found) = (run.on(&site)?, found.on(&site)?);
    let log = log_of(&app.service_for(&site.caller), id, &found).await;
    let body = html! {
        (head(&site, &run))
        p.crumbs { a href=(site.href(&format!("/runs/{id}?op={op}"))) { "In the timeline" } }
        section.panel.alone { (operation(&site, &run, &found, &log)) }
    };
    Ok(Page::new(format!("#{op} of {}", words::short(id)), body).response(&site))
}
