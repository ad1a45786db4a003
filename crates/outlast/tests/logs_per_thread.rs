//! Log lines of workflow code where each thread has its own subscriber: replays log nothing, and spans stay with their
//! subscriber.

#![allow(missing_docs, reason = "tests explain themselves by their names")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

#[path = "logs/lines.rs"]
#[allow(dead_code, reason = "another test program uses all of it")]
mod lines;

use std::sync::Arc;

use outlast::prelude::*;
use outlast_testkit::TestClock;
use tracing::{Dispatch, Instrument, info, info_span};
use tracing_subscriber::layer::SubscriberExt;

use self::lines::Lines;

#[workflow]
async fn spanned(ctx: Context, name: String) -> Result<(), Error> {
    async {
        info!(name, "before");
        ctx.hook::<u32>("x").await?;
        info!(name, "after");
        Ok(())
    }
    .instrument(info_span!("run", name))
    .await
}

/// Runs the workflow with a replay after every turn, on a runtime of this thread.
fn run_here(name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let clock = TestClock::new();
        let world = outlast::open_with_clock("memory:", Arc::new(clock.clone())).await.unwrap();
        let worker = Worker::builder(world.clone()).paranoid().register(spanned).start().await.unwrap();
        let run = Client::new(world).start(spanned, name.to_owned()).await.unwrap();
        clock.settle().await;
        run.send("x", &1).await.unwrap();
        run.output().await.unwrap();
        worker.stop().await.unwrap();
    });
}

#[test]
fn each_thread_logs_each_line_once_to_its_own_subscriber() {
    let names: Vec<_> = (0..8).map(|number| format!("thread {number}")).collect();
    let everything = std::thread::scope(|scope| {
        let threads = names.iter().map(|name| {
            scope.spawn(move || {
                let lines = Lines::default();
                let _default =
                    tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
                run_here(name);
                run_here(name);
                lines
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for (name, lines) in names.iter().zip(&everything) {
        let expected = [format!("run: before name={name:?}"), format!("run: after name={name:?}")];
        assert_eq!(lines.with("thread"), [expected.clone(), expected].concat());
        assert_eq!(lines.open_spans("thread"), 0);
    }
}

#[test]
fn a_subscriber_that_its_program_has_dropped_is_not_kept() {
    let dispatch = Dispatch::new(tracing_subscriber::registry().with(Lines::default()));
    let weak = dispatch.downgrade();
    tracing::dispatcher::with_default(&dispatch, || run_here("dropped"));
    drop(dispatch);
    assert!(weak.upgrade().is_none());
}

#[test]
fn a_thread_without_a_subscriber_replays_beside_those_that_have_one() {
    // With a single subscriber, `tracing` asks only the thread that reaches a line first.
    let _another = Dispatch::new(tracing_subscriber::registry());
    let lines = Lines::default();
    let _default = tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.clone()));
    std::thread::spawn(|| run_here("bare")).join().unwrap();
    assert_eq!(lines.with("bare"), [""; 0]);
    run_here("bare");
    assert_eq!(lines.with("bare").len(), 2);
}
