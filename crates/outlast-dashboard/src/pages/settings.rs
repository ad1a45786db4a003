//! Settings of the browser, and facts about the server.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;
use outlast_api::{Action, Role};

use crate::app::App;
use crate::site::{Site, THEME_COOKIE};
use crate::ui::layout::Page;
use crate::ui::parts::moment;
use crate::ui::sentence::with_code;

/// The themes: value and name.
const THEMES: [(&str, &str); 3] = [("system", "Like the system"), ("light", "Light"), ("dark", "Dark")];

/// `GET /settings`.
pub(crate) async fn show(State(_): State<App>, site: Site) -> Response {
    let current = site.theme.unwrap_or("system");
    let world = &site.world;
    let facts = [
        ("World", world.kind.clone()),
        ("Place", world.place.clone()),
        ("Durability", world.durability.clone()),
        ("Changes are noticed", world.hints.clone()),
        ("Clock", moment(world.now)),
        ("Outlast", world.library.clone()),
        ("You", format!("{} ({})", site.caller.actor, site.caller.role)),
    ];
    let body = html! {
        div.title { h1 { "Settings" } }
        div.columns {
            section {
                h2 { "Theme" }
                form.themes action=(site.href("/settings/theme")) {
                    @for (value, name) in THEMES {
                        label { input type="radio" name="theme" value=(value) checked[value == current]; (name) }
                    }
                    button.button { "Save" }
                }
                div.js-block {
                    h2 { "Times" }
                    p {
                        label {
                            "Show them "
                            select data-times {
                                option value="relative" { "relative to now" }
                                option value="local" { "in the zone of this browser" }
                                option value="utc" { "in UTC" }
                            }
                        }
                    }
                }
                h2 { "Keys" }
                p.js-block {
                    label.check { input type="checkbox" data-keys; "Single-key shortcuts" }
                }
                p.muted { "Press " kbd { "?" } " for the list. No key acts on a run." }
            }
            section {
                h2 { "This server" }
                dl.facts { @for (name, value) in facts { dt { (name) } dd { (with_code(&value)) } } }
                @if site.caller.role.includes(Role::Admin) { p { a href=(site.href("/audit")) { "Audit" } ": who did what" } }
                @if site.may(Action::Prune) { p { a.button href=(site.href("/settings/prune")) { "Delete old runs…" } } }
            }
        }
    };
    Page::new("Settings", body).response(&site)
}

/// `GET /settings/theme`: it changes nothing but a cookie of the browser, so a read-only dashboard has it too.
pub(crate) async fn set_theme(State(_): State<App>, site: Site) -> Response {
    let theme = match site.query.strip_prefix("theme=") {
        Some("light") => "light",
        Some("dark") => "dark",
        _ => "system",
    };
    let path = if site.prefix.is_empty() { "/" } else { &site.prefix };
    let cookie = format!("{THEME_COOKIE}={theme}; Path={path}; Max-Age=31536000; SameSite=Strict");
    let mut response = Redirect::to(&site.href("/settings")).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
