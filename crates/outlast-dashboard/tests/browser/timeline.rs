//! What the timeline draws, zooms and loads.

use std::time::Duration;

use outlast_api::WakeRequest;
use outlast_dashboard::{Caller, Service};
use throwaway::needs_browser;

use crate::setup::{Browser, TestSite, long, nap, patient};

#[tokio::test(flavor = "multi_thread")]
async fn three_failed_attempts_are_numbered_bars_with_pauses_and_the_next_moment() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let run = site.settle(&site.client.start(patient, ()).await.unwrap()).await;
    let service = Service::new(site.client.clone());
    for attempts in 2..4 {
        service.wake(&Caller::local(), run, &WakeRequest { op: Some(0) }).await.unwrap();
        while service.operation(run, 0).await.unwrap().attempts.len() < attempts + 1 {
            tokio::task::yield_now().await;
        }
    }
    browser.go(&site.at(&format!("/runs/{run}?axis=linear"))).await;
    let count = async |selector: &str| {
        browser.js(&format!("document.querySelectorAll('#op-0 {selector}').length")).await
    };
    assert_eq!(count("rect.b-failed").await, 3);
    assert_eq!(count("text.number").await, 3);
    assert_eq!(count("line.pause").await, 3, "two between the attempts, and one before the next");
    assert_eq!(count("use[href=\"#tl-next\"]").await, 1);
    assert_eq!(
        browser
            .text("[...document.querySelectorAll('#op-0 text.number')].map((text) => text.textContent)")
            .await,
        "1,2,3"
    );
    browser.go(&site.at(&format!("/runs/{run}?view=table"))).await;
    let row = browser.text("document.querySelector('#op-0').innerText").await;
    for words in [
        "attempt 1",
        "attempt 2",
        "attempt 3",
        "failed after",
        "the bank does not respond",
        "attempt 4 is due",
    ] {
        assert!(row.contains(words), "{words} in {row}");
    }
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_sleep_is_compressed_until_it_is_shown_to_scale() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let run = site.settle(&site.client.start(nap, ()).await.unwrap()).await;
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    browser.wait("document.querySelector('.axis text.gap')").await;
    let label = browser
        .text("[...document.querySelectorAll('.axis text.gap')].map((text) => text.textContent)")
        .await;
    assert!(label.contains("2d") || label.contains("3d"), "{label}");
    browser.press("i").await;
    browser
        .wait("location.search.includes('axis=linear') && !document.querySelector('.axis text.gap')")
        .await;
    browser.press("i").await;
    browser.wait("document.querySelector('.axis text.gap')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn zoom_is_in_the_address_and_survives_the_choice_of_a_row() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let run = site.settle(&site.client.start(nap, ()).await.unwrap()).await;
    browser.go(&site.at(&format!("/runs/{run}?axis=linear"))).await;
    let before =
        browser.text("[...document.querySelectorAll('.axis text')].map((text) => text.textContent)").await;
    browser.press("+").await;
    browser.wait("location.search.includes('zoom=')").await;
    browser.wait(&format!("[...document.querySelectorAll('.axis text')].map((text) => text.textContent).join() !== '{before}'")).await;
    browser.click("#op-0 a.label").await;
    browser.wait("location.search.includes('op=0') && location.search.includes('zoom=')").await;
    browser.press("0").await;
    browser.wait("!location.search.includes('zoom=')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_operations_are_loaded_in_blocks_and_stay_few_elements() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let run = site.settle(&site.client.start(long, 10_000).await.unwrap()).await;
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    let elements = browser.js("document.querySelectorAll('*').length").await.as_u64().unwrap();
    assert!(elements <= 2_500, "{elements} elements");
    browser.wait("document.querySelector('#timeline').dataset.drawn").await;
    browser.js("scrollTo(0, document.body.scrollHeight)").await;
    browser.wait("document.querySelector('#op-9999')").await;
    let elements = browser.js("document.querySelectorAll('*').length").await.as_u64().unwrap();
    assert!(elements <= 2_500, "{elements} elements at the end");
    assert!(
        browser.js("document.querySelectorAll('[data-rows] > li').length").await.as_u64().unwrap() <= 120
    );
    browser.js("scrollTo(0, 0)").await;
    browser.wait("document.querySelector('#op-0')").await;
    browser.press("f").await;
    browser.wait("document.activeElement.closest('li')?.id === 'op-7000'").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    let first_rows = browser.js("performance.getEntriesByType('paint').find((entry) => entry.name === 'first-contentful-paint').startTime").await;
    let first_rows = Duration::from_millis(first_rows.as_f64().unwrap() as u64);
    println!("first rows after {first_rows:?} in a debug build");
    browser.close().await;
}
