//! Takes the pictures of the documentation: `cargo xtask pictures`.

use std::path::PathBuf;

use serde_json::json;

use crate::setup::Browser;

/// The pictures: name, theme, width, height, the search that finds the run (or none), and the rest of the address.
const PICTURES: [(&str, &str, u32, u32, &str, &str); 12] = [
    ("dashboard-runs", "light", 1440, 900, "", "/runs"),
    ("dashboard-runs-dark", "dark", 1440, 900, "", "/runs"),
    ("dashboard-runs-narrow", "light", 390, 844, "", "/runs"),
    ("dashboard-run", "light", 1440, 900, "trip-lisbon", "?op=4"),
    ("dashboard-run-dark", "dark", 1440, 900, "trip-lisbon", "?op=4"),
    ("dashboard-run-narrow", "light", 390, 844, "trip-lisbon", ""),
    ("dashboard-sleep", "light", 1440, 900, "rating-2", "?op=1"),
    ("dashboard-children-dark", "dark", 1440, 900, "fulfilment-1", "?expand=1&expand=2"),
    ("dashboard-long", "light", 1440, 900, "catalogue-spring", ""),
    ("dashboard-hook", "light", 1440, 900, "approval-61", "?op=1"),
    ("dashboard-failures", "light", 1440, 900, "", "/failures"),
    ("dashboard-schedules-dark", "dark", 1440, 900, "", "/schedules"),
];

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it writes into docs/images; `cargo xtask pictures` runs it"]
async fn pictures() {
    let site = std::env::var("OUTLAST_PICTURES_SITE").unwrap();
    let folder = PathBuf::from(std::env::var("OUTLAST_PICTURES_FOLDER").unwrap());
    let browser = Browser::open().await;
    for (name, theme, width, height, key, rest) in PICTURES {
        browser.theme(theme).await;
        browser.window(width, height).await;
        let address = match key {
            "" => format!("{site}{rest}"),
            key => {
                // A search for the key of one run opens it.
                browser.go(&format!("{site}/search?q={key}")).await;
                format!("{}{rest}", browser.text("location.href.split('?')[0]").await)
            }
        };
        browser.go(&address).await;
        browser
            .wait("!document.querySelector('#live') || document.querySelector('#live').dataset.state")
            .await;
        let shown = browser
            .cdp("Page.captureScreenshot", json!({ "format": "png", "optimizeForSpeed": false }))
            .await;
        std::fs::write(folder.join(format!("{name}.png")), decoded(shown["data"].as_str().unwrap())).unwrap();
    }
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
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
