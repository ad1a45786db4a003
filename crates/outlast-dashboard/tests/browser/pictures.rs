//! Takes the pictures of the documentation: `cargo xtask pictures`.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::setup::Browser;

/// The pictures: name, theme, width, height, the search that finds the run (or none), and the rest of the address.
const PICTURES: [(&str, &str, u32, u32, &str, &str); 6] = [
    ("dashboard-runs", "light", 1440, 900, "", "/runs"),
    ("dashboard-runs-dark", "dark", 1440, 900, "", "/runs"),
    ("dashboard-run", "light", 1440, 900, "trip-lisbon", "?op=4"),
    ("dashboard-run-dark", "dark", 1440, 900, "trip-lisbon", "?op=4"),
    ("dashboard-sleep", "light", 1440, 900, "rating-2", "?op=1"),
    ("dashboard-schedules-dark", "dark", 1440, 900, "", "/schedules"),
];

/// All screens, for people who judge how they look: name, the search that finds the run, and the rest of the address.
const SCREENS: [(&str, &str, &str); 36] = [
    ("runs", "", "/runs"),
    ("runs-failed", "", "/runs?status=failed"),
    ("runs-none", "", "/runs?text=nothing-fits"),
    ("start", "", "/runs/new?workflow=checkout"),
    ("failures", "", "/failures"),
    ("stuck", "", "/failures?tab=stuck"),
    ("workflows", "", "/workflows"),
    ("workflow", "", "/workflows/checkout"),
    ("schedules", "", "/schedules"),
    ("schedule", "", "/schedules/nightly-report"),
    ("schedule-new", "", "/schedules/new"),
    ("hooks", "", "/hooks"),
    ("queues", "", "/queues"),
    ("queue", "", "/queues/gift-wrap"),
    ("workers", "", "/workers"),
    ("audit", "", "/audit"),
    ("settings", "", "/settings"),
    ("prune", "", "/settings/prune"),
    ("bulk", "", "/runs/bulk?bulk=pause&workflow=approval"),
    ("not-found", "", "/nothing"),
    ("run", "trip-lisbon", "?op=4"),
    ("run-table", "trip-lisbon", "?view=table"),
    ("run-events", "trip-lisbon", "/events"),
    ("run-data", "import-3", "/data"),
    ("run-forked", "newest:trip", ""),
    ("run-children", "fulfilment-1", "/children"),
    ("run-family", "fulfilment-1", "?expand=1&expand=2"),
    ("run-sleep", "rating-2", "?op=1"),
    ("run-to-scale", "rating-2", "?axis=linear"),
    ("run-long", "catalogue-spring", ""),
    ("run-hook", "approval-61", "?op=1"),
    ("run-stuck", "loyalty-12", ""),
    ("operation", "trip-lisbon", "/ops/4"),
    ("send", "approval-61", "/send?op=1"),
    ("cancel", "approval-61", "/cancel"),
    ("fork", "trip-lisbon", "/fork?before=4"),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it writes into docs/images; `cargo xtask pictures` runs it"]
async fn pictures() {
    let (site, folder) = place();
    let browser = Browser::open().await;
    for (name, theme, width, height, key, rest) in PICTURES {
        let address = address(&browser, &site, key, rest).await;
        take(&browser, &folder.join(format!("{name}.png")), theme, (width, height), &address).await;
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "people look at its pictures; `cargo xtask pictures --all FOLDER` runs it"]
async fn all_screens() {
    let (site, folder) = place();
    let browser = Browser::open().await;
    for (name, key, rest) in SCREENS {
        let address = address(&browser, &site, key, rest).await;
        for theme in ["light", "dark"] {
            for (width, height) in [(1440, 900), (390, 844)] {
                let file = folder.join(format!("{name}-{theme}-{width}.png"));
                take(&browser, &file, theme, (width, height), &address).await;
                // The gate is the layout; people judge the rest.
                let shown = browser.text("document.documentElement.scrollWidth").await;
                assert_eq!(shown, width.to_string(), "{name} is wider than its window");
            }
        }
    }
    browser.close().await;
}

/// The address of the demonstration, and the folder for the pictures.
fn place() -> (String, PathBuf) {
    let folder = std::env::var("OUTLAST_PICTURES_FOLDER").unwrap();
    (std::env::var("OUTLAST_PICTURES_SITE").unwrap(), PathBuf::from(folder))
}

/// The address of a page. A search for the key of one run opens it.
async fn address(browser: &Browser, site: &str, key: &str, rest: &str) -> String {
    if key.is_empty() {
        return format!("{site}{rest}");
    }
    if let Some(workflow) = key.strip_prefix("newest:") {
        browser.go(&format!("{site}/runs?workflow={workflow}")).await;
        return format!("{}{rest}", browser.text("document.querySelector('.c-run a').href").await);
    }
    browser.go(&format!("{site}/search?q={key}")).await;
    format!("{}{rest}", browser.text("location.href.split('?')[0]").await)
}

async fn take(browser: &Browser, file: &Path, theme: &str, (width, height): (u32, u32), address: &str) {
    browser.theme(theme).await;
    browser.window(width, height).await;
    browser.go(address).await;
    browser.wait("!document.querySelector('#live') || document.querySelector('#live').dataset.state").await;
    let format = json!({ "format": "png", "optimizeForSpeed": false });
    let shown = browser.cdp("Page.captureScreenshot", format).await;
    std::fs::write(file, decoded(shown["data"].as_str().unwrap())).unwrap();
}

/// The bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for part in text.chunks(4) {
        let bits = part.iter().fold(0, |bits, byte| bits << 6 | value(*byte)) << (6 * (4 - part.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..part.len()]);
    }
    bytes
}
