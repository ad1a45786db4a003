//! A worker that is cut off from the server: what it had sent arrives when others have its runs.

use std::path::Path;

use outlast::Status;
use outlast::prelude::*;
use throwaway::{NetworkCondition, Proxy, Toward};

use crate::frozen::{SESSION_FILE, attempt, patient, worker};
use crate::process::{Ground, Process, in_time, nap, until_so, url};

/// Enough to send a commit in, on a machine that does other things too.
const SESSION_TIME: &str = "2s";

/// A worker that must ask the server for something else first does not come to send its commit. So it is tried
/// again; most of the time the first is the last.
const TRIES_MAX: u32 = 10;

/// How often it is looked for the answer to what may never have been sent.
const LOOKS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_after_the_takeover_is_not_done() {
    let place = Ground::Server.folder();
    let folder = place.path();
    std::fs::write(folder.join(SESSION_FILE), SESSION_TIME).unwrap();
    // The first worker reaches the server by a way of its own.
    let direct = url(folder);
    let mut way = throwaway::proxy(&direct).unwrap();
    let parameters = direct.split_once('?').unwrap().1;
    std::fs::write(folder.join("url"), format!("{}?{parameters}", way.url())).unwrap();
    let first = Process::start("freezing", folder);
    for number in 0..TRIES_MAX {
        if is_sent_and_not_done(folder, &direct, &mut way, first.id(), number).await {
            return println!("the commit arrived late in try {number}");
        }
    }
    panic!("no commit was sent before its worker lost its session");
}

/// Cuts the first worker off when its attempt ends. Answers whether it had sent a commit, which must not be done.
async fn is_sent_and_not_done(folder: &Path, direct: &str, way: &mut Proxy, first: u32, number: u32) -> bool {
    let me = std::process::id();
    let end = |pid: u32| folder.join(format!("end-{pid}"));
    let client = Client::new(outlast::open(direct).await.unwrap());
    let is_there = || async { client.workers().await.unwrap().iter().any(|worker| worker.pid == first) };
    until_so("the first worker", is_there).await;
    let run = client.start(patient, number).await.unwrap();
    until_so("the first attempt", || async { attempt(folder, first, number).is_some() }).await;

    way.set(NetworkCondition::Stalled).unwrap();
    let commit = way.watch(run.id().to_string());
    std::fs::write(end(first), "").unwrap();
    let ended = folder.join(format!("ended-{first}-{number}"));
    until_so("the end of the first attempt", || async { ended.exists() }).await;
    let second = worker(folder, direct).await.unwrap();
    until_so("the takeover", || async { attempt(folder, me, number).is_some() }).await;
    let history = client.history(run.id()).await.unwrap();

    way.set(NetworkCondition::Normal).unwrap();
    until_so("the first worker to join anew", is_there).await;
    for _ in 0..LOOKS {
        if commit.bytes(Toward::Client) > 0 {
            break;
        }
        nap().await;
    }
    assert_eq!(client.history(run.id()).await.unwrap(), history, "it is not done");
    let view = run.view().await.unwrap();
    assert_eq!((view.status, view.owner), (Status::Running, Some(second.session())));
    std::fs::write(end(me), "").unwrap();
    assert_eq!(in_time("the output", run.output()).await.unwrap(), me, "the outcome is the survivor's");
    second.stop().await.unwrap();
    std::fs::remove_file(end(first)).unwrap();
    std::fs::remove_file(end(me)).unwrap();
    commit.bytes(Toward::Client) > 0
}
