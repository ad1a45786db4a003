//! A file that is removed while a worker and its clients use it: everybody gets the cause and the remedy, at once.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{ErrorKind, World};

use crate::child::with_timeout;

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
