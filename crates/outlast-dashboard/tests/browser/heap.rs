//! A page that stays open does not grow: `cargo xtask soak --dashboard`.

use std::time::Duration;

use serde_json::json;

use crate::setup::{Browser, TestSite, approval};

/// Changes between two looks at the page, which shows them within a second.
const CHANGES: u64 = 5;

/// How much the heap of the page may grow.
const GROWTH_BYTES_MAX: f64 = 5.0 * 1024.0 * 1024.0;

/// Check 25: ten minutes with five changes per second.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it takes ten minutes; `cargo xtask soak --dashboard` runs it"]
#[allow(clippy::disallowed_methods, reason = "the check is about real time")]
async fn a_page_that_stays_open_does_not_grow() {
    let minutes: u64 = std::env::var("OUTLAST_SOAK_MINUTES").map_or(10, |minutes| minutes.parse().unwrap());
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    browser.go(&site.at("/runs")).await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    // The first changes create what is kept.
    let mut first = None;
    for round in 0..minutes * 60 + 10 {
        let begin = std::time::Instant::now();
        for number in 0..CHANGES {
            let run = site.client.start(approval, ()).key(format!("{round}-{number}")).await.unwrap();
            run.cancel("soak").await.unwrap();
        }
        browser.wait_for_revision(&site).await;
        if round == 10 {
            first = Some(heap(&browser).await);
        }
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed())).await;
    }
    let (first, last) = (first.unwrap(), heap(&browser).await);
    let nodes = browser.js("document.querySelectorAll('*').length").await;
    println!("heap {first} B at first, {last} B after {minutes} min; {nodes} elements");
    assert!(last - first <= GROWTH_BYTES_MAX, "the heap has grown from {first} to {last} bytes");
    browser.close().await;
}

/// The bytes in use after everything that is not used was freed.
async fn heap(browser: &Browser) -> f64 {
    browser.cdp("HeapProfiler.collectGarbage", json!({})).await;
    browser.cdp("Runtime.getHeapUsage", json!({})).await["usedSize"].as_f64().unwrap()
}
