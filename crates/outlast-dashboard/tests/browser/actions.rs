//! A person starts, answers, cancels and selects runs.

use throwaway::needs_browser;

use crate::setup::{Browser, TestSite, approval};

#[tokio::test(flavor = "multi_thread")]
async fn a_person_starts_a_run_answers_its_hook_and_cancels_another_with_the_keyboard() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    browser.go(&site.at("/a/b/runs/new?workflow=approval")).await;
    browser.tab_to("#input").await;
    browser.press("null").await;
    browser.tab_to("#key").await;
    browser.press("by-hand").await;
    browser.press("\u{e007}").await;
    browser.wait("document.querySelector('#run-head')?.textContent.includes('by-hand')").await;
    browser.tab_to("#why a[href*=send]").await;
    browser.press("\u{e007}").await;
    browser.tab_to("#payload").await;
    browser.press("true").await;
    browser.press("\u{e004}\u{e007}").await;
    browser.wait("document.querySelector('#run-head')?.textContent.includes('completed')").await;

    site.settle(&site.client.start(approval, ()).key("unwanted").await.unwrap()).await;
    browser.go(&site.at("/a/b/runs?open=true")).await;
    browser.press("j\u{e007}").await;
    browser.wait("document.querySelector('#run-head')?.textContent.includes('unwanted')").await;
    browser.tab_to("a[href$='/cancel']").await;
    browser.press("\u{e007}").await;
    browser.tab_to("#reason").await;
    browser.press("ordered twice").await;
    browser.press("\u{e007}").await;
    browser.wait("document.querySelector('#run-head')?.textContent.includes('cancelled')").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn selected_runs_are_paused_after_a_confirmation() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    for _ in 0..3 {
        site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    }
    browser.go(&site.at("/runs")).await;
    browser.press("jxjx").await;
    browser.click("#selection button[value=pause]").await;
    browser.wait("document.querySelector('h1').textContent === 'Pause 2 runs?'").await;
    browser.click("form[method=post] button").await;
    browser.wait("document.querySelector('h1').textContent.includes('2 of 2 runs done')").await;
    browser.go(&site.at("/runs?mark=paused")).await;
    assert_eq!(browser.js("document.querySelectorAll('tbody tr').length").await, 2);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_numbers_are_shown_and_copied_without_change() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let input = r#"{"id":1970670598291982290}"#;
    let run = site.client.start_json("unknown", 1, input).await.unwrap().id();
    browser.go(&site.at(&format!("/runs/{run}"))).await;
    assert!(
        browser.text("document.querySelector('#panel').textContent").await.contains("1970670598291982290")
    );
    assert_eq!(browser.text("document.querySelector('#panel [data-copy]').dataset.copy").await, input);
    browser.close().await;
}
