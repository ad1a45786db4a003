//! Backups under load: the copy has everything acknowledged before, and works as a world.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast::prelude::*;
use outlast::{ErrorKind, RunId, World};
use parking_lot::Mutex;

const STARTERS: u64 = 8;
const RUNS_BEFORE: usize = 200;

#[step]
async fn add_one(number: u64) -> Result<u64, StepError> {
    Ok(number + 1)
}

#[workflow]
async fn count(ctx: Context, steps: u64) -> Result<u64, Error> {
    let mut number = 0;
    for _ in 0..steps {
        number = ctx.step(add_one, number).await?;
    }
    if steps.is_multiple_of(3) {
        ctx.hook::<()>("go").await?;
    }
    Ok(number)
}

async fn open(path: &Path) -> Arc<dyn World> {
    outlast::open(&format!("sqlite:{}", path.display())).await.unwrap()
}

async fn worker(world: &Arc<dyn World>) -> Worker {
    Worker::builder(world.clone()).register((count, add_one)).start().await.unwrap()
}

/// Runs that were acknowledged, with the steps of each.
type Acknowledged = Arc<Mutex<Vec<(RunId, u64)>>>;

/// Starts runs as fast as possible, until it is stopped.
async fn start_runs(client: Client, starter: u64, acknowledged: Acknowledged, is_over: Arc<AtomicBool>) {
    for index in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let steps = (starter + index) % 7;
        let run = client.start(count, steps).await.unwrap();
        acknowledged.lock().push((run.id(), steps));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_has_everything_acknowledged_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let copy: PathBuf = folder.path().join("copy.db");
    let world = open(&folder.path().join("original.db")).await;
    let original = worker(&world).await;
    let client = Client::new(world.clone());
    let (acknowledged, is_over) = (Acknowledged::default(), Arc::<AtomicBool>::default());
    let load: Vec<_> = (0..STARTERS)
        .map(|starter| {
            let load = start_runs(client.clone(), starter, acknowledged.clone(), is_over.clone());
            tokio::spawn(load)
        })
        .collect();
    while acknowledged.lock().len() < RUNS_BEFORE {
        tokio::task::yield_now().await;
    }
    let before = acknowledged.lock().clone();
    outlast::backup(&*world, &copy).await.unwrap();
    is_over.store(true, Ordering::Relaxed);
    for starter in load {
        starter.await.unwrap();
    }
    original.stop().await.unwrap();
    drop((client, world));

    let world = open(&copy).await;
    let client = Client::new(world.clone());
    assert!(client.workers().await.unwrap().is_empty(), "the copy has none of the original's sessions");
    let _worker = worker(&world).await;
    for (run, steps) in before {
        let run = client.handle::<u64>(run);
        if steps.is_multiple_of(3) {
            run.send("go", &()).await.unwrap();
        }
        assert_eq!(run.output().await.unwrap(), steps);
    }
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let unfinished = files.filter(|name| name.to_string_lossy().contains("unfinished"));
    assert_eq!(unfinished.count(), 0);
}

#[tokio::test]
async fn a_backup_ignores_the_unfinished_copy_of_a_process_with_the_same_id() {
    let folder = tempfile::tempdir().unwrap();
    let world = open(&folder.path().join("original.db")).await;
    let copy = folder.path().join("copy.db");
    let unfinished = folder.path().join(format!("copy.db.unfinished-{}-0", std::process::id()));
    std::fs::write(&unfinished, "of another container").unwrap();
    outlast::backup(&*world, &copy).await.unwrap();
    assert!(copy.exists() && unfinished.exists());
}

#[tokio::test]
async fn a_backup_overwrites_nothing_and_explains_its_refusals() {
    let folder = tempfile::tempdir().unwrap();
    let world = open(&folder.path().join("original.db")).await;
    let taken = folder.path().join("taken.db");
    std::fs::write(&taken, "mine").unwrap();
    let refused = outlast::backup(&*world, &taken).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert_eq!(std::fs::read_to_string(&taken).unwrap(), "mine");
    let nowhere = outlast::backup(&*world, folder.path().join("no/copy.db")).await.unwrap_err();
    assert!(nowhere.message().contains("does not exist; create it first"), "{nowhere}");
    let memory = outlast::open("memory:").await.unwrap();
    let refused = outlast::backup(&*memory, folder.path().join("copy.db")).await.unwrap_err();
    assert!(refused.message().contains("in memory cannot be backed up"), "{refused}");
    assert!(!folder.path().join("copy.db").exists());
}
