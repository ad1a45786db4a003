//! A worker that is disconnected from the server: its commit arrives after another worker has taken its runs over.

use std::path::Path;

use outlast::Status;
use outlast::prelude::*;
use throwaway::{NetworkCondition, Proxy, Toward};

use crate::child::{ChildProcess, WorldLocation, sleep_briefly, url, wait_until_true, with_timeout};
use crate::frozen::{SESSION_FILE, attempt, patient, worker};

/// Enough time to send a commit on a busy machine.
const SESSION_TIME: &str = "2s";

/// The worker may make another call first, and then does not send its commit in time. So the test is repeated; usually
/// once is enough.
const TRIES_MAX: u32 = 10;

/// The number of polls for the answer to a commit that may not have been sent.
const POLLS_MAX: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_the_takeover_is_not_done() {
    throwaway::needs_postgres!();
    let temp_folder = WorldLocation::Server.folder();
    let folder = temp_folder.path();
    std::fs::write(folder.join(SESSION_FILE), SESSION_TIME).unwrap();
    // The first worker connects through a proxy.
    let direct = url(folder);
    let mut proxy = throwaway::proxy(&direct).unwrap();
    let parameters = direct.split_once('?').unwrap().1;
    std::fs::write(folder.join("url"), format!("{}?{parameters}", proxy.url())).unwrap();
    let first = ChildProcess::start("freezing", folder);
    for number in 0..TRIES_MAX {
        if is_sent_and_not_done(folder, &direct, &mut proxy, first.id(), number).await {
            return println!("the commit arrived late in try {number}");
        }
    }
    panic!("no commit was sent before its worker lost its session");
}

/// Disconnects the first worker when its attempt ends. Returns whether it had sent a commit, which must be refused.
async fn is_sent_and_not_done(
    folder: &Path,
    direct: &str,
    proxy: &mut Proxy,
    first: u32,
    number: u32,
) -> bool {
    let own_pid = std::process::id();
    let end = |pid: u32| folder.join(format!("end-{pid}"));
    let client = Client::new(outlast::open(direct).await.unwrap());
    let is_there = || async { client.workers().await.unwrap().iter().any(|worker| worker.pid == first) };
    wait_until_true("the first worker", is_there).await;
    let run = client.start(patient, number).await.unwrap();
    wait_until_true("the first attempt", || async { attempt(folder, first, number).is_some() }).await;

    proxy.set(NetworkCondition::Stalled).unwrap();
    let commit = proxy.watch(run.id().to_string());
    std::fs::write(end(first), "").unwrap();
    let ended = folder.join(format!("ended-{first}-{number}"));
    wait_until_true("the end of the first attempt", || async { ended.exists() }).await;
    let second = worker(folder, direct).await.unwrap();
    wait_until_true("the takeover", || async { attempt(folder, own_pid, number).is_some() }).await;
    let history = client.history(run.id()).await.unwrap();

    proxy.set(NetworkCondition::Normal).unwrap();
    wait_until_true("the first worker to join anew", is_there).await;
    for _ in 0..POLLS_MAX {
        if commit.bytes(Toward::Client) > 0 {
            break;
        }
        sleep_briefly().await;
    }
    assert_eq!(client.history(run.id()).await.unwrap(), history, "it is not done");
    let view = run.view().await.unwrap();
    assert_eq!((view.status, view.owner), (Status::Running, Some(second.session())));
    std::fs::write(end(own_pid), "").unwrap();
    assert_eq!(
        with_timeout("the output", run.output()).await.unwrap(),
        own_pid,
        "the outcome is the survivor's"
    );
    second.stop().await.unwrap();
    std::fs::remove_file(end(first)).unwrap();
    std::fs::remove_file(end(own_pid)).unwrap();
    commit.bytes(Toward::Client) > 0
}
