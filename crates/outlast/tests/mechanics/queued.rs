//! Queued steps: they travel to the workers that serve their queue, each as a run of its own.

use outlast::prelude::*;
use outlast::{RunId, Status};

use super::rig::{Ask, Rig, on_every_world};

#[workflow]
async fn travels(ctx: Context) -> Result<String, Error> {
    let here = ctx.note("here").await?;
    let there = ctx.note("there").queue("gpu").await?;
    Ok(format!("{here} and {there}"))
}

/// A worker that serves this queue alone and has the rig's steps, and no workflow.
async fn serving(rig: &Rig, queue: &str) -> Worker {
    rig.builder().queues([queue]).start().await.unwrap()
}

/// The run that is the queued step of this operation.
async fn step_run(rig: &Rig, run: RunId, op: usize) -> RunId {
    rig.client.steps(run).await.unwrap()[op].child.expect("a queued step is a run")
}

async fn a_step_travels_to_a_worker_that_serves_its_queue(rig: Rig) {
    let _here = rig.worker(travels).await;
    let run = rig.client.start(travels, ()).await.unwrap();
    rig.settle().await;
    assert_eq!(rig.desk.notes(), ["here"], "nobody serves the queue");
    assert_eq!(rig.status(run.id()).await, Status::Waiting);
    let _there = serving(&rig, "gpu").await;
    assert_eq!(run.output().await.unwrap(), "here and there");
    rig.assert_history(
        run.id(),
        r#"
        0 step_started note
        0 step_completed "here"
        1 step_started note
        1 step_completed "there"
        run_completed "here and there"
        "#,
    )
    .await;
    let step = step_run(&rig, run.id(), 1).await;
    rig.assert_history(
        step,
        r#"
        0 step_started note
        0 step_completed "there"
        run_completed "there"
        "#,
    )
    .await;
}

on_every_world! {
    a_step_travels_to_a_worker_that_serves_its_queue,
}
