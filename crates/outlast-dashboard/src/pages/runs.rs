//! The list of runs.

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{Action, CountsJson, ItemPage, Problem, QueryPairs, RunFilter, RunFlag, RunJson};
use outlast_core::Status;
use outlast_core::queue::BUILT_IN_PREFIX;

use super::last_hour::last_hour;
use super::problem::{Answer, OnSite};
use crate::actions::{BULK_ACTIONS, is_supported, selected_actions};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::badge::{look, run_badge, shown_status};
use crate::ui::layout::Page;
use crate::ui::note::note;
use crate::ui::parts::{ago, empty, icon, pager, run_link, took};
use crate::ui::words;

/// The statuses of runs that have not ended.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

/// The statuses of runs that have ended.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

/// The marks that are filters.
const MARKS: [&str; 4] = ["paused", "compensating", "compensated", "quarantined"];

/// `GET /runs`.
pub(crate) async fn show(State(app): State<App>, site: Site) -> Answer {
    let filter = RunFilter::from_query(&site.query).on(&site)?;
    let list = RunList::read(&app, filter).await.on(&site)?;
    let body = html! {
        div.title {
            h1 { "Runs" }
            div.space {}
            (last_hour(&app, &site))
            @if site.may(Action::Start) { a.button.primary href=(site.href("/runs/new")) { (icon(&site, "start")) "Start run" } }
        }
        (list.counts_bar(&site))
        (list.filters_bar(&site))
        (list.table(&site))
    };
    let mut page = Page::new("Runs", body);
    if list.is_live() {
        page = page.live(site.href(&format!("/runs/live?{}", list.filter.to_query())));
    }
    Ok(page.response(&site))
}

/// A page of the list, with what its rows show.
#[derive(Debug)]
pub(crate) struct RunList {
    pub(crate) filter: RunFilter,
    counts: CountsJson,
    page: ItemPage<RunJson>,
}

impl RunList {
    /// Reads the counts and the page.
    pub(crate) async fn read(app: &AppState, filter: RunFilter) -> Result<Self, Problem> {
        let (counts, page) =
            futures_util::future::join(app.service.counts(), app.service.runs(&filter)).await;
        Ok(Self { filter, counts: counts?, page: page? })
    }

    /// Only the first page of a list with exact filters is kept current.
    pub(crate) fn is_live(&self) -> bool {
        self.filter.page.cursor.is_none() && self.filter.text.is_none()
    }

    /// The address of the list with other filters, from its first page.
    fn href(site: &Site, filter: &RunFilter) -> String {
        let query = filter.filters();
        site.href(&if query.is_empty() { "/runs".into() } else { format!("/runs?{query}") })
    }

    /// The counts by status, which are filters.
    pub(crate) fn counts_bar(&self, site: &Site) -> Markup {
        let base = RunFilter {
            statuses: Vec::new(),
            open: false,
            marks: Vec::new(),
            flag: None,
            ..self.filter.clone()
        };
        let count = |status: Status| self.counts.counts.get(status.as_str()).copied().unwrap_or(0);
        let (open, all): (u64, u64) = (OPEN.map(count).iter().sum(), self.counts.counts.values().sum());
        let is_plain =
            self.filter.statuses.is_empty() && self.filter.marks.is_empty() && self.filter.flag.is_none();
        let chip = |name: &str, runs: u64, is_on: bool, filter: RunFilter, class: Option<&str>| {
            html! {
                a.chip href=(Self::href(site, &filter)) aria-current=[is_on.then_some("true")] {
                    @if let Some(class) = class { span class={ "s-" (class) } { (icon(site, class)) } }
                    (name) b { (words::count(runs)) }
                }
            }
        };
        html! {
            nav.counts #counts aria-label="Filter by status" {
                (chip("All", all, is_plain && !self.filter.open, base.clone(), None))
                (chip("Open", open, is_plain && self.filter.open, RunFilter { open: true, ..base.clone() }, None))
                span.divider {}
                @for (index, status) in OPEN.iter().chain(&ENDED).enumerate() {
                    @if index == OPEN.len() { span.divider {} }
                    @let filter = RunFilter { statuses: vec![*status], ..base.clone() };
                    @let (name, class) = look(status.as_str());
                    (chip(name, count(*status), self.filter.statuses == [*status], filter, Some(class)))
                }
                div.marks {
                @for flag in [RunFlag::Retrying, RunFlag::Cancelling] {
                    @let runs = self.counts.flags.get(flag.as_str()).copied().unwrap_or(0);
                    @if runs > 0 || self.filter.flag == Some(flag) {
                        @let filter = RunFilter { flag: Some(flag), ..base.clone() };
                        (chip(flag.as_str(), runs, self.filter.flag == Some(flag), filter, Some(look(flag.as_str()).1)))
                    }
                }
                @let marks = MARKS.iter().filter(|mark| self.counts.marks.get(**mark).is_some_and(|runs| *runs > 0));
                @for mark in marks {
                    @let filter = RunFilter { marks: vec![(*mark).to_owned()], ..base.clone() };
                    @let runs = self.counts.marks.get(*mark).copied().unwrap_or(0);
                    (chip(mark, runs, self.filter.marks == [*mark], filter, Some(look(mark).1)))
                }
                }
            }
        }
    }

    /// The other filters, each with a link that removes it.
    fn filters_bar(&self, site: &Site) -> Markup {
        let plain = RunFilter { page: Default::default(), ..self.filter.clone() };
        let mut on: Vec<(String, RunFilter)> = Vec::new();
        let mut add = |name: &str, value: &Option<String>, without: RunFilter| {
            if let Some(value) = value {
                on.push((format!("{name}: {value}"), without));
            }
        };
        add("workflow", &plain.workflow, RunFilter { workflow: None, ..plain.clone() });
        add("queue", &plain.queue, RunFilter { queue: None, ..plain.clone() });
        add("key", &plain.key, RunFilter { key: None, ..plain.clone() });
        add("text", &plain.text, RunFilter { text: None, ..plain.clone() });
        let parent = plain.parent.map(words::short);
        add("children of", &parent, RunFilter { parent: None, ..plain.clone() });
        let root = plain.root.map(words::short);
        add("family of", &root, RunFilter { root: None, ..plain.clone() });
        for (name, value) in &plain.tags {
            let mut without = plain.clone();
            without.tags.remove(name);
            on.push((format!("tag {name}: {value}"), without));
        }
        html! {
            div.filters {
                @for (text, without) in on {
                    a.filter href=(Self::href(site, &without)) title="Remove this filter" { (text) (icon(site, "close")) }
                }
                (self.filter_menu(site))
                (self.bulk_menu(site))
                div.space {}
                @if !self.is_live() {
                    span.muted { "as of " (crate::ui::parts::ago(site, self.counts.as_of)) }
                    a.button href="" { "Refresh" }
                }
            }
        }
    }

    /// A menu with actions on all runs of the filter.
    fn bulk_menu(&self, site: &Site) -> Markup {
        if !site.may(Action::Bulk) || !is_supported(&self.filter) {
            return html! {};
        }
        let query = self.filter.filters();
        html! {
            details.menu {
                summary.button { "All matching runs" }
                ul {
                    @for (path, verb, action) in BULK_ACTIONS {
                        @if site.caller.role.includes(action.role()) {
                            li { a href={ (site.href("/runs/bulk")) "?bulk=" (path) "&" (query) } { (verb) " all of them…" } }
                        }
                    }
                }
            }
        }
    }

    /// A menu with fields that add filters.
    fn filter_menu(&self, site: &Site) -> Markup {
        let plain = &self.filter;
        let field = |name: &'static str,
                     label: &'static str,
                     value: &Option<String>,
                     example: &'static str| {
            html! {
                label for={ "filter-" (name) } { (label) }
                input type="text" id={ "filter-" (name) } name=(name) value=(value.as_deref().unwrap_or_default()) placeholder=(example)
                    autocomplete="off" spellcheck="false";
            }
        };
        html! {
            details.menu.filter-menu {
                summary.button { (icon(site, "start")) "Filter" }
                form action=(site.href("/runs")) {
                    @for status in &plain.statuses { input type="hidden" name="status" value=(status); }
                    @for mark in &plain.marks { input type="hidden" name="mark" value=(mark); }
                    @if plain.open { input type="hidden" name="open" value="true"; }
                    @if let Some(flag) = plain.flag { input type="hidden" name="flag" value=(flag.as_str()); }
                    @for (name, value) in &plain.tags { input type="hidden" name="tag" value={ (name) ":" (value) }; }
                    (field("workflow", "Workflow", &plain.workflow, "checkout"))
                    (field("queue", "Queue", &plain.queue, "default"))
                    (field("tag", "Tag", &None, "customer:ada"))
                    (field("text", "Id, workflow or key contains", &plain.text, "order-4"))
                    button.button.primary { "Apply" }
                }
            }
        }
    }

    /// The table, or what is shown instead.
    pub(crate) fn table(&self, site: &Site) -> Markup {
        html! {
            section #runs data-list {
                @if self.page.items.is_empty() { (self.nothing(site)) }
                @else {
                    @match site.may(Action::Bulk) {
                        true => (selectable_table(site, &self.page.items, "Runs, the newest first")),
                        false => (plain_table(site, &self.page.items, "Runs, the newest first")),
                    }
                    (self.pages(site))
                }
            }
        }
    }

    fn pages(&self, site: &Site) -> Markup {
        let to = |cursor: &Option<String>| {
            cursor.as_ref().map(|cursor| {
                let mut filter = self.filter.clone();
                filter.page.cursor = Some(cursor.clone());
                site.href(&format!("/runs?{}", filter.to_query()))
            })
        };
        pager(to(&self.page.prev), to(&self.page.next), ("Newer", "Older"))
    }

    fn nothing(&self, site: &Site) -> Markup {
        if self.counts.counts.values().sum::<u64>() == 0 {
            return first_run(site);
        }
        let text = html! {
            p { "No run matches these filters." }
            a.button href=(site.href("/runs")) { "Show all runs" }
        };
        empty(site, "search", "Nothing here", text)
    }
}

/// Three ways to start a first run.
fn first_run(site: &Site) -> Markup {
    let text = html! {
        p { "Start one in your program:" }
        pre { "client.start(checkout, order).key(\"order-42\").await?;" }
        p { "or on the command line:" }
        pre { "outlast start checkout '{\"cents\": 4200}' --key order-42" }
        @if site.may(Action::Start) { p { "or here:" } a.button.primary href=(site.href("/runs/new")) { "Start run" } }
    };
    empty(site, "runs", "No runs yet", text)
}

/// Whether the rows of a table can be selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Plain,
    Selectable,
}

/// A row of a list of runs.
fn row(site: &Site, run: &RunJson, rows: Rows) -> Markup {
    html! {
        tr id={ "run-" (run.id) } data-status=(shown_status(run)) {
            @if rows == Rows::Selectable {
                td.check-cell { input type="checkbox" name="run" value=(run.id) aria-label={ "Select " (run.workflow) " " (words::short(run.id)) }; }
            }
            td.c-status { (run_badge(site, run)) }
            td.c-run { (run_link(site, run.id)) }
            td.clip.c-workflow title=(run.workflow) { span.strong { (run.workflow) } " " span.muted { "v" (run.version) } }
            td.clip.c-key title=[run.key.as_ref()] {
                // Keys of the engine say nothing to people.
                @if let Some(key) = run.key.as_ref().filter(|key| !key.starts_with(BUILT_IN_PREFIX)) { (key) }
                @else { span.muted { "–" } }
            }
            td.n.c-started { (ago(site, run.created_at)) }
            td.n.c-took { (took(site, run.created_at, run.ended_at)) }
            td.clip.note { (note(site, run)) }
        }
    }
}

/// A table of runs.
pub(crate) fn plain_table(site: &Site, runs: &[RunJson], caption: &str) -> Markup {
    table(site, runs, caption, Rows::Plain)
}

/// A table of runs, and actions for those that are selected. Each leads to a page that asks for confirmation.
fn selectable_table(site: &Site, runs: &[RunJson], caption: &str) -> Markup {
    html! {
        form.selectable action=(site.href("/runs/selected")) {
            (table(site, runs, caption, Rows::Selectable))
            div.selection #selection {
                span.strong data-count { "Selected runs" }
                @for action in selected_actions().filter(|action| site.may(action.action)) {
                    button.button name="action" value=(action.path) { (action.verb) "…" }
                }
                button type="button" class="quiet js" data-clear { "Clear" }
            }
        }
    }
}

fn table(site: &Site, runs: &[RunJson], caption: &str, rows: Rows) -> Markup {
    html! {
        table.runs {
            caption.hidden { (caption) }
            thead {
                tr {
                    @if rows == Rows::Selectable {
                        th.check-cell scope="col" { span.hidden { "Select" } input type="checkbox" class="js" data-all aria-label="Select all rows"; }
                    }
                    th.c-status scope="col" { "Status" } th.c-run scope="col" { "Run" } th.c-workflow scope="col" { "Workflow" }
                    th.c-key scope="col" { "Key" } th.n.c-started scope="col" { "Started" } th.n.c-took scope="col" { "Took" }
                    th.note scope="col" { "Waits for / failed with" }
                }
            }
            tbody { @for run in runs { (row(site, run, rows)) } }
        }
    }
}
