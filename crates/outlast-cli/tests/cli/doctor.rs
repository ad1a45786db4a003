//! `doctor`: problems of the configuration, the world and its workers, each with a remedy.

use std::path::Path;

use outlast::prelude::*;
use outlast_api::Role;
use outlast_server::{AccessKey, AccessKeys, Config, router, serve};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::support::call;

/// Calls `doctor`, and returns its findings that are not good: the check and the message.
async fn problems(folder: &Path, variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let called = call(folder, &["doctor", "--json"], variables).await;
    let found: Value = called.json();
    let items = found["items"].as_array().unwrap();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    let is_any_bad = items.iter().any(|item| item["severity"] == "bad");
    assert_eq!(called.code == 1, is_any_bad, "{called:?}");
    let problems = items.iter().filter(|item| item["severity"] != "good");
    problems.map(|item| (text(item, "check"), text(item, "message"))).collect()
}

/// The seeded problem is among the findings, with its remedy.
#[track_caller]
fn assert_found(found: &[(String, String)], check: &str, remedy: &str) {
    let is_it = |(name, message): &(String, String)| name == check && message.contains(remedy);
    assert!(found.iter().any(is_it), "{check} with `{remedy}` is not in {found:#?}");
}

#[workflow]
async fn report(ctx: Context) -> Result<(), Error> {
    ctx.sleep("1d").await
}

#[workflow]
async fn broken(_ctx: Context) -> Result<(), Error> {
    panic!("a bug")
}

#[workflow]
async fn other(_ctx: Context) -> Result<(), Error> {
    Ok(())
}

async fn world(folder: &Path) -> Client {
    Client::new(outlast::open(&format!("sqlite:{}", folder.join("shop.db").display())).await.unwrap())
}

const WORLD: (&str, &str) = ("OUTLAST_WORLD", "sqlite:shop.db");

#[tokio::test(flavor = "multi_thread")]
async fn problems_of_the_configuration_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // 1: nothing is configured.
    assert_found(&problems(at, &[]).await, "configuration", "set OUTLAST_WORLD");
    // 2: two places are configured.
    let both = [WORLD, ("OUTLAST_SERVER", "http://127.0.0.1:1")];
    assert_found(&problems(at, &both).await, "configuration", "give one of them");
    // 3: there is no such world.
    assert_found(&problems(at, &[WORLD]).await, "connection", "outlast world migrate");
    // 4: no server answers.
    let nobody = [("OUTLAST_SERVER", "http://127.0.0.1:1")];
    assert_found(&problems(at, &nobody).await, "connection", "127.0.0.1:1");
    // 5: a key with a typing error.
    let typo = [("OUTLAST_SERVER", "http://127.0.0.1:1"), ("OUTLAST_ACCESS_KEY", "olk_typo")];
    assert_found(&problems(at, &typo).await, "access key", "copy it again");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn problems_of_files_are_found() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    drop(world(at).await);
    let chmod = |file: &str, mode| {
        std::fs::set_permissions(at.join(file), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // 6: everybody may write to the world.
    chmod("shop.db", 0o666);
    assert_found(&problems(at, &[WORLD]).await, "permissions", "chmod o-w");
    chmod("shop.db", 0o600);
    // 7: commits may be lost.
    let weak = [("OUTLAST_WORLD", "sqlite:shop.db?sync=normal")];
    assert_found(&problems(at, &weak).await, "durability", "remove `sync=normal`");
    // 8: everybody may read the access key.
    std::fs::write(at.join("key"), "olk_x").unwrap();
    chmod("key", 0o644);
    let key = [("OUTLAST_SERVER", "http://127.0.0.1:1"), ("OUTLAST_ACCESS_KEY_FILE", "key")];
    assert_found(&problems(at, &key).await, "access key", "chmod 600");
}

#[tokio::test(flavor = "multi_thread")]
async fn problems_of_workers_and_runs_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let (at, client) = (folder.path(), world(folder.path()).await);
    client.start(report, ()).await.unwrap();
    // 9: runs want a worker, and there is none.
    assert_found(&problems(at, &[WORLD]).await, "workers", "start your program");
    let worker = Worker::builder(client.world().clone()).register((other, broken)).start().await.unwrap();
    // 10: no worker has the code.
    assert_found(&problems(at, &[WORLD]).await, "code", "deploy a build with it");
    // 11: nobody serves the queue.
    client.start(other, ()).queue("night").await.unwrap();
    assert_found(&problems(at, &[WORLD]).await, "queues", "start a worker with it");
    // 12: a run is stuck.
    let stuck = client.start(broken, ()).await.unwrap();
    while stuck.view().await.unwrap().status != outlast::Status::Stuck {
        tokio::task::yield_now().await;
    }
    assert_found(&problems(at, &[WORLD]).await, "runs", "deploy a fix");
    // 13: two builds at the same time.
    let second = Worker::builder(client.world().clone()).build("next").register(other).start().await.unwrap();
    assert_found(&problems(at, &[WORLD]).await, "builds", "finish the rollout");
    worker.stop().await.unwrap();
    second.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_server_does_not_know_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let client = world(folder.path()).await;
    let (_, stored) = AccessKey::generate("ada", Role::Read).unwrap();
    let (wrong, _) = AccessKey::generate("eve", Role::Read).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let app = router(client, Config::keys(AccessKeys::new([stored])).shutdown(shutdown.clone()));
    tokio::spawn(serve(listener, app, shutdown.clone()));
    let variables = [("OUTLAST_SERVER", address.as_str()), ("OUTLAST_ACCESS_KEY", wrong.secret())];
    // 14: a key that was revoked.
    let found = problems(folder.path(), &variables).await;
    assert_found(&found, "connection", "was revoked");
    assert!(!format!("{found:?}").contains(wrong.secret()), "a key is never printed");
    shutdown.cancel();
}

/// A world without problems has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_world_that_works_has_no_problems() {
    let folder = tempfile::tempdir().unwrap();
    let client = world(folder.path()).await;
    let worker = Worker::builder(client.world().clone()).register(other).start().await.unwrap();
    client.start(other, ()).await.unwrap().output().await.unwrap();
    let found = problems(folder.path(), &[WORLD]).await;
    // The disk of the machine that runs the tests may be full.
    let found: Vec<_> = found.into_iter().filter(|(check, _)| check != "disk").collect();
    assert_eq!(found, []);
    worker.stop().await.unwrap();
}
