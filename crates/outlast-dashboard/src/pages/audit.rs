//! The audit: who did what, and who was refused.

use axum::extract::State;
use maud::{Markup, html};
use outlast_api::{AuditFilter, AuditJson, Problem, ProblemCode, QueryPairs, Role};

use super::problem::{Answer, OnSite};
use crate::access::forbidden;
use crate::app::App;
use crate::site::Site;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, empty, pager, run_link};

/// `GET /audit`.
pub(crate) async fn show(State(app): State<App>, site: Site) -> Answer {
    check_admin(&site).on(&site)?;
    let filter = AuditFilter::from_query(&site.query).on(&site)?;
    let page = app.service.audit(&filter).await.on(&site)?;
    let older = page.next.map(|cursor| {
        let mut next = filter.clone();
        next.page.cursor = Some(cursor);
        site.href(&format!("/audit?{}", next.to_query()))
    });
    let newest = filter.page.cursor.is_some().then(|| site.href("/audit"));
    let body = html! {
        p.crumbs { a href=(site.href("/settings")) { "Settings" } }
        div.title { h1 { "Audit" } }
        p.muted {
            "Changes through servers, and refusals, of the last 90 days. Who started a run or sent to it is in its history. "
            a href=(site.href("/audit?outcome=refused")) { "Only refusals" }
            @if !site.query.is_empty() { " · " a href=(site.href("/audit")) { "all" } }
        }
        @if page.items.is_empty() {
            (empty(&site, "lock", "No records", html! { p { "Nothing was changed or refused, or not within these filters." } }))
        } @else {
            table {
                caption.hidden { "Audit" }
                thead {
                    tr {
                        th scope="col" { "When" } th scope="col" { "Actor" } th scope="col" { "Role" }
                        th scope="col" { "Action" } th scope="col" { "Target" } th scope="col" { "Outcome" }
                        th scope="col" { "Reason" } th scope="col" { "Address" }
                    }
                }
                tbody { @for record in &page.items { (row(&site, record)) } }
            }
            (pager(newest, older, ("newest", "older")))
        }
    };
    Ok(Page::new("Audit", body).response(&site))
}

fn check_admin(site: &Site) -> Result<(), Problem> {
    if site.caller.role.includes(Role::Admin) {
        return Ok(());
    }
    Err(forbidden(Role::Admin, format!("the role {} does not include the audit", site.caller.role)))
}

fn row(site: &Site, record: &AuditJson) -> Markup {
    let of_actor = AuditFilter { actor: Some(record.actor.clone()), ..AuditFilter::default() };
    let is_bad = record.code.as_deref() == Some(ProblemCode::Forbidden.as_str());
    html! {
        tr {
            td { (ago(site, record.at)) }
            td.clip { a href=(site.href(&format!("/audit?{}", of_actor.to_query()))) { (record.actor) } }
            td { @if let Some(role) = record.role { (role) } }
            td.clip title=(record.route) { (record.action) }
            td.clip {
                @if let Some(run) = record.run { (run_link(site, run)) " " }
                @if let Some(target) = &record.target { (target) }
            }
            td title=[record.request.as_ref()] class=[is_bad.then_some("bad")] {
                (record.outcome) @if let Some(code) = &record.code { " " code { (code) } }
            }
            td.clip title=[record.reason.as_ref()] { @if let Some(reason) = &record.reason { (reason) } }
            td { @if let Some(address) = &record.address { (address) } }
        }
    }
}
