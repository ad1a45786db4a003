//! Hostile text in every field is shown as text.

use crate::screens::check_page;
use crate::setup::{Shop, approval};

const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onmouseover='alert(1)",
    "</title></svg></template><h1>injected</h1>",
    "javascript:alert(1)",
    "\u{202e}gnirts\u{0007}\u{1b}[31m",
    "{{7*7}} ${7*7} __proto__",
    "日本語 🦀 a&b=c#d?e/f",
];

#[tokio::test]
async fn hostile_text_in_keys_tags_reasons_and_payloads_is_escaped() {
    let shop = Shop::open().await;
    for (number, text) in HOSTILE.into_iter().enumerate() {
        let key = format!("{text}{number}");
        let run = shop.client.start(approval, ()).key(key).tag("note", text).queue("default").await.unwrap();
        let id = shop.settle(&run).await;
        run.send("decision", text).await.unwrap();
        run.send("other", text).await.unwrap();
        run.cancel(text).await.unwrap();
        for part in ["", "?op=0", "?all=1", "/events", "/data", "/children", "/ops/0", "/cancel"] {
            let path = format!("/runs/{id}{part}");
            check_hostile(&path, &shop, &path).await;
        }
    }
    for path in ["/runs", "/failures", "/hooks", "/queues"] {
        check_hostile(path, &shop, path).await;
    }
}

#[tokio::test]
async fn hostile_text_in_addresses_is_escaped() {
    let shop = Shop::open().await;
    for text in HOSTILE {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for path in [
            format!("/runs?workflow={encoded}&tag=x:{encoded}&text={encoded}"),
            format!("/runs?{encoded}={encoded}"),
            format!("/runs/{encoded}"),
            format!("/workflows/{encoded}"),
            format!("/failures?tab={encoded}"),
            format!("/runs/new?workflow={encoded}"),
            format!("/{encoded}"),
        ] {
            let page = shop.get(&path).await;
            check_text(&path, &page.body);
        }
    }
}

async fn check_hostile(name: &str, shop: &Shop, path: &str) {
    let page = shop.get(path).await;
    // The text `javascript:` itself may be shown; what counts is that nothing links to it.
    let shown = page.body.replace("javascript:alert(1)", "shown");
    for attribute in ["href", "src", "action"] {
        for value in page.attributes(attribute) {
            let is_own = value.is_empty()
                || value.starts_with('/')
                || value.starts_with('?')
                || value.starts_with('#');
            assert!(is_own, "{name}: {attribute}={value}");
        }
    }
    check_text(name, &shown);
    if !shown.contains("shown") {
        check_page(name, &page);
    }
}

/// The elements that pages have. Text cannot add another one; attributes are always in double quotes.
const ELEMENTS: &str = "html head meta title link script body a nav svg use span ul li header form input kbd div button main \
    footer dialog h1 h2 h3 dl dt dd p table caption thead tbody tr th td b time code section ol details summary aside rect \
    line text circle path pattern defs pre label textarea select option";

fn check_text(name: &str, body: &str) {
    for rest in body.split('<').skip(1) {
        let element: String =
            rest.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        let is_known =
            ELEMENTS.split_whitespace().any(|known| known == element) || rest.starts_with("!DOCTYPE");
        assert!(is_known, "{name} contains <{element}");
    }
    for forbidden in ["<script>", "<h1>injected", "</title></svg>"] {
        assert!(!body.contains(forbidden), "{name} contains {forbidden}");
    }
}
