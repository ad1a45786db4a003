//! Sending to hooks and tokens, and asking.

use outlast_api::RunJson;

use super::support::Place;

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_asked_by_hook_and_by_token() {
    let place = Place::new().await;
    let run: RunJson = place.call(&["start", "shop", "--key", "s", "--json"]).await.ok().json();
    place.suspended(run.id).await;
    std::fs::write(place.folder.path().join("token.txt"), "shop\n").unwrap();
    for target in [&["s", "quote"][..], &["--token", "@token.txt"]] {
        let call =
            async |command: &str, rest: &[&str]| place.call(&[&[command], target, rest].concat()).await;
        assert_eq!(call("ask", &["1"]).await.ok().out, "\"1 euro\"\n");
        let key = format!("key of {target:?}");
        assert!(call("send", &["1", "--key", &key]).await.ok().err.contains("delivered to "));
        assert!(call("send", &["1", "--key", &key]).await.ok().err.contains("duplicate to "));
        let dropped = call("ask", &["2"]).await;
        assert_eq!((dropped.code, dropped.out.as_str()), (5, ""), "{dropped:?}");
        let late = call("ask", &["3", "--within", "10ms"]).await;
        assert!(late.code == 6 && late.err.contains("--key"), "{late:?}");
        let rejected = call("ask", &["\"many\""]).await;
        assert_eq!(rejected.code, 2, "{rejected:?}");
        assert_eq!(call("ask", &["1", "--within", "soon"]).await.code, 2);
    }
    assert_eq!(place.call(&["send", "--token", "shop", "s", "1"]).await.code, 2);
    assert_eq!(place.call(&["send", "s"]).await.code, 2);
    assert_eq!(place.call(&["send", "--token", "unknown", "1"]).await.code, 3);
    place.call(&["send", "--token", "shop", "4"]).await.ok();
    place.client.handle::<()>(run.id).output().await.unwrap();
    for command in ["send", "ask"] {
        let closed = place.call(&[command, "--token", "shop", "1"]).await;
        assert!(closed.code == 5 && closed.err.contains("closed"), "{closed:?}");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_hooks_shows_webhooks() {
    let place = Place::new().await;
    let run: RunJson = place.call(&["start", "notified", "--json"]).await.ok().json();
    place.suspended(run.id).await;
    let shown = place.call(&["hook", "list"]).await.ok().out;
    assert!(shown.contains("webhook POST, signed (bank)"), "{shown}");
    assert!(shown.contains("https://out.example/webhooks/olt_"), "{shown}");
    place.stop().await;
}
