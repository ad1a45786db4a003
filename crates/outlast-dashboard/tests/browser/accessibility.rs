//! Names of controls, landmarks, headings, focus and narrow windows, on every screen.

use serde_json::json;
use throwaway::{axe, needs_browser, skipped};

use crate::screen_paths::{self, SCHEDULE};
use crate::setup::{Browser, TestSite};

/// What is wrong with a page, as text; empty if nothing is.
const AUDIT: &str = r#"(() => {
  const found = [];
  const nameOf = (element) => (element.getAttribute("aria-label") ?? "") + element.textContent + (element.title ?? "") + [...(element.labels ?? [])].map((label) => label.textContent).join("");
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true });
  for (const element of document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")) {
    if (isShown(element) && !nameOf(element).trim()) found.push("no name: " + element.outerHTML.slice(0, 120));
  }
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, index) => ids.indexOf(id) !== index))) found.push("twice: #" + id);
  for (const name of ["main", "nav", "header"]) if (!document.querySelector(name)) found.push("no " + name);
  if (document.querySelectorAll("h1").length !== 1) found.push("headings of the first level: " + document.querySelectorAll("h1").length);
  if (!document.documentElement.lang || !document.title) found.push("no language or title");
  for (const table of document.querySelectorAll("table")) if (!table.caption || !table.querySelector("th[scope=col]")) found.push("a table without caption or headers");
  for (const reference of ["aria-describedby", "aria-labelledby", "for"]) {
    for (const element of document.querySelectorAll(`[${reference}]`)) if (!document.getElementById(element.getAttribute(reference))) found.push(`${reference} of nothing: ${element.outerHTML.slice(0, 120)}`);
  }
  for (const element of document.querySelectorAll("[role=img], svg[role=img]")) if (!element.getAttribute("aria-label")) found.push("a picture without a name");
  const parts = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const channel = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => { for (let at = element; at; at = at.parentElement) { const color = getComputedStyle(at).backgroundColor; if (color.startsWith("rgb(")) return parts(color); } return [255, 255, 255]; };
  for (const element of document.querySelectorAll("main *, nav *, header *, footer *")) {
    const own = [...element.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    const color = getComputedStyle(element).color;
    if (!own || !isShown(element) || element.closest("svg, .skipped, [hidden], .hidden") || !color.startsWith("rgb(")) continue;
    const [one, other] = [light(parts(color)), light(behind(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.push(`contrast ${ratio.toFixed(2)}: ${element.outerHTML.slice(0, 100)}`);
  }
  for (const entry of performance.getEntriesByType("resource")) if (new URL(entry.name).origin !== location.origin) found.push("from elsewhere: " + entry.name);
  return found.slice(0, 8).join("\n");
})()"#;

async fn paths(site: &TestSite) -> Vec<String> {
    let client = &site.client;
    client.schedule(SCHEDULE).every("1h").start_json("nap", 1, "null").await.unwrap();
    let mut paths = screen_paths::paths(&site.runs().await);
    paths.push("/nothing".into());
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn every_screen_has_names_landmarks_and_contrast_in_both_themes() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let paths = paths(&site).await;
    for theme in ["light", "dark"] {
        browser.theme(theme).await;
        for path in &paths {
            browser.go(&site.at(path)).await;
            let found = browser.text(AUDIT).await;
            assert!(found.is_empty(), "{path} ({theme}):\n{found}");
        }
    }
    browser.close().await;
}

/// Check 28: axe-core reports no violation of WCAG 2.2 AA and none of its own rules of good practice.
#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_nothing_on_any_screen_in_both_themes() {
    needs_browser!();
    if let Some(reason) = axe::missing() {
        return skipped::report("axe_finds_nothing_on_any_screen_in_both_themes", &reason);
    }
    let script = axe::source().unwrap();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let paths = paths(&site).await;
    // A theme changes only colours.
    let colours = "{ runOnly: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] } }";
    for (theme, rules) in [("light", "{}"), ("dark", colours)] {
        browser.theme(theme).await;
        for path in &paths {
            browser.go(&site.at(path)).await;
            // Commands of the driver are not subject to the page's policy.
            browser.cdp("Runtime.evaluate", json!({ "expression": script })).await;
            let run = format!(
                "axe.run(document, {rules}).then((found) => found.violations.flatMap((rule) => rule.nodes.slice(0, 3).map((node) =>
                 rule.id + ': ' + node.html.slice(0, 160) + ' ' + (node.any[0]?.message ?? ''))).join('\\n'))"
            );
            let options = json!({ "expression": run, "awaitPromise": true, "returnByValue": true });
            let found = browser.cdp("Runtime.evaluate", options).await;
            assert_eq!(found["result"]["value"], "", "{path} ({theme}): {found:#}");
        }
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_wider_than_a_narrow_window() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let paths = paths(&site).await;
    browser.window(320, 640).await;
    // A window of 320 px is also one of 1,280 px at a zoom of 400 %.
    for path in &paths {
        browser.go(&site.at(&format!("/a/b{path}"))).await;
        // Not `innerWidth`: a browser of a phone enlarges it for a page that is too wide.
        let width = browser.text("document.documentElement.scrollWidth").await;
        assert_eq!(width, "320", "{path}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_moves_the_focus_where_it_can_be_seen() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    site.runs().await;
    browser.go(&site.at("/runs")).await;
    browser.press("\u{e004}").await;
    assert_eq!(browser.text("document.activeElement.textContent").await, "Skip to content");
    for _ in 0..20 {
        browser.press("\u{e004}").await;
        let outline = browser.text("getComputedStyle(document.activeElement).outlineStyle").await;
        let element = browser.text("document.activeElement.outerHTML.slice(0, 120)").await;
        assert_ne!(outline, "none", "{element}");
    }
    browser.press("/").await;
    assert_eq!(browser.text("document.activeElement.name").await, "q");
    browser.close().await;
}
