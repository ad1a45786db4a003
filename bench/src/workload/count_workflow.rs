//! The workflow that most workloads run: trivial steps, one after the other.

use std::sync::Arc;

use outlast::World;
use outlast::prelude::*;

use crate::Result;

/// Adds one.
#[step]
pub(super) async fn add_one(number: u64) -> Result<u64, StepError> {
    Ok(number + 1)
}

/// Counts to `steps` in as many steps, and returns how far it came.
#[workflow]
pub(super) async fn count(ctx: Context, steps: u64) -> Result<u64, Error> {
    let mut number = 0;
    for _ in 0..steps {
        number = ctx.step(add_one, number).await?;
    }
    Ok(number)
}

/// A worker for the workflow `count`.
pub(super) async fn worker(world: &Arc<dyn World>) -> Result<Worker> {
    Ok(Worker::builder(world.clone()).register((count, add_one)).start().await?)
}

/// One run from its start to its output, which must be right.
pub(super) async fn count_once(client: &Client, steps: u64) -> Result<()> {
    let counted = client.start(count, steps).await?.output().await?;
    check(steps, counted)
}

/// Starts `runs` runs at once, each in a task of its own as in a server, and waits for the last output. A task also
/// waits for all of them, so that the measuring thread is woken once, not by every run.
pub(super) async fn count_at_once(client: &Client, runs: usize, steps: u64) -> Result<()> {
    let client = client.clone();
    let counted = tokio::spawn(async move {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..runs {
            let client = client.clone();
            tasks.spawn(async move { count_once(&client, steps).await });
        }
        while let Some(counted) = tasks.join_next().await {
            counted??;
        }
        Ok(())
    });
    counted.await?
}

fn check(steps: u64, counted: u64) -> Result<()> {
    if counted == steps { Ok(()) } else { Err(format!("a run of {steps} steps counted to {counted}").into()) }
}
