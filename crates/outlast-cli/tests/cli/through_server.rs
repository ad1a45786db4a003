//! The same commands through a server.

use outlast_api::{ItemPage, Role, RunJson};
use outlast_server::{AccessKey, AccessKeys, Config, router, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::support::{Called, Place};

/// A server on a place.
struct Served {
    address: String,
    shutdown: CancellationToken,
}

impl Served {
    async fn new(place: &Place, config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let app = router(place.client.clone(), config.shutdown(shutdown.clone()));
        tokio::spawn(serve(listener, app, shutdown.clone()));
        Self { address, shutdown }
    }

    async fn call(&self, place: &Place, arguments: &[&str]) -> Called {
        place.call_with(arguments, &[("OUTLAST_SERVER", &self.address)]).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_does_not_depend_on_the_connection() {
    let place = Place::new().await;
    let served = Served::new(&place, Config::local()).await;
    let run: RunJson = served.call(&place, &["start", "survey", "--key", "s-1", "--json"]).await.ok().json();
    place.suspended(run.id).await;
    for command in [
        &["list", "--json"][..],
        &["list", "--jsonl", "--all"],
        &["show", "s-1", "--json"],
        &["explain", "@last", "--json"],
        &["run", "steps", "s-1", "--all", "--json"],
        &["run", "events", "s-1", "--json"],
        &["run", "events", "s-1"],
        &["run", "children", "s-1", "--json"],
        &["run", "state", "s-1", "--json"],
        &["run", "export", "s-1"],
        &["run", "cancel", "-w", "survey", "--dry-run", "--json"],
        &["show", "nothing"],
        &["run", "cancel", "-w", "survey"],
    ] {
        let (direct, remote) = (place.call(command).await, served.call(&place, command).await);
        assert_eq!((direct.code, &direct.out), (remote.code, &remote.out), "{command:?}");
    }
    served.call(&place, &["send", "s-1", "rating", "5"]).await.ok();
    assert_eq!(served.call(&place, &["run", "output", "s-1", "--wait"]).await.ok().out, "5\n");
    assert_eq!(served.call(&place, &["start", "checkout", "13", "--wait"]).await.code, 7);
    for command in
        [&["run", "retry", "@failed", "--dry-run"][..], &["run", "retry", "@failed", "--dry-run", "--json"]]
    {
        let (direct, remote) = (place.call(command).await.ok(), served.call(&place, command).await.ok());
        assert_eq!(direct.out, remote.out, "{command:?}");
    }
    let plan = place.call(&["run", "retry", "@failed", "--dry-run"]).await.ok();
    assert!(plan.out.contains("would retry") && plan.out.contains("   0  step "), "{plan:?}");
    let fork = &["run", "fork", "s-1", "--event", "1", "--dry-run"];
    let (direct, remote) = (place.call(fork).await.ok(), served.call(&place, fork).await.ok());
    assert_eq!(direct.out, remote.out);
    assert!(
        direct.out.contains("copies 1 event,")
            && direct.out.contains("is dropped, and may be requested again"),
        "{direct:?}"
    );
    let output = ["run", "fork", "@failed", "--output", "0=\"free\"", "--wait"];
    let forked = served.call(&place, &output).await.ok();
    assert!(forked.out.contains("free"), "{forked:?}");
    assert_eq!(place.call(&["run", "fork", "s-1", "--output", "much"]).await.code, 2);
    assert_eq!(place.call(&["run", "fork", "s-1"]).await.code, 2);
    let failed = served.call(&place, &["run", "restart", "@failed", "--input", "4", "--wait"]).await.ok();
    assert!(failed.out.contains("payment of 4"), "{failed:?}");
    served.shutdown.cancel();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_decides_what_is_allowed() {
    let place = Place::new().await;
    let (secret, stored) = AccessKey::generate("reader", Role::Read).unwrap();
    let served = Served::new(&place, Config::keys(AccessKeys::new([stored]))).await;
    place.client.start_json("nap", 1, "null").await.unwrap();
    assert_eq!(served.call(&place, &["list"]).await.code, 4, "without a key");
    let file = place.folder.path().join("key");
    std::fs::write(&file, secret.secret()).unwrap();
    let key = ["--access-key-file", file.to_str().unwrap()];
    let listed = served.call(&place, &[&["list", "--json"], &key[..]].concat()).await.ok();
    assert_eq!(listed.json::<ItemPage<RunJson>>().items.len(), 1);
    let refused = served.call(&place, &[&["run", "cancel", "@last"], &key[..]].concat()).await;
    assert_eq!(refused.code, 4, "{refused:?}");
    let audit = place.call(&["audit", "list"]).await.ok().out;
    assert!(audit.contains("reader") && audit.contains("refused (forbidden)"), "{audit}");
    let audit = served.call(&place, &[&["audit", "list"], &key[..]].concat()).await;
    assert_eq!(audit.code, 4, "a reader may not read the audit: {audit:?}");
    served.shutdown.cancel();
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_keys_is_refused_before_a_socket_is_opened() {
    let place = Place::new().await;
    let called = place.call(&["serve", "--listen", "0.0.0.0:0"]).await;
    assert_eq!(called.code, 2);
    assert!(called.err.contains("--keys FILE") && !called.err.contains("api "), "{called:?}");
    place.stop().await;
}
