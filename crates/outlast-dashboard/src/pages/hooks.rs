//! The hooks that runs wait for.

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{Action, HookFilter, OpenHookJson, PageRequest, Problem, WebhookJson};

use super::problem::{Answer, OnSite};
use crate::app::{App, AppState};
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, copy, empty, run_link, until};

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
    let limit = PageRequest { limit: Some(RUNS_MAX), ..PageRequest::default() };
    let hooks = app.service.hooks(&site.caller, &HookFilter { page: limit, ..HookFilter::default() }).await?;
    let body = html! {
        div #page {
        div.title { h1 { "Hooks" } }
        @if hooks.items.is_empty() {
            (empty(site, "hook", "No run waits for a hook", html! {
                p { "A workflow opens one, and continues when a payload arrives:" }
                pre { "let answer: Decision = ctx.hook(\"decision\").timeout(\"2d\").await?;" }
            }))
        } @else {
            table.cards {
                caption.hidden { "Open hooks" }
                thead {
                    tr {
                        th scope="col" { "Hook" } th scope="col" { "Kind" } th scope="col" { "Run" } th scope="col" { "Workflow" }
                        th scope="col" { "Key" } th.n scope="col" { "Waiting since" } th.n scope="col" { "Times out" }
                        th scope="col" { span.hidden { "Action" } }
                    }
                }
                tbody {
                    @for hook in &hooks.items {
                        tr {
                            td.strong { (hook.name) }
                            td data-label="Kind" { (kind(site, hook)) }
                            td data-label="Run" { (run_link(site, hook.run)) }
                            td data-label="Workflow" { (hook.workflow) }
                            td.clip data-label="Key" { (hook.key.as_deref().unwrap_or("–")) }
                            td.n data-label="Waiting since" { (ago(site, hook.since)) }
                            td.n data-label="Times out" { @if let Some(time) = hook.until { (until(site, time)) } @else { "never" } }
                            td.n {
                                // The payload of a webhook is a request, which nobody types.
                                @if site.may(Action::Send) && hook.webhook.is_none() {
                                    a.button href=(site.href(&format!("/runs/{}/send?op={}", hook.run, hook.op))) { "Answer…" }
                                }
                            }
                        }
                    }
                }
            }
            @if hooks.next.is_some() { p.muted { "Of the newest " (RUNS_MAX) " waiting runs." } }
        }
        }
    };
    Ok(body)
}

/// What kind of hook it is. The URL of a webhook is only for callers who may send to hooks.
fn kind(site: &Site, hook: &OpenHookJson) -> Markup {
    html! {
        @match &hook.webhook {
            Some(webhook) => { "webhook" (webhook_facts(site, webhook)) },
            None if hook.has_token => "by token",
            None => "by name",
        }
    }
}

/// The terms of a webhook.
pub(crate) fn webhook_facts(site: &Site, webhook: &WebhookJson) -> Markup {
    html! {
        p.muted {
            (webhook.methods.join(", "))
            @match (&webhook.secret, &webhook.hmac_header) {
                (Some(secret), Some(header)) => { "; HMAC in " (header) ", secret " (secret) },
                (Some(secret), None) => { "; Standard Webhooks, secret " (secret) },
                (None, _) => "; signatures are not checked",
            }
            "; responds " @match webhook.response.as_str() {
                "by_workflow" => "by the workflow",
                "fixed" => "with a fixed response",
                _ => "202",
            }
        }
        @if let Some(url) = &webhook.url { p { code.id { (url) } (copy(site, url, "the URL")) } }
    }
}
