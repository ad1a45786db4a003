//! The page of a run: header, why box, timeline and panel.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use maud::{Markup, html};
use outlast_api::{
    Action, Caller, EventFilter, ExplanationJson, FailureJson, OperationJson, OutputJson, OutputQuery,
    PageRequest, PayloadJson, Problem, ProblemCode, QueryPairs, QueryReader, QueryWriter, RunJson,
    RunTimeline, Service,
};
use outlast_core::{RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

use super::attempt_log::StepLog;
use super::hooks::webhook_facts;
use super::problem::{Answer, OnSite};
use super::run_tabs::{head, tabs};
use crate::actions::verb_of;
use crate::app::{App, AppState};
use crate::site::Site;
use crate::timeline::axis::Scale;
use crate::timeline::drawing::PAGE_ROWS;
use crate::timeline::rows::{ExpandedChild, Row, RowFilter, RowSource};
use crate::timeline::{Timeline, operation_icon, status_of};
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, at, icon, pager, run_link, tag, took, worker_link};
use crate::ui::payload::{member, payload};
use crate::ui::sentence::sentence;
use crate::ui::words;

/// The attempts in progress that the why box names.
const ATTEMPTS_NAMED: usize = 3;

/// The groups and children that can be expanded at the same time.
const EXPANDED_MAX: usize = 20;

/// Which part of a run the page shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueryPart {
    op: Option<u64>,
    is_linear: bool,
    is_table: bool,
    has_all: bool,
    status: Option<String>,
    /// The first row.
    row: usize,
    expanded: BTreeSet<u64>,
    /// The part of the time, in microseconds since the start.
    zoom: Option<(i64, i64)>,
    pub(crate) did: Option<String>,
}

impl QueryPairs for RunQueryPart {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        let zoom = reader.text("zoom")?.and_then(|text| {
            let (from, to) = text.split_once('-')?;
            Some((from.parse().ok()?, to.parse().ok()?)).filter(|(from, to)| from < to)
        });
        Ok(Self {
            op: reader.parse("op")?,
            is_linear: reader.text("axis")?.as_deref() == Some("linear"),
            is_table: reader.text("view")?.as_deref() == Some("table"),
            has_all: reader.text("all")?.is_some(),
            status: reader.text("status")?.filter(|status| matches!(status.as_str(), "open" | "failed")),
            row: reader.parse("row")?.unwrap_or(0),
            expanded: reader
                .all("expand")
                .iter()
                .filter_map(|op| op.parse().ok())
                .take(EXPANDED_MAX)
                .collect(),
            zoom,
            did: reader.text("did")?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("view", self.is_table.then_some("table"));
        writer.set("axis", self.is_linear.then_some("linear"));
        writer.set("all", self.has_all.then_some("1"));
        writer.set("status", self.status.as_ref());
        writer.set("row", Some(self.row).filter(|row| *row > 0));
        for op in &self.expanded {
            writer.set("expand", Some(op));
        }
        writer.set("zoom", self.zoom.map(|(from, to)| format!("{from}-{to}")));
        writer.set("op", self.op);
    }
}

impl RunQueryPart {
    /// The address of the page with this part.
    fn href(&self) -> String {
        format!("?{}", self.to_query())
    }
}

/// Reads the id of a run in a path.
pub(crate) fn run_id(text: &str) -> Result<RunId, Problem> {
    text.parse().map_err(|_| Problem::new(ProblemCode::NotFound, format!("`{text}` is not the id of a run")))
}

/// `GET /runs/{id}`.
pub(crate) async fn show(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let part = RunQueryPart::from_query(&site.query).on(&site)?;
    let shown = RunParts::read(&app, &site.caller, id, part.clone()).await.on(&site)?;
    let body = html! {
        @if let Some(did) = &part.did { (done(did)) }
        (shown.head(&site))
        (shown.why(&site))
        (tabs(&site, id, "timeline"))
        div.split {
            (shown.timeline_section(&site))
            (shown.panel(&site))
        }
    };
    let title = format!("{} {}", shown.run.workflow, words::short(id));
    let mut page = Page::new(title, body).with_timeline();
    if shown.run.ended_at.is_none() {
        page = page.live(site.href(&format!("/runs/{id}/live?{}", part.to_query())));
    }
    Ok(page.response(&site))
}

/// One attempt in progress, in words.
fn in_progress(site: &Site, attempt: &serde_json::Value) -> Markup {
    let number = |name: &str| attempt.get(name).and_then(serde_json::Value::as_i64);
    let step = attempt.get("step").and_then(|step| step.as_str()).unwrap_or("step");
    html! {
        code { (step) }
        @if let Some(number) = number("attempt").filter(|number| *number > 1) { " attempt " (number) }
        @if let Some(since) = number("since") { " for " (took(site, Timestamp::from_micros(since).into(), None)) }
    }
}

/// What an action has done, until the page is loaded again.
pub(crate) fn done(did: &str) -> Markup {
    let text = match did {
        "requested" => "Requested. The page follows what happens.",
        "already" => "That was requested before, and is still in effect.",
        "nothing" => "There was nothing to do.",
        "delivered" => "Delivered to the run.",
        "started" => "Started.",
        "created" => "Created.",
        _ => return html! {},
    };
    html! { p.done role="status" data-done { (text) } }
}

/// What the page of a run shows.
#[derive(Debug)]
pub(crate) struct RunParts {
    pub(crate) run: RunJson,
    explanation: Option<ExplanationJson>,
    timeline: Result<RunTimeline, Problem>,
    children: BTreeMap<u64, ExpandedChild>,
    filter: RowFilter,
    selected: Option<OperationJson>,
    /// What the selected operation has logged.
    log: StepLog,
    input: Option<PayloadJson>,
    output: Option<OutputJson>,
    part: RunQueryPart,
}

impl RunParts {
    /// Reads all parts. A part that cannot be read does not hide the others.
    pub(crate) async fn read(
        app: &AppState,
        caller: &Caller,
        id: RunId,
        part: RunQueryPart,
    ) -> Result<Self, Problem> {
        let service = app.service_for(caller);
        let run = service.run(id).await?;
        let events = EventFilter {
            kind: Some("run_started".into()),
            page: PageRequest { limit: Some(1), cursor: None },
            ..EventFilter::default()
        };
        let (explanation, timeline, events) = futures_util::future::join3(
            service.explain(id),
            service.timeline(id),
            service.events(id, &events),
        )
        .await;
        let children = match &timeline {
            Ok(timeline) => expanded_children(app, timeline, &part.expanded).await,
            Err(_) => BTreeMap::new(),
        };
        let filter =
            RowFilter { status: part.status.clone(), has_all: part.has_all, expanded: part.expanded.clone() };
        let selected = match part.op {
            Some(op) => operation_for(app, caller, id, op).await.ok(),
            None => None,
        };
        let log = match &selected {
            Some(op) => log_of(&service, id, op).await,
            None => StepLog::default(),
        };
        let output = match run.ended_at {
            Some(_) => service.output(id, &OutputQuery::default()).await.ok(),
            None => None,
        };
        let started = events.ok().and_then(|page| page.items.into_iter().next());
        let input = started.and_then(|event| {
            let json = member(&event.data, "input")?.to_owned();
            let bytes = json.get().len() as u64;
            Some(PayloadJson {
                codec: "json".into(),
                bytes,
                json: Some(json),
                base64: None,
                preview: None,
                omitted: false,
            })
        });
        let explanation = explanation.ok();
        Ok(Self { run, explanation, timeline, children, filter, selected, log, input, output, part })
    }

    /// The header of the page.
    pub(crate) fn head(&self, site: &Site) -> Markup {
        head(site, &self.run)
    }

    /// Why the run is in its state, and what can be done about it.
    pub(crate) fn why(&self, site: &Site) -> Markup {
        let Some(why) = &self.explanation else { return html! { div #why {} } };
        let retry = self.run.waits.iter().find(|wait| wait.on == "retry");
        let timer = self.run.waits.iter().find(|wait| wait.on == "timer");
        let hook = self.run.waits.iter().find(|wait| wait.on == "hook");
        let link = |action: &str, op: u64| site.href(&format!("/runs/{}/{action}?op={op}", self.run.id));
        html! {
            div.why #why data-status=(self.run.status) {
                (icon(site, "why"))
                (self.reason(site, why))
                @if site.may(Action::Wake) {
                    @if let Some(wait) = retry { a.button.primary href=(link("wake", wait.op)) { "Attempt now…" } }
                    @else if let Some(wait) = timer { a.button href=(link("wake", wait.op)) { "Wake now…" } }
                }
                @if let Some(wait) = hook.filter(|_| site.may(Action::Send)) {
                    a.button.primary href=(link("send", wait.op)) { "Answer…" }
                }
                @if why.is_quarantined && site.may(Action::Release) {
                    a.button href=(site.href(&format!("/runs/{}/release", self.run.id))) { "Release…" }
                }
            }
        }
    }

    /// The reason in words. For a run that a worker holds, what is in progress counts, and the worker comes last.
    fn reason(&self, site: &Site, why: &ExplanationJson) -> Markup {
        let attempts = why.because.get("attempts").and_then(|attempts| attempts.as_array());
        let Some(attempts) = attempts.filter(|attempts| !attempts.is_empty() && why.stopping.is_none())
        else {
            let text = why.sentence_with(|action| format!("`{}`", verb_of(action)));
            return html! { p { (sentence(site, &text)) } };
        };
        let worker = why.because.get("worker");
        let text = |name: &str| worker.and_then(|worker| worker.get(name)).and_then(|value| value.as_str());
        html! {
            div.reason {
                p {
                    span.strong { (words::counted(attempts.len() as u64, "attempt")) " in progress: " }
                    @for (index, attempt) in attempts.iter().take(ATTEMPTS_NAMED).enumerate() {
                        @if index > 0 { ", " }
                        (in_progress(site, attempt))
                    }
                    @if attempts.len() > ATTEMPTS_NAMED { " and " (attempts.len() - ATTEMPTS_NAMED) " more" }
                }
                @if let Some(owner) = self.run.owner {
                    p.muted { "on worker " (worker_link(site, owner)) @if let Some(host) = text("host") { ", host " (host) } @if let Some(build) = text("build") { ", build " code { (words::clipped(build, 12)) } } }
                }
            }
        }
    }

    /// The timeline with its controls.
    pub(crate) fn timeline_section(&self, site: &Site) -> Markup {
        html! {
            section.lines #lines aria-label="Timeline" {
                @match &self.timeline {
                    Err(problem) => (super::problem::problem_box(site, problem)),
                    Ok(timeline) => {
                        @let source = self.source(timeline, site.now);
                        @let rows = source.rows();
                        (self.with_timeline(source, |timeline| self.rows_part(site, timeline, &rows)))
                    },
                }
            }
        }
    }

    fn source<'a>(&'a self, timeline: &'a RunTimeline, now: Timestamp) -> RowSource<'a> {
        RowSource { run: &self.run, timeline, children: &self.children, filter: &self.filter, now }
    }

    /// Calls a function with the timeline of these rows.
    fn with_timeline<T>(&self, source: RowSource<'_>, use_it: impl FnOnce(&Timeline<'_>) -> T) -> T {
        let to_op = |op: Option<u64>| RunQueryPart { op, ..self.part.clone() }.href();
        let to_expand = |number: u64| {
            let mut part = self.part.clone();
            if !part.expanded.remove(&number) {
                part.expanded.insert(number);
            }
            part.href()
        };
        let origin = source.origin().as_micros();
        let time = |offset: i64| Timestamp::from_micros(origin.saturating_add(offset));
        let blocks = RunQueryPart { row: 0, zoom: None, op: None, ..self.part.clone() };
        use_it(&Timeline {
            source,
            selected: self.part.op,
            scale: if self.part.is_linear { Scale::Linear } else { Scale::Compressed },
            range: self.part.zoom.map(|(from, to)| (time(from), time(to))),
            first: self.part.row,
            to_op: &to_op,
            to_expand: &to_expand,
            blocks: format!("{}/timeline?{}", self.run.id, blocks.to_query()),
        })
    }

    fn rows_part(&self, site: &Site, timeline: &Timeline<'_>, rows: &[Row]) -> Markup {
        html! {
            (self.controls(site, timeline, rows))
            @if rows.is_empty() { p.muted.pad { "No operation matches." } }
            @else if self.part.is_table { (timeline.table(site, rows)) }
            @else { (timeline.render(site, rows)) }
            (self.pages(rows.len()))
        }
    }

    /// A block of rows, for scripts.
    pub(crate) fn block(&self, site: &Site) -> Result<serde_json::Value, Problem> {
        let timeline = self.timeline.as_ref().map_err(Clone::clone)?;
        let source = self.source(timeline, site.now);
        let rows = source.rows();
        Ok(self.with_timeline(source, |timeline| timeline.block(site, &rows)))
    }

    fn controls(&self, site: &Site, timeline: &Timeline<'_>, rows: &[Row]) -> Markup {
        let status = |status: Option<&str>| {
            RunQueryPart { status: status.map(Into::into), row: 0, ..self.part.clone() }.href()
        };
        let is_on = |name: Option<&str>| (self.part.status.as_deref() == name).then_some("true");
        let part = &self.part;
        let toggle = |is_on: bool, href: String, name: &str, title: &str| {
            html! { a.quiet href=(href) aria-current=[is_on.then_some("true")] title=(title) { (name) } }
        };
        html! {
            div.controls {
                div.segmented role="group" aria-label="Operations" {
                    a href=(status(None)) aria-current=[is_on(None)] { "All" }
                    a href=(status(Some("open"))) aria-current=[is_on(Some("open"))] { "Open" }
                    a href=(status(Some("failed"))) aria-current=[is_on(Some("failed"))] { "Failed" }
                }
                div.segmented role="group" aria-label="View" {
                    a href=(RunQueryPart { is_table: false, ..part.clone() }.href()) aria-current=[(!part.is_table).then_some("true")] { "Picture" }
                    a href=(RunQueryPart { is_table: true, ..part.clone() }.href()) aria-current=[part.is_table.then_some("true")] { "Table" }
                }
                div.space {}
                (toggle(part.has_all, RunQueryPart { has_all: !part.has_all, row: 0, ..part.clone() }.href(), "Bookkeeping", "Registrations of compensations, tags and decisions"))
                @if !part.is_table {
                    a.quiet href=(RunQueryPart { is_linear: !part.is_linear, ..part.clone() }.href()) aria-current=[part.is_linear.then_some("true")]
                        data-linear title="Idle time to scale (i)" { "To scale" }
                    (self.zoom_links(site, timeline, rows))
                }
            }
        }
    }

    fn zoom_links(&self, site: &Site, timeline: &Timeline<'_>, rows: &[Row]) -> Markup {
        let origin = timeline.source.origin().as_micros();
        let (from, to) = timeline.axis(rows).bounds();
        let (from, to) = (from.as_micros() - origin, to.as_micros() - origin);
        let middle = (from + to) / 2;
        let zoomed = |half: i64| {
            let half = half.max(500);
            RunQueryPart { zoom: Some(((middle - half).max(0), middle + half)), ..self.part.clone() }.href()
        };
        html! {
            span.zoom role="group" aria-label="Zoom" {
                a.quiet href=(zoomed(to - from)) data-zoom-by="2" title="Zoom out (-)" aria-label="Zoom out" { (icon(site, "minus")) }
                a.quiet href=(RunQueryPart { zoom: None, ..self.part.clone() }.href()) data-zoom-by="0" title="All of it (0)" { "Fit" }
                a.quiet href=(zoomed((to - from) / 4)) data-zoom-by="0.5" title="Zoom in (+)" aria-label="Zoom in" { (icon(site, "start")) }
            }
        }
    }

    fn pages(&self, total: usize) -> Markup {
        let to = |row: usize| RunQueryPart { row, op: None, ..self.part.clone() }.href();
        let first = self.part.row;
        let earlier = (first > 0).then(|| to(first.saturating_sub(PAGE_ROWS)));
        let later = (first + PAGE_ROWS < total).then(|| to(first + PAGE_ROWS));
        html! { div.no-js[!self.part.is_table] { (pager(earlier, later, ("Earlier", "Later"))) } }
    }

    /// The panel: the selected operation, or the run.
    pub(crate) fn panel(&self, site: &Site) -> Markup {
        html! {
            aside.panel #panel aria-label="Details" {
                @match &self.selected {
                    Some(op) => (operation(site, &self.run, op, &self.log)),
                    None => (self.facts(site)),
                }
            }
        }
    }

    fn facts(&self, site: &Site) -> Markup {
        let run = &self.run;
        html! {
            h2 { "Run" }
            dl.facts {
                dt { "Started" } dd { (at(run.created_at)) }
                @if let Some(time) = run.ended_at { dt { "Ended" } dd { (at(time)) } }
                dt { "Took" } dd { (took(site, run.created_at, run.ended_at)) }
                dt { "Queue" } dd { (run.queue) @if run.priority > 0 { span.muted { " priority " (run.priority) } } }
                @if let Some(time) = run.deadline { dt { "Deadline" } dd { (ago(site, time)) } }
                @if run.generation > 1 { dt { "Generation" } dd { (run.generation) } }
                @if let Some(owner) = run.owner { dt { "Worker" } dd { a.id href=(site.href(&format!("/workers/{owner}"))) { (owner) } } }
                @if run.crashes > 0 { dt { "Crashes" } dd { (run.crashes) } }
                dt { "Messages" } dd { (run.inbox.read) " of " (run.inbox.sent) " read" @if run.inbox.kept > 0 { ", " (run.inbox.kept) " kept" } }
            }
            @if let Some(input) = &self.input { (payload(site, "Input", input)) }
            @if let Some(output) = &self.output {
                @if let Some(value) = &output.output { (payload(site, "Output", value)) }
                @if let Some(failure) = &output.failure { (failure_box(failure)) }
            }
        }
    }
}

/// The children whose operations are shown in place.
async fn expanded_children(
    app: &AppState,
    timeline: &RunTimeline,
    expanded: &BTreeSet<u64>,
) -> BTreeMap<u64, ExpandedChild> {
    let children = timeline.operations.iter().filter(|op| op.kind == "child" && expanded.contains(&op.op));
    let reads = children.filter_map(|op| Some((op.op, op.run?))).map(async |(op, id)| {
        let (run, timeline) = futures_util::future::join(app.service.run(id), app.service.timeline(id)).await;
        // A child that was deleted has no rows.
        Some((op, ExpandedChild { run: run.ok()?, timeline: timeline.ok()? }))
    });
    futures_util::future::join_all(reads).await.into_iter().flatten().collect()
}

/// `GET /runs/{id}/timeline`: a block of rows, for scripts.
pub(crate) async fn block(State(app): State<App>, site: Site, Path(id): Path<String>) -> Answer {
    let id = run_id(&id).on(&site)?;
    let part = RunQueryPart::from_query(&site.query).on(&site)?;
    let shown = RunParts::read(&app, &site.caller, id, part).await.on(&site)?;
    Ok(Json(shown.block(&site).on(&site)?).into_response())
}

/// A failure with its causes.
pub(crate) fn failure_box(failure: &FailureJson) -> Markup {
    html! {
        section.failure {
            header { h3 { "Failure" } span.muted { (failure.kind) } @if let Some(code) = &failure.code { code.bad { (code) } } }
            p.pre { (failure.message) }
            @for cause in &failure.causes { p.pre.muted { "caused by: " (cause) } }
            @for failed in &failure.failed_compensations { p.pre { "compensation " (failed.step) " (#" (failed.op) "): " (failed.message) } }
        }
    }
}

/// An operation as the caller may see it: with the URL of the webhook that it opened, if the caller may send to hooks.
pub(crate) async fn operation_for(
    app: &AppState,
    caller: &Caller,
    run: RunId,
    op: u64,
) -> Result<OperationJson, Problem> {
    let mut operation = app.service_for(caller).operation(run, op).await?;
    if let Some(webhook) = &mut operation.webhook {
        webhook.url = app.service.webhook_url(caller, run, op).await?;
    }
    Ok(operation)
}

/// What an operation has logged: only steps do.
pub(crate) async fn log_of(service: &Service, run: RunId, op: &OperationJson) -> StepLog {
    match op.kind.as_str() {
        "step" => StepLog::read(service, run, op.op).await,
        _ => StepLog::default(),
    }
}

/// An operation: attempts, times, payloads, log and what can be done.
pub(crate) fn operation(site: &Site, run: &RunJson, op: &OperationJson, log: &StepLog) -> Markup {
    let status = status_of(run, op, site.now);
    let link = |action: &str| site.href(&format!("/runs/{}/{action}?op={}", run.id, op.op));
    let is_open = op.ended_at.is_none() && run.ended_at.is_none();
    let can_wake = is_open
        && site.may(Action::Wake)
        && (op.kind == "timer" || op.retry_at.is_some_and(|time| time.0 > site.now));
    html! {
        header.op {
            span class={ "s-" (status) } { (icon(site, operation_icon(op))) }
            h2 { (op.name) }
            span.muted { (op.kind) " #" (op.op) }
            div.space {}
            (badge(site, &op.status))
        }
        dl.facts {
            dt { "Requested" } dd { (at(op.started_at)) }
            @if let Some(time) = op.ended_at { dt { "Ended" } dd { (at(time)) } }
            dt { @if is_open { "So far" } @else { "Took" } } dd { (took(site, op.started_at, op.ended_at.or(run.ended_at))) }
            @if let Some(time) = op.until.filter(|_| is_open) { dt { @if op.kind == "timer" { "Wakes" } @else { "Times out" } } dd { (ago(site, time)) } }
            @if let Some(time) = op.retry_at.filter(|_| is_open) { dt { "Next attempt" } dd { (ago(site, time)) } }
            @if let Some(queue) = &op.queue { dt { "Queue" } dd { (queue) } }
            @if let Some(other) = op.run { dt { "Run" } dd { (run_link(site, other)) } }
            @if let Some(undone) = op.undoes { dt { "Undoes" } dd { a href={ "?op=" (undone) } { "#" (undone) } } }
            @if op.crashed > 0 { dt { "Crashes" } dd { (op.crashed) } }
            @if let Some(webhook) = &op.webhook { dt { "Webhook" } dd { (webhook_facts(site, webhook)) } }
        }
        @if !op.tags.is_empty() { p { @for (name, value) in &op.tags { (tag(site, name, value)) " " } } }
        div.op-actions {
            @if can_wake {
                a.button href=(link("wake")) { @if op.kind == "timer" { "Wake now…" } @else { "Attempt now…" } }
            }
            @if is_open && op.kind == "hook" && site.may(Action::Send) { a.button href=(link("send")) { "Answer…" } }
            @if site.may(Action::Fork) && !op.skipped {
                a.button href=(site.href(&format!("/runs/{}/fork?before={}", run.id, op.op))) { "Fork before this…" }
                @if matches!(op.kind.as_str(), "step" | "hook" | "child") {
                    a.button href=(link("fork")) { "Fork with another outcome…" }
                }
            }
        }
        @if !op.attempts.is_empty() { (attempts(site, op)) }
        (log.markup(site, run.id, op))
        @for rejected in &op.rejected { p.pre.bad { "Rejected payload: " (rejected.reason) } }
        @if let Some(value) = &op.input { (payload(site, "Input", value)) }
        @if let Some(value) = &op.output { (payload(site, "Output", value)) }
        @if op.attempts.is_empty() { @if let Some(failure) = &op.failure { (failure_box(failure)) } }
    }
}

/// The attempts of a step, the newest first.
fn attempts(site: &Site, op: &OperationJson) -> Markup {
    html! {
        section.attempts {
            h3 { "Attempts" }
            ol reversed {
                @for attempt in op.attempts.iter().rev() {
                    @let is_due = attempt.due_at.0 > site.now && attempt.ended_at.is_none();
                    li {
                        span.n { (attempt.number) }
                        @if is_due { span.s-waiting { (icon(site, "waiting")) } }
                        @else if attempt.failure.is_some() { span.s-failed { (icon(site, "failed")) } }
                        @else if attempt.ended_at.is_some() { span.s-completed { (icon(site, "completed")) } }
                        @else { span.s-running { (icon(site, "running")) } }
                        div {
                            @if is_due { "due " (ago(site, attempt.due_at)) }
                            @else { (took(site, attempt.due_at, attempt.ended_at.or(op.ended_at))) }
                            @if let Some(failure) = &attempt.failure {
                                p.pre { @if let Some(code) = &failure.code { code.bad { (code) } " " } (failure.message) }
                                @for cause in &failure.causes { p.pre.muted { "caused by: " (cause) } }
                            }
                        }
                        @if let Some(build) = &attempt.build { code.muted title=(build) { (words::clipped(build, 8)) } }
                    }
                }
            }
        }
    }
}
