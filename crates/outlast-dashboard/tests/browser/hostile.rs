//! Strings of runs are shown as they are, and never executed.

use throwaway::needs_browser;

use crate::setup::{Browser, TestSite, hostile};

#[tokio::test(flavor = "multi_thread")]
async fn hostile_strings_are_only_text_in_both_themes() {
    needs_browser!();
    let (site, browser) = (TestSite::open().await, Browser::open().await);
    let text =
        "\"><script>alert(3)</script></svg><img src=x onerror=alert(4)>\u{1b}]0;x\u{7} __proto__ \u{202e}";
    let run = site.client.start(hostile, text.to_owned()).key("<b>key</b>").await.unwrap();
    let run = site.settle(&run).await;
    let paths = [
        "/runs".to_owned(),
        "/runs?text=%3Cscript%3E".to_owned(),
        format!("/runs/{run}"),
        format!("/runs/{run}?view=table"),
        format!("/runs/{run}?op=1"),
        format!("/runs/{run}/events"),
        format!("/runs/{run}/data"),
        format!("/runs/{run}/cancel"),
        "/failures".to_owned(),
        "/hooks".to_owned(),
        "/workflows".to_owned(),
        "/workflows/%3C%2Fsvg%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E".to_owned(),
        "/schedules/new".to_owned(),
    ];
    for theme in ["light", "dark"] {
        browser.theme(theme).await;
        for path in &paths {
            browser.go(&site.at(path)).await;
            let scripts = "document.querySelectorAll('script:not([src])').length + document.querySelectorAll('img, b:not(a b, section b, nav b), iframe, object, style').length";
            assert_eq!(browser.js(scripts).await, 0, "{path}");
        }
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}
