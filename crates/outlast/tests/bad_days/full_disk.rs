//! A full disk: work pauses, clients get errors, and everything continues when there is space again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use outlast::prelude::*;
use outlast::{Status, SystemClock, World};
use outlast_sqlite::{SqliteOptions, SqliteWorld};

use crate::child::{wait_until_true, with_timeout};

const RUNS: u32 = 20;

/// The outputs of steps, which fill the disk.
const LARGE: usize = 20_000;

#[workflow]
async fn large(ctx: Context, number: u32) -> Result<usize, Error> {
    let mut length = 0;
    for _ in 0..4 {
        length += ctx.step(fill, number).await?.len();
    }
    Ok(length)
}

#[step]
async fn fill(cx: StepContext<Arc<AtomicU32>>, _number: u32) -> Result<String, StepError> {
    cx.state().fetch_add(1, Ordering::Relaxed);
    Ok("x".repeat(LARGE))
}

fn open(path: &Path) -> Arc<SqliteWorld> {
    let options = SqliteOptions::new(Arc::new(SystemClock));
    Arc::new(SqliteWorld::open(path.to_str().unwrap(), options).unwrap())
}

async fn start_worker(world: &Arc<SqliteWorld>, attempts: &Arc<AtomicU32>) -> Worker {
    let world: Arc<dyn World> = world.clone();
    let worker = Worker::builder(world).state(attempts.clone()).register((large, fill));
    worker.session_time("2s").start().await.unwrap()
}

/// Checks the error that a client gets from a full disk, and that nothing is changed. Only a change that does not fit
/// fails, so a large one is tried.
async fn check_refusal(client: &Client, path: &Path) {
    let big = "y".repeat(2_000_000);
    let refused = client.retry_unavailable("0s").start(greedy, big).await.expect_err("there is no room");
    let text = refused.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("the disk is full"), "{text}");
    assert!(text.contains("free some space, then work resumes by itself"), "{text}");
    let known: u64 = client.counts().await.unwrap().values().sum();
    assert_eq!(known, u64::from(RUNS), "a refused start leaves nothing");
}

/// Waits until a run is explained by the full disk, and not by the step whose outcome does not fit.
async fn check_explanation(client: &Client, runs: &[RunHandle<usize>], place: &str) {
    wait_until_true(&format!("an explanation {place}"), || async {
        for run in runs {
            let why = client.explain(run.id()).await.unwrap();
            if why.not_committed.is_some() {
                assert!(why.sentence.contains("the disk is full"), "{}", why.sentence);
                assert!(!why.sentence.contains("attempt"), "{}", why.sentence);
                return true;
            }
        }
        false
    })
    .await;
}

#[workflow]
async fn greedy(_ctx: Context, _text: String) -> Result<(), Error> {
    Ok(())
}

async fn check_all_done(client: &Client, runs: &[RunHandle<usize>]) {
    for run in runs {
        assert_eq!(with_timeout("an output", run.output()).await.unwrap(), 4 * LARGE);
    }
    assert_eq!(client.counts().await.unwrap().get(&Status::Completed), Some(&u64::from(RUNS)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_pauses_while_the_disk_is_full_and_continues_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.db");
    let world = open(&path);
    let client = Client::new(world.clone());
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(large, number).await.unwrap());
    }
    world.limit_pages(Some(1)).await.unwrap();
    let attempts = Arc::new(AtomicU32::new(0));
    // Joining inserts a row, which may need a page: a new worker fails, or finds space.
    world.limit_pages(Some(60)).await.unwrap();
    let worker = start_worker(&world, &attempts).await;
    wait_until_true("work to pause", || async { attempts.load(Ordering::Relaxed) >= RUNS }).await;
    check_refusal(&client, &path).await;
    wait_until_true("several beats", || async { worker.metrics().beats > 3 }).await;
    assert_eq!(client.counts().await.unwrap()[&Status::Completed], 0, "nothing fits any more");
    check_explanation(&client, &runs, "in the process of the worker").await;
    check_explanation(&Client::new(open(&path)), &runs, "in another process").await;
    assert_eq!(worker.metrics().sessions_lost, 0, "a beat needs no room");

    world.limit_pages(None).await.unwrap();
    check_all_done(&client, &runs).await;
    assert_eq!(attempts.load(Ordering::Relaxed), 4 * RUNS, "no step was attempted twice");
    worker.stop().await.unwrap();
}

/// A small file system; unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one, or returns why that is not possible.
    fn mount(at: PathBuf, size: &str) -> Result<Self, String> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(&at).output();
        let mounted = mount.map_err(|error| error.to_string())?;
        if mounted.status.success() {
            return Ok(Self(at));
        }
        Err(String::from_utf8_lossy(&mounted.stderr).trim().to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_disk_that_is_full_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    // Space for the runs and the log, once the ballast is removed.
    let disk = match SmallDisk::mount(disk, "size=16m") {
        Ok(disk) => disk,
        Err(why) => {
            return println!("skipped: no small file system can be mounted ({why}); be root to run it");
        }
    };
    let path = disk.0.join("world.db");
    let world = open(&path);
    let client = Client::new(world.clone());
    let mut runs = Vec::new();
    for number in 0..RUNS {
        runs.push(client.start(large, number).await.unwrap());
    }
    let attempts = Arc::new(AtomicU32::new(0));
    let worker = start_worker(&world, &attempts).await;
    let ballast = fill_up(&disk.0);
    check_refusal(&client, &path).await;
    // Longer than its session: not even a beat fits.
    wait_until_true("the worker to lose its session", || async { worker.metrics().sessions_lost > 0 }).await;
    std::fs::remove_file(ballast).unwrap();
    check_all_done(&client, &runs).await;
    println!("{} attempts at {} steps", attempts.load(Ordering::Relaxed), 4 * RUNS);
    worker.stop().await.unwrap();
    drop((client, runs, world));
}

/// Fills the disk.
fn fill_up(disk: &Path) -> PathBuf {
    use std::io::Write;
    let path = disk.join("ballast");
    let mut ballast = std::fs::File::create(&path).unwrap();
    for size in [1 << 20, 1 << 14, 1 << 12] {
        while ballast.write_all(&vec![0; size]).is_ok() {}
    }
    path
}
