//! A program whose runs fail and are retried: one with outcomes after its failure, and one that fails between two steps.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{Status, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::{ExpectedRun, log_output, sleep};
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::WorldSnapshot;

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 2] = [
    ExpectedRun { key: "siblings", output: "1 2 fixed", branches: 3, is_deterministic: true },
    ExpectedRun { key: "in_order", output: "1 fixed 3", branches: 1, is_deterministic: true },
];

/// Starts all runs, retries those that fail, and waits until all have completed. It may be killed at any time and run
/// again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((siblings, in_order))
        .register((apply, fragile))
        .start()
        .await?;
    let client = Client::new(world);
    let mut runs = Vec::new();
    macro_rules! start {
        ($($workflow:ident),*) => {$(
            let key = stringify!($workflow).to_owned();
            runs.push(client.start($workflow, &key).key(&key).await?);
            process_folder.log_ack(&Ack::Started(key));
        )*};
    }
    start!(siblings, in_order);
    let mut outputs = Outputs::new();
    for run in &runs {
        while run.output().await.is_err() {
            let view = run.view().await?;
            mend(process_folder, &view.key.unwrap_or_default());
            // Refused if an earlier process has retried it, and it has completed meanwhile.
            if view.status == Status::Failed {
                run.retry().reason("fixed").await?;
            }
        }
        log_output(process_folder, run, &mut outputs).await?;
    }
    worker.stop().await?;
    Ok(outputs)
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot) {
    for run in RUNS {
        let run = &end.runs[run.key];
        assert_eq!(run.view.status, Status::Completed);
        let retries = run.events().filter(|event| matches!(event, Event::RunRetried(_))).count();
        assert_eq!(retries, 1, "{:?}", run.view.key);
    }
}

fn mend(process_folder: &ProcessFolder, key: &str) {
    std::fs::write(process_folder.folder.join(format!("fixed {key}")), "").unwrap();
}

// --- workflows ---

/// The failure comes first; the outcomes of the other steps are recorded again.
#[workflow]
async fn siblings(ctx: Context, key: String) -> Result<String, Error> {
    let first = ctx.step(apply, (key.clone(), 1));
    let second = ctx.step(apply, (key.clone(), 2));
    let (first, second, third) = join!(first, second, ctx.step(fragile, &key));
    Ok(format!("{} {} {}", first?, second?, third?))
}

#[workflow]
async fn in_order(ctx: Context, key: String) -> Result<String, Error> {
    let first = ctx.step(apply, (key.clone(), 1)).await?;
    let second = ctx.step(fragile, &key).await?;
    let third = ctx.step(apply, (key, 3)).await?;
    Ok(format!("{first} {second} {third}"))
}

// --- steps ---

#[step]
async fn apply(cx: StepContext<ProcessFolder>, key: String, number: u32) -> u32 {
    cx.state().log_effect(&cx, &key, "apply");
    sleep("5ms").await;
    number
}

/// Fails until its run is fixed. Only the attempt after that has an effect.
#[step(attempts = 1)]
async fn fragile(cx: StepContext<ProcessFolder>, key: String) -> Result<String, StepError> {
    if !cx.state().folder.join(format!("fixed {key}")).exists() {
        return Err(StepError::msg("not fixed"));
    }
    cx.state().log_effect(&cx, &key, "fragile");
    Ok("fixed".into())
}
