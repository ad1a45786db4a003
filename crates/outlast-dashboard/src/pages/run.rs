//! The page of a run: header, why box, timeline and panel.

use axum::extract::{Path, State};
use maud::{Markup, html};
use outlast_api::{
    Action, EventFilter, ExplanationJson, FailureJson, ItemPage, OperationFilter, OperationJson, OutputJson,
    OutputQuery, PageRequest, PayloadAmount, PayloadJson, Problem, ProblemCode, QueryPairs, QueryReader,
    QueryWriter, RunJson,
};
use outlast_core::RunId;

use super::problem::{Answer, OnSite};
use super::run_tabs::{head, tabs};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::timeline::axis::Scale;
use crate::timeline::{Timeline, operation_icon, status_of};
use crate::ui::badge::badge;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, at, icon, pager, run_link, tag, took};
use crate::ui::payload::{member, payload};
use crate::ui::sentence::sentence;
use crate::ui::words;

/// The rows of a page of the timeline.
const ROWS: usize = 100;

/// Kinds of operations that are bookkeeping; the timeline shows them only if asked.
const BOOKKEEPING: [&str; 3] = ["compensation", "keep", "tags"];

/// Which part of a run the page shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunQueryPart {
    op: Option<u64>,
    is_linear: bool,
    has_all: bool,
    status: Option<String>,
    cursor: Option<String>,
    pub(crate) did: Option<String>,
}

impl QueryPairs for RunQueryPart {
    fn read_query(reader: &mut QueryReader) -> Result<Self, Problem> {
        Ok(Self {
            op: reader.parse("op")?,
            is_linear: reader.text("axis")?.as_deref() == Some("linear"),
            has_all: reader.text("all")?.is_some(),
            status: reader.text("status")?,
            cursor: reader.text("cursor")?,
            did: reader.text("did")?,
        })
    }

    fn write_query(&self, writer: &mut QueryWriter) {
        writer.set("axis", self.is_linear.then_some("linear"));
        writer.set("all", self.has_all.then_some("1"));
        writer.set("status", self.status.as_ref());
        writer.set("cursor", self.cursor.as_ref());
        writer.set("op", self.op);
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
    let shown = RunParts::read(&app, id, part.clone()).await.on(&site)?;
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
    if shown.run.ended_at.is_none() && part.cursor.is_none() {
        page = page.live(site.href(&format!("/runs/{id}/live?{}", part.to_query())));
    }
    Ok(page.response(&site))
}

/// What an action has done, until the page is loaded again.
fn done(did: &str) -> Markup {
    let text = match did {
        "requested" => "Requested. The page follows what happens.",
        "already" => "That was requested before, and is still in effect.",
        "nothing" => "There was nothing to do.",
        "delivered" => "Delivered to the run.",
        "started" => "Started.",
        _ => return html! {},
    };
    html! { p.done role="status" data-done { (text) } }
}

/// What the page of a run shows.
#[derive(Debug)]
pub(crate) struct RunParts {
    pub(crate) run: RunJson,
    explanation: Option<ExplanationJson>,
    operations: Result<ItemPage<OperationJson>, Problem>,
    selected: Option<OperationJson>,
    input: Option<PayloadJson>,
    output: Option<OutputJson>,
    part: RunQueryPart,
}

impl RunParts {
    /// Reads all parts. A part that cannot be read does not hide the others.
    pub(crate) async fn read(app: &AppState, id: RunId, part: RunQueryPart) -> Result<Self, Problem> {
        let run = app.service.run(id).await?;
        let filter = OperationFilter {
            status: part.status.clone(),
            payloads: Some(PayloadAmount::None),
            page: PageRequest { limit: Some(ROWS), cursor: part.cursor.clone() },
            ..OperationFilter::default()
        };
        let events = EventFilter {
            kind: Some("run_started".into()),
            page: PageRequest { limit: Some(1), cursor: None },
            ..EventFilter::default()
        };
        let (explanation, operations, events) = futures_util::future::join3(
            app.service.explain(id),
            app.service.operations(id, &filter),
            app.service.events(id, &events),
        )
        .await;
        let selected = match part.op {
            Some(op) => app.service.operation(id, op).await.ok(),
            None => None,
        };
        let output = match run.ended_at {
            Some(_) => app.service.output(id, &OutputQuery::default()).await.ok(),
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
        Ok(Self { run, explanation: explanation.ok(), operations, selected, input, output, part })
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
                p { (sentence(site, &why.sentence)) }
                @if site.may(Action::Wake) {
                    @if let Some(wait) = retry { a.button href=(link("wake", wait.op)) { "Attempt now…" } }
                    @else if let Some(wait) = timer { a.button href=(link("wake", wait.op)) { "Wake now…" } }
                }
                @if let Some(wait) = hook.filter(|_| site.may(Action::Send)) {
                    a.button href=(link("send", wait.op)) { "Answer…" }
                }
            }
        }
    }

    /// The timeline with its controls.
    pub(crate) fn timeline_section(&self, site: &Site) -> Markup {
        html! {
            section.lines #lines aria-label="Timeline" {
                (self.controls())
                @match &self.operations {
                    Err(problem) => (super::problem::problem_box(site, problem)),
                    Ok(page) => {
                        @let rows: Vec<_> = page.items.iter().filter(|op| self.is_shown(op)).cloned().collect();
                        @let query = RunQueryPart { op: None, ..self.part.clone() }.to_query();
                        @if rows.is_empty() && self.part.status.is_some() { p.muted.pad { "No operation matches." } }
                        @else {
                            (Timeline {
                                run: &self.run,
                                operations: &rows,
                                selected: self.part.op,
                                scale: if self.part.is_linear { Scale::Linear } else { Scale::Compressed },
                                query: &query,
                                is_first_page: page.prev.is_none() && self.part.status.is_none(),
                                is_last_page: page.next.is_none() && self.part.status.is_none(),
                            }.render(site))
                        }
                        (self.pages(page))
                    },
                }
            }
        }
    }

    fn is_shown(&self, op: &OperationJson) -> bool {
        self.part.has_all || self.part.status.is_some() || !BOOKKEEPING.contains(&op.kind.as_str())
    }

    fn controls(&self) -> Markup {
        let to = |part: RunQueryPart| format!("?{}", part.to_query());
        let status = |status: Option<&str>| RunQueryPart {
            status: status.map(Into::into),
            cursor: None,
            ..self.part.clone()
        };
        let is_on = |name: Option<&str>| (self.part.status.as_deref() == name).then_some("true");
        html! {
            div.controls {
                div.segmented role="group" aria-label="Operations" {
                    a href=(to(status(None))) aria-current=[is_on(None)] { "All" }
                    a href=(to(status(Some("open")))) aria-current=[is_on(Some("open"))] { "Open" }
                    a href=(to(status(Some("failed")))) aria-current=[is_on(Some("failed"))] { "Failed" }
                }
                div.space {}
                a.quiet href=(to(RunQueryPart { has_all: !self.part.has_all, ..self.part.clone() })) aria-pressed=(self.part.has_all)
                    title="Registrations of compensations, tags and decisions" { "Bookkeeping" }
                a.quiet href=(to(RunQueryPart { is_linear: !self.part.is_linear, ..self.part.clone() })) aria-pressed=(self.part.is_linear)
                    data-linear title="Idle time to scale (i)" { "To scale" }
            }
        }
    }

    fn pages(&self, page: &ItemPage<OperationJson>) -> Markup {
        let to = |cursor: &Option<String>| {
            let cursor = Some(cursor.clone()?);
            Some(format!("?{}", RunQueryPart { cursor, op: None, ..self.part.clone() }.to_query()))
        };
        pager(to(&page.prev), to(&page.next), ("Earlier", "Later"))
    }

    /// The panel: the selected operation, or the run.
    pub(crate) fn panel(&self, site: &Site) -> Markup {
        html! {
            aside.panel #panel aria-label="Details" {
                @match &self.selected {
                    Some(op) => (operation(site, &self.run, op)),
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

/// An operation: attempts, times, payloads and what can be done.
pub(crate) fn operation(site: &Site, run: &RunJson, op: &OperationJson) -> Markup {
    let status = status_of(op, site.now);
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
            dt { "Took" } dd { (took(site, op.started_at, op.ended_at.or(run.ended_at))) }
            @if let Some(time) = op.until.filter(|_| is_open) { dt { @if op.kind == "timer" { "Wakes" } @else { "Times out" } } dd { (ago(site, time)) } }
            @if let Some(time) = op.retry_at.filter(|_| is_open) { dt { "Next attempt" } dd { (ago(site, time)) } }
            @if let Some(queue) = &op.queue { dt { "Queue" } dd { (queue) } }
            @if let Some(other) = op.run { dt { "Run" } dd { (run_link(site, other)) } }
            @if let Some(undone) = op.undoes { dt { "Undoes" } dd { a href={ "?op=" (undone) } { "#" (undone) } } }
            @if op.crashed > 0 { dt { "Crashes" } dd { (op.crashed) } }
        }
        @if !op.tags.is_empty() { p { @for (name, value) in &op.tags { (tag(site, name, value)) " " } } }
        @if can_wake {
            p { a.button href=(link("wake")) { @if op.kind == "timer" { "Wake now…" } @else { "Attempt now…" } } }
        }
        @if is_open && op.kind == "hook" && site.may(Action::Send) { p { a.button href=(link("send")) { "Answer…" } } }
        @if !op.attempts.is_empty() { (attempts(site, op)) }
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
