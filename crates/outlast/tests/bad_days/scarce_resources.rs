//! Too few file descriptors, too little memory.

use std::fs::File;
use std::path::{Path, PathBuf};

use outlast::prelude::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::child::{ChildProcess, url, wait_until, with_timeout};

#[workflow]
async fn greet(_ctx: Context, name: String) -> Result<String, Error> {
    Ok(format!("hello {name}"))
}

/// Opens a world and starts a worker with no descriptor left, then with some.
pub(crate) async fn few_files(folder: &Path) -> Result<(), Error> {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..before }).unwrap();
    let world = outlast::open(&url(folder)).await?;
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let refused = outlast::open(&url(folder)).await.expect_err("no descriptors are left").to_string();
    println!("open: {refused}");
    let refused = Worker::builder(world.clone()).register(greet).start().await.expect_err("none are left");
    println!("worker: {refused}");
    // Open files still work.
    let run = Client::new(world.clone()).start(greet, "Ada".to_owned()).await?;
    println!("started: {}", run.id());
    drop(taken);
    let worker = Worker::builder(world).register(greet).start().await?;
    println!("output: {}", run.output().await?);
    worker.stop().await
}

#[test]
fn without_file_descriptors_errors_say_so_and_open_files_still_work() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = ChildProcess::start("few-files", folder.path());
    let end = child.end();
    let output = child.output();
    assert!(end.success(), "{end}: {output}");
    let line = |start: &str| {
        let found = output.lines().find_map(|line| line.strip_prefix(start));
        found.unwrap_or_else(|| panic!("no line `{start}`: {output}")).to_owned()
    };
    let open = line("open: ");
    assert!(open.contains("world.db") && open.contains("how many files this process may open"), "{open}");
    let worker = line("worker: ");
    assert!(
        worker.contains("world.db-sessions") && worker.contains("how many files this process may open"),
        "{worker}"
    );
    line("started: run_");
    assert_eq!(line("output: "), "hello Ada");
}

/// A worker with a small memory limit.
pub(crate) async fn little_memory(folder: &Path) -> Result<(), Error> {
    let world = outlast::open(&url(folder)).await?;
    let worker = Worker::builder(world.clone()).register((greet, hoard, fill)).start().await?;
    let client = Client::new(world);
    client.start(hoard, ()).key("hoard").await?;
    let hello = client.start(greet, "Ada".to_owned()).await?;
    println!("output: {}", hello.output().await?);
    worker.run_until_signal().await
}

/// A step that exceeds the memory limit in every attempt.
#[step]
async fn fill() -> Result<usize, StepError> {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        held.push(vec![1; 1 << 20]);
        if held.len() > 4096 {
            return Ok(held.len());
        }
        tokio::task::yield_now().await;
    }
}

#[workflow]
async fn hoard(ctx: Context) -> Result<usize, Error> {
    ctx.step(fill, ()).await
}

/// A cgroup with 128 MB of memory; `Err` with the reason if there is none.
fn small_group() -> Result<PathBuf, String> {
    let name = format!("outlast-test-{}", std::process::id());
    let two = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let (folder, limit) = if two {
        (PathBuf::from("/sys/fs/cgroup").join(name), "memory.max")
    } else {
        (PathBuf::from("/sys/fs/cgroup/memory").join(name), "memory.limit_in_bytes")
    };
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let limited = std::fs::write(folder.join(limit), "134217728");
    limited.map_err(|error| {
        let _ = std::fs::remove_dir(&folder);
        format!("{}: {error}", folder.join(limit).display())
    })?;
    Ok(folder)
}

#[tokio::test]
async fn a_run_that_takes_all_memory_kills_its_worker_and_is_poison_in_the_end() {
    let group = match small_group() {
        Ok(group) => group,
        Err(why) => {
            return println!("skipped: no group of processes with a memory limit can be made ({why})");
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&url(folder.path())).await.unwrap();
    let client = Client::new(world);
    let mut deaths = 0;
    while deaths < 10 && client.newest(&[outlast::Status::Stuck], 1).await.unwrap().is_empty() {
        let mut child = ChildProcess::start("little-memory", folder.path());
        if let Err(error) = std::fs::write(group.join("cgroup.procs"), child.id().to_string()) {
            drop(child);
            let _ = std::fs::remove_dir(&group);
            return println!("skipped: a process cannot be moved into a group with a memory limit ({error})");
        }
        let stuck = with_timeout("the death of a worker", async {
            loop {
                if child.has_ended() || !client.newest(&[outlast::Status::Stuck], 1).await.unwrap().is_empty()
                {
                    return;
                }
                crate::child::sleep_briefly().await;
            }
        });
        stuck.await;
        deaths += usize::from(child.has_ended());
    }
    wait_until("the group to be empty", || std::fs::remove_dir(&group).ok());
    let stuck = client.newest(&[outlast::Status::Stuck], 1).await.unwrap().remove(0);
    println!("{deaths} deaths");
    assert_eq!(stuck.stuck.unwrap().reason, outlast::StuckReason::Poison);
}
