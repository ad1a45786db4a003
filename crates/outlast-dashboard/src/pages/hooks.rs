//! The hooks that runs wait for.

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{Action, PageRequest, Problem, RunFilter, RunJson, WaitJson};
use outlast_core::Status;

use super::problem::{Answer, OnSite};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, run_link, until};

/// The newest waiting runs whose hooks are shown.
const RUNS_MAX: usize = PageRequest::LIMIT_MAX;

/// `GET /hooks`.
pub(crate) async fn show(State(app): State<App>, site: Site) -> Answer {
    let body = show_body(&app, &site).await.on(&site)?;
    let live = site.href(&format!("/hooks/live?{}", site.query));
    Ok(Page::new("Hooks", body).live(live).response(&site))
}

/// The part of the page that is live.
pub(crate) async fn show_body(app: &AppState, site: &Site) -> Result<Markup, Problem> {
    let filter = RunFilter {
        statuses: vec![Status::Waiting],
        page: PageRequest { limit: Some(RUNS_MAX), ..PageRequest::default() },
        ..RunFilter::default()
    };
    let page = app.service.runs(&filter).await?;
    let hooks: Vec<(&RunJson, &WaitJson)> = page
        .items
        .iter()
        .flat_map(|run| run.waits.iter().filter(|wait| wait.on == "hook").map(move |wait| (run, wait)))
        .collect();
    let body = html! {
        div #page {
        div.title { h1 { "Hooks" } }
        @if hooks.is_empty() {
            (empty(site, "hook", "No run waits for a hook", html! {
                p { "A workflow opens one, and continues when a payload arrives:" }
                pre { "let answer: Decision = ctx.hook(\"decision\").timeout(\"2d\").await?;" }
            }))
        } @else {
            table.cards {
                caption.hidden { "Open hooks" }
                thead {
                    tr {
                        th scope="col" { "Hook" } th scope="col" { "Run" } th scope="col" { "Workflow" }
                        th scope="col" { "Key" } th.n scope="col" { "Waiting since" } th.n scope="col" { "Times out" }
                        th scope="col" { span.hidden { "Action" } }
                    }
                }
                tbody {
                    @for (run, wait) in hooks {
                        @let name = wait.name.as_deref().unwrap_or_default();
                        tr {
                            td.strong { (name) }
                            td data-label="Run" { (run_link(site, run.id)) }
                            td data-label="Workflow" { (run.workflow) }
                            td.clip data-label="Key" { (run.key.as_deref().unwrap_or("–")) }
                            td.n data-label="Waiting since" { (ago(site, run.updated_at)) }
                            td.n data-label="Times out" { @if let Some(time) = wait.until { (until(site, time)) } @else { "never" } }
                            td.n {
                                @if site.may(Action::Send) {
                                    a.button href=(site.href(&format!("/runs/{}/send?op={}", run.id, wait.op))) { "Answer…" }
                                }
                            }
                        }
                    }
                }
            }
            @if page.next.is_some() { p.muted { "Of the newest " (RUNS_MAX) " waiting runs." } }
        }
        }
    };
    Ok(body)
}
