//! Strings of runs are shown as they are, and never executed.

use throwaway::needs_browser;

use crate::setup::{Browser, TestSite, approval, hostile};

/// What could leave a text: elements, attributes, templates, terminals, bidirectional text, keys of objects.
const HOSTILE: &str = "\"><script>alert(3)</script></svg></template><img src=x onerror=alert(4)>' onmouseover='alert(5) \
    javascript:alert(6) \u{1b}]0;x\u{7}\u{1b}[31m __proto__ constructor \u{202e}gnp \u{0} 🦀 {{7*7}} ${7*7}";

/// What a page has that no page of the dashboard contains: unknown elements, inline code, links to scripts.
const INJECTED: &str = r#"(() => {
  const known = new Set("html head meta title link script body a nav svg use span ul li header form input kbd div button main footer dialog h1 h2 h3 dl dt dd p table caption thead tbody tr th td b time code section ol details summary aside rect line text circle path pattern defs pre label textarea select option datalist g polyline polygon".split(" "));
  const found = [];
  for (const element of document.querySelectorAll("*")) {
    if (!known.has(element.localName)) found.push(element.localName);
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on") || name === "style" || /^\s*(javascript|data):/i.test(value) && ["href", "src", "action"].includes(name)) found.push(`${element.localName} ${name}=${value}`);
    }
  }
  if (document.querySelector("script:not([src])")) found.push("inline script");
  if ({}.polluted !== undefined || window.alerted) found.push("executed");
  return found.join("\n");
})()"#;

#[tokio::test(flavor = "multi_thread")]
async fn hostile_strings_are_only_text_in_both_themes() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let paths = hostile_pages(&site).await;
    for theme in ["light", "dark"] {
        browser.theme(theme).await;
        for path in &paths {
            browser.go(&site.at(path)).await;
            assert_eq!(browser.text(INJECTED).await, "", "{path}");
        }
    }
    // Violations of the content security policy and errors of scripts are complaints.
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

/// Runs and schedules with hostile text in every field, and the pages that show them.
async fn hostile_pages(site: &TestSite) -> Vec<String> {
    let client = &site.client;
    let run =
        client.start(hostile, HOSTILE.to_owned()).key("<b>key</b>\"'").tag("</td>", "<i>").await.unwrap();
    let stuck = client.start_json("</svg><script>alert(1)</script>", 7, "{\"__proto__\":{\"polluted\":1}}");
    stuck.queue("<u>queue</u>").key("</textarea>").await.unwrap();
    let cancelled = client.start(approval, ()).await.unwrap();
    site.settle(&cancelled).await;
    cancelled.send("decision<b>", HOSTILE).await.unwrap();
    cancelled.cancel(HOSTILE).await.unwrap();
    let cancelled = site.settle(&cancelled).await;
    let large = client.start(approval, ()).await.unwrap();
    let large_payload = format!("<script>{}</script>", "x".repeat(3 * 1024 * 1024));
    large.send("other", &large_payload).await.unwrap();
    let large = site.settle(&large).await;
    let schedule = client.schedule("</a><script>x").every("1h").tag("<b>", "</b>");
    schedule.start_json("</svg><script>alert(1)</script>", 1, "\"</pre><script>\"").await.unwrap();
    let run = site.settle(&run).await;
    let mut paths: Vec<String> = [
        "/runs?text=%3Cscript%3E",
        "/runs?queue=%3Cu%3Equeue%3C%2Fu%3E",
        "/failures",
        "/failures?tab=stuck",
        "/hooks",
        "/queues",
        "/workers",
        "/workflows",
        "/workflows/%3C%2Fsvg%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E",
        "/schedules",
        "/schedules/%3C%2Fa%3E%3Cscript%3Ex",
        "/schedules/%3C%2Fa%3E%3Cscript%3Ex/edit",
        "/schedules/new",
        "/runs/new?workflow=%3C%2Fselect%3E%3Cimg%20src%3Dx%3E",
        "/runs",
    ]
    .map(str::to_owned)
    .into();
    for run in [run, cancelled, large] {
        for part in
            ["", "?view=table", "?op=0", "?op=1", "?all=1", "/events", "/data", "/children", "/cancel"]
        {
            paths.push(format!("/runs/{run}{part}"));
        }
    }
    paths
}
