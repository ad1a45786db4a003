//! Pages follow the world, and leave alone what a person is doing.

use throwaway::needs_browser;

use crate::setup::{Browser, TestSite, approval, checkout};

#[tokio::test(flavor = "multi_thread")]
async fn focus_selection_and_dialog_survive_a_hundred_live_changes() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    for _ in 0..3 {
        site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    }
    browser.go(&site.at("/runs")).await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    browser.press("jx").await;
    browser.press("jx").await;
    assert_eq!(browser.text("document.querySelector('[data-count]').textContent").await, "2 selected");
    let focused = browser.text("document.activeElement.href").await;
    browser.press("?").await;
    browser.wait("document.querySelector('#help').open").await;
    for number in 0..100 {
        let run = site.client.start(checkout, 100 + number).await.unwrap();
        site.settle(&run).await;
    }
    browser.wait_for_revision(&site).await;
    browser.wait("document.querySelector('.new-rows')").await;
    browser.wait("document.querySelector('#counts').textContent.includes('103')").await;
    assert_eq!(browser.js("document.querySelector('#help').open").await, true);
    assert_eq!(browser.js("document.querySelectorAll('input[name=run]:checked').length").await, 2);
    browser.press("\u{e00c}").await;
    browser.wait("!document.querySelector('#help').open").await;
    assert_eq!(browser.text("document.activeElement.href").await, focused, "the row has the focus again");
    browser.click(".new-rows").await;
    browser.wait("document.querySelectorAll('tbody tr').length === 50").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_followed_without_a_reload() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let run = site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    browser.go(&site.at(&format!("/a/b/runs/{run}?op=0"))).await;
    browser.wait("document.querySelector('#why').textContent.includes('decision')").await;
    browser.js("document.body.classList.add('same-page')").await;
    site.client.send(run, "decision", &true).await.unwrap();
    browser.wait("document.querySelector('#run-head').textContent.includes('completed')").await;
    browser.wait("document.querySelector('#panel').textContent.includes('true')").await;
    browser.wait("document.querySelector('#live').textContent === 'ended'").await;
    assert_eq!(browser.js("document.body.classList.contains('same-page')").await, true);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_server_is_shown_and_recovered_from_without_a_reload() {
    needs_browser!();
    let (mut site, browser) = (TestSite::open().await, Browser::open().await);
    site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    browser.go(&site.at("/runs")).await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    browser.js("document.body.classList.add('same-page')").await;
    site.stop();
    browser.wait("document.querySelector('#live').textContent.startsWith('not live since')").await;
    assert_eq!(browser.js("document.querySelectorAll('tbody tr').length").await, 1, "the data is kept");
    site.start().await;
    site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    browser.wait("document.querySelectorAll('tbody tr').length === 2").await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    assert_eq!(browser.js("document.body.classList.contains('same-page')").await, true);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_remembered() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    browser.go(&site.at("/runs")).await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    browser.press("p").await;
    browser.wait("document.querySelector('#live').textContent === 'paused'").await;
    site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    browser.go(&site.at("/runs")).await;
    browser.wait("document.querySelector('#live').textContent === 'paused'").await;
    browser.click("#live").await;
    browser.wait("document.querySelector('#live').dataset.state === 'on'").await;
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_shown_as_the_person_chose() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    site.settle(&site.client.start(approval, ()).await.unwrap()).await;
    let time = "document.querySelector('.c-started time').textContent";
    browser.go(&site.at("/runs")).await;
    browser.wait(&format!("/now|ago/.test({time})")).await;
    browser.go(&site.at("/settings")).await;
    browser.wait("document.querySelector('[data-times]').value === 'relative'").await;
    let choose = "(() => { const choice = document.querySelector('[data-times]'); choice.value = 'utc';
        choice.dispatchEvent(new Event('change')); return true; })()";
    browser.js(choose).await;
    browser.go(&site.at("/runs")).await;
    browser.wait(&format!("/^[0-9]+:[0-9]{{2}}:[0-9]{{2}}/.test({time})")).await;
    let title = browser.text("document.querySelector('.c-started time').title.split('\\n').length").await;
    assert_eq!(title, "3", "the title has the local time, UTC and the distance");
    browser.close().await;
}
