//! A file that is removed, or a schema that is dropped, while a worker and its clients use it: everybody gets the cause
//! and the remedy, and the worker stops by itself.

use std::sync::Arc;

use outlast::postgres::tokio_postgres;
use outlast::prelude::*;
use outlast::{ErrorKind, Status, World};

use crate::child::{WorldLocation, sleep_briefly, url, with_timeout};

#[workflow]
async fn ask(ctx: Context, name: String) -> Result<String, Error> {
    let answer = ctx.hook::<String>("answer").await?;
    Ok(format!("{name}: {answer}"))
}

#[track_caller]
fn check_lost(what: &str, error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{what}: {error}");
    let text = error.message();
    assert!(text.contains("runs.db` was moved, replaced or removed while it was open"), "{what}: {text}");
    assert!(text.contains("restore a backup"), "{what}: {text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_file_is_an_error_of_every_call_and_not_an_outage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runs.db");
    let world: Arc<dyn World> = outlast::open(&format!("sqlite:{}", path.display())).await.unwrap();
    let worker = Worker::builder(world.clone()).register(ask).start().await.unwrap();
    let client = Client::new(world);
    let waiting = client.start(ask, "ada").await.unwrap();
    let output = tokio::spawn({
        let handle = client.handle::<String>(waiting.id());
        async move { handle.output().await }
    });
    std::fs::remove_file(&path).unwrap();
    // The worker of this process takes the start; the other calls go to the world.
    check_lost("start", &client.start(ask, "bob").await.unwrap_err());
    check_lost("send", &waiting.send("answer", "yes").await.unwrap_err());
    check_lost("cancel", &waiting.cancel("enough").await.unwrap_err());
    check_lost("list", &client.list().await.unwrap_err());
    let output = with_timeout("the waiting caller", output).await.unwrap();
    check_lost("output", &output.unwrap_err());
    check_lost("stop", &with_timeout("the worker's stop", worker.stop()).await.unwrap_err());
}

/// Opens a world, and removes its storage while an idle worker waits.
async fn worker_without_storage(location: WorldLocation) -> (tempfile::TempDir, Worker) {
    let folder = location.folder();
    let url = url(folder.path());
    let world = outlast::open(&url).await.unwrap();
    let worker = Worker::builder(world.clone()).register(ask).session_time("2s").start().await.unwrap();
    let waiting = Client::new(world).start(ask, "ada").await.unwrap();
    while waiting.view().await.unwrap().status != Status::Waiting {
        sleep_briefly().await;
    }
    match location {
        WorldLocation::File => std::fs::remove_file(folder.path().join("world.db")).unwrap(),
        WorldLocation::Server => drop_schema(&url).await,
    }
    (folder, worker)
}

async fn drop_schema(url: &str) {
    let (server, schema) = url.split_once("schema=").unwrap();
    let schema = schema.split('&').next().unwrap();
    let server = server.trim_end_matches(['?', '&']);
    let (client, connection) = tokio_postgres::connect(server, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}

async fn a_worker_stops_by_itself(location: WorldLocation, what: &str) {
    let check = |error: Error| {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(what) && error.message().contains("restore a backup"), "{error}");
    };
    let (_folder, worker) = worker_without_storage(location).await;
    check(with_timeout("the worker to notice", worker.failed()).await);
    check(with_timeout("the worker's stop", worker.stop()).await.unwrap_err());
    let (_folder, worker) = worker_without_storage(location).await;
    check(with_timeout("the worker's end", worker.run_until_signal()).await.unwrap_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_file_was_removed_stops_by_itself() {
    a_worker_stops_by_itself(WorldLocation::File, "world.db` was moved, replaced or removed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_schema_was_dropped_stops_by_itself() {
    throwaway::needs_postgres!();
    a_worker_stops_by_itself(WorldLocation::Server, "dropped while the world was open").await;
}
