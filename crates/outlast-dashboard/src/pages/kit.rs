//! All components on one page, in debug builds: for those who change the style sheet.

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use outlast_api::{Problem, ProblemCode, Rfc3339};
use serde_json::value::RawValue;

use super::problem::problem_box;
use crate::app::App;
use crate::site::Site;
use crate::ui::badge::badge;
use crate::ui::fields::Field;
use crate::ui::layout::Page;
use crate::ui::parts::{ago, copy, empty, icon, tag};
use crate::ui::payload::json_tree;
use crate::ui::pictures::stacked;

/// All statuses, marks and flags.
const STATUSES: [&str; 13] = [
    "pending",
    "running",
    "waiting",
    "stuck",
    "completed",
    "failed",
    "cancelled",
    "paused",
    "compensating",
    "compensated",
    "quarantined",
    "retrying",
    "cancelling",
];

/// `GET /_kit`.
pub(crate) async fn show(State(_): State<App>, site: Site) -> Response {
    let body = html! {
        div.title { h1 { "Components" } }
        (part("Badges", html! { @for status in STATUSES { (badge(&site, status)) " " } }))
        (part("Buttons", buttons(&site)))
        (part("Fields", fields()))
        (part("Ids, times and tags", html! {
            span.id { "run_01M7Q7988TK3X7GXMZHWB72P84" } (copy(&site, "run_01M7Q7988TK3X7GXMZHWB72P84", "the id")) " "
            (ago(&site, Rfc3339(site.now))) " " (tag(&site, "customer", "ada")) " " kbd { "?" }
        }))
        (part("Chips and tabs", html! {
            nav.counts aria-label="Chips" { a.chip href="#" aria-current="true" { "All" b { "240" } } a.chip href="#" { span.s-failed { (icon(&site, "failed")) } "failed" b { "3" } } }
            nav.tabs aria-label="Tabs" { a href="#" aria-current="page" { "Timeline" } a href="#" { "Events" } }
            span.filter { "workflow: checkout" (icon(&site, "close")) }
        }))
        (part("Notices", html! {
            p.banner { (icon(&site, "lock")) "Read-only: nothing can be changed here." }
            p.done { "Requested. The page follows what happens." }
            (problem_box(&site, &Problem::new(ProblemCode::Unavailable, "the world does not respond")))
        }))
        (part("Payload", json()))
        (part("Pictures", stacked(&[("completed", 80), ("failed", 15), ("cancelled", 5)], "Outcomes")))
        (part("Empty", empty(&site, "hook", "No run waits for a hook", html! { p { "A workflow opens one." } })))
    };
    Page::new("Components", body).response(&site)
}

fn part(title: &str, content: Markup) -> Markup {
    html! { section.kit { h2 { (title) } (content) } }
}

fn buttons(site: &Site) -> Markup {
    html! {
        a.button href="#" { "Plain" } " "
        a.button.primary href="#" { (icon(site, "start")) "Primary" } " "
        button.button.danger type="button" { "Danger" } " "
        button.button type="button" aria-busy="true" { "Busy" } " "
        button.quiet type="button" { "Quiet" }
    }
}

fn fields() -> Markup {
    let plain = Field { name: "plain", label: "Plain", hint: "A hint.", value: "text", error: None };
    html! {
        (plain.line())
        (Field { name: "wrong", error: Some("This is not a time."), ..plain }.line())
        (Field { name: "json", label: "JSON", value: "{}", ..plain }.lines(3))
    }
}

fn json() -> Markup {
    let text = r#"{"id":1970670598291982290,"name":"Ada","tags":["a","b"],"nested":{"deep":{"deeper":true}},"none":null}"#;
    match serde_json::from_str::<Box<RawValue>>(text) {
        Ok(json) => json_tree(&json),
        Err(_) => html! {},
    }
}
