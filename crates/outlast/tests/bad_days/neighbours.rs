//! Processes that share a file notify each other at once, without the slow poll.

use std::path::Path;
use std::time::Duration;

use outlast::Status;
use outlast::prelude::*;

use crate::child::{ChildProcess, timed, url, wait_until_true, with_timeout};

const ROUNDS: usize = 10;

/// Much less than any poll would take.
const AT_ONCE: Duration = Duration::from_millis(100);

#[workflow]
async fn double(_ctx: Context, number: u32) -> Result<u32, Error> {
    Ok(2 * number)
}

#[workflow]
async fn question(ctx: Context) -> Result<u32, Error> {
    ctx.hook::<u32>("answer").await
}

/// A worker, until it is killed.
pub(crate) async fn answering(folder: &Path) -> Result<(), Error> {
    let world = outlast::open(&format!("{}?poll=off", url(folder))).await?;
    let worker = Worker::builder(world).register((double, question)).start().await?;
    worker.run_until_signal().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_an_answer_and_a_cancel_from_another_process_are_noticed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let world = outlast::open(&format!("{}?poll=off", url(folder.path()))).await.unwrap();
    let _worker = ChildProcess::start("answering", folder.path());
    wait_until_true("the worker", || async { !world.workers().await.unwrap().is_empty() }).await;
    let client = Client::new(world);
    let (mut start, mut answer, mut cancel) = (Duration::MAX, Duration::MAX, Duration::MAX);
    // The fastest of several, since the machine may be busy. None may take as long as a poll.
    for round in 0..ROUNDS as u32 {
        let (output, time) = timed(with_timeout("an output", async {
            client.start(double, round).await.unwrap().output().await
        }))
        .await;
        assert_eq!(output.unwrap(), 2 * round);
        start = start.min(time);

        let run = client.start(question, ()).await.unwrap();
        wait_until_true("the question", || async { run.view().await.unwrap().status == Status::Waiting })
            .await;
        run.send("answer", &round).await.unwrap();
        let (output, time) = timed(with_timeout("an answered run", run.output())).await;
        assert_eq!(output.unwrap(), round);
        answer = answer.min(time);

        let run = client.start(question, ()).await.unwrap();
        wait_until_true("the question", || async { run.view().await.unwrap().status == Status::Waiting })
            .await;
        run.cancel("never mind").await.unwrap();
        let (output, time) = timed(with_timeout("a cancelled run", run.output())).await;
        assert!(output.is_err());
        cancel = cancel.min(time);
    }
    println!("start to output {start:?}, answer to output {answer:?}, cancel to end {cancel:?}");
    assert!(start.max(answer).max(cancel) < AT_ONCE, "{start:?} {answer:?} {cancel:?}");
}
