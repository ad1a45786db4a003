//! The frame of every page: navigation, header, footer.

use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::parts::icon;
use crate::site::Site;

/// The screens of the navigation: path, name, icon, key. A screen appears here when it exists.
pub(crate) const SCREENS: [(&str, &str, &str, &str); 8] = [
    ("/runs", "Runs", "runs", "r"),
    ("/failures", "Failures", "failed", "f"),
    ("/workflows", "Workflows", "workflow", "w"),
    ("/schedules", "Schedules", "schedule", "s"),
    ("/hooks", "Hooks", "hook", "h"),
    ("/queues", "Queues", "queue", "q"),
    ("/workers", "Workers", "worker", "k"),
    ("/settings", "Settings", "settings", "o"),
];

/// A page.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) body: Markup,
    /// The address of the stream of changes, if the page is live.
    pub(crate) live: Option<String>,
    /// Whether the page has a timeline.
    pub(crate) has_timeline: bool,
    /// Whether the page has no navigation.
    pub(crate) is_bare: bool,
}

impl Page {
    /// A page that does not change by itself.
    pub(crate) fn new(title: impl Into<String>, body: Markup) -> Self {
        Self { title: title.into(), body, live: None, has_timeline: false, is_bare: false }
    }

    /// The same page, kept current by a stream.
    pub(crate) fn live(mut self, address: String) -> Self {
        self.live = Some(address);
        self
    }

    /// The same page, with the script of the timeline.
    pub(crate) fn with_timeline(mut self) -> Self {
        self.has_timeline = true;
        self
    }

    /// The same page, without navigation: for those who may not see anything yet.
    pub(crate) fn bare(mut self) -> Self {
        self.is_bare = true;
        self
    }

    /// The response with the page.
    pub(crate) fn response(self, site: &Site) -> Response {
        Html(self.render(site).into_string()).into_response()
    }

    fn render(&self, site: &Site) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-theme=[site.theme] data-base={ (site.prefix) "/" } {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Outlast" @if let Some(name) = &site.environment { " " (name) } }
                    link rel="icon" type="image/svg+xml" href=(site.favicon());
                    link rel="stylesheet" href=(site.style());
                    script type="module" src=(site.script()) {}
                    @if self.has_timeline { script type="module" src=(site.timeline_script()) {} }
                }
                body class=[self.is_bare.then_some("bare")] data-live=[self.live.as_ref()] data-rev=(site.now.as_micros()) {
                    a.skip href="#main" { "Skip to content" }
                    @if !self.is_bare {
                        (rail(site))
                        (header(site, self.live.is_some()))
                    }
                    main #main tabindex="-1" {
                        @if site.is_read_only && !site.caller.actor.is_empty() {
                            p.banner { (icon(site, "lock")) "Read-only: nothing can be changed here." }
                        }
                        (self.body)
                    }
                    @if !self.is_bare { (footer(site)) }
                    div #toast role="status" aria-live="polite" {}
                    (help())
                }
            }
        }
    }
}

fn rail(site: &Site) -> Markup {
    html! {
        nav.rail aria-label="Screens" {
            a.brand href=(site.href("/runs")) aria-label="Outlast" { (icon(site, "logo")) span { "Outlast" } }
            ul {
                @for (path, name, picture, key) in SCREENS {
                    @let is_current = site.path.starts_with(path);
                    li {
                        a href=(site.href(path)) aria-current=[is_current.then_some("page")] data-go=(key) title=(name) {
                            (icon(site, picture)) span { (name) }
                        }
                    }
                }
            }
        }
    }
}

fn header(site: &Site, is_live: bool) -> Markup {
    html! {
        header.top {
            form.search role="search" action=(site.href("/search")) {
                (icon(site, "search"))
                input type="search" name="q" aria-label="Search runs" autocomplete="off"
                    placeholder="Run id, key, workflow…" data-search;
                kbd.js { "/" }
            }
            div.space {}
            @if let Some(name) = &site.environment {
                span.environment data-kind=[environment_kind(name)] title="Environment" { (name) }
            }
            @if is_live {
                button #live type="button" class="quiet js" aria-pressed="false" data-live-toggle
                    title="Pause live updates (p)" { span.dot {} span.word { "live" } }
            }
            button type="button" class="quiet js" data-help title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts" { "?" }
            button type="button" class="quiet js" data-theme-toggle title="Theme (t)" aria-label="Switch theme" {
                (icon(site, "theme"))
            }
            @if site.has_session {
                form method="post" action=(site.href("/logout")) {
                    button.quiet title={ "Log out " (site.caller.actor) } aria-label="Log out" { (icon(site, "logout")) }
                }
            }
        }
    }
}

/// The environments that have a colour of their own.
fn environment_kind(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    ["prod", "stag"].into_iter().find(|kind| name.starts_with(kind))
}

fn footer(site: &Site) -> Markup {
    html! {
        footer.foot {
            @if site.caller.actor.is_empty() { span { "Outlast" } }
            @else {
                span { (site.world.kind) @if !site.world.place.is_empty() { " · " (site.world.place) } }
                span { (site.caller.actor) " · " (site.caller.role) }
                span { "Outlast " (site.world.library) }
            }
        }
    }
}

/// The list of keys. No key acts on a run.
fn help() -> Markup {
    let keys = [
        ("/", "search"),
        ("j k", "next, previous row"),
        ("Enter", "open the row"),
        ("x", "select the row"),
        ("g r", "runs; f failures, w workflows, s schedules, h hooks, q queues, k workers"),
        ("1 … 4", "tabs of a run"),
        ("f n", "next failed, next open operation"),
        ("+ - 0", "zoom in, zoom out, all of it"),
        ("← →", "move the zoomed part"),
        ("i", "idle time to scale"),
        ("p", "pause live updates"),
        ("t", "theme"),
        ("c", "copy the id"),
        ("Esc", "close"),
    ];
    html! {
        dialog #help aria-label="Keyboard shortcuts" {
            h2 { "Keyboard shortcuts" }
            dl {
                @for (key, effect) in keys { dt { @for part in key.split(' ') { kbd { (part) } " " } } dd { (effect) } }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}
