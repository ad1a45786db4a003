//! The child process of B7, which is killed and started again with the same arguments.

use std::path::PathBuf;
use std::time::Duration;

use outlast::prelude::*;

use super::effects::{EffectsFile, STEPS};
use crate::Result;
use crate::environment::block_on;
use crate::stopwatch::work;
use crate::workload::child_process::ready;

/// The hidden subcommand that runs it.
pub(crate) const COMMAND: &str = "b7-child";

/// Its only output, when every run has its output.
pub(super) const DONE: &str = "done";

/// How long a step takes.
const STEP: Duration = Duration::from_millis(1);

/// The arguments of the child.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecoveryArgs {
    /// The URL of the world.
    url: String,
    /// Where the effects are.
    folder: PathBuf,
    /// How many runs to start.
    runs: usize,
}

/// One effect, and a millisecond. The effect comes first, so that an attempt which is killed counts.
#[step]
async fn effect(cx: StepContext<EffectsFile>, run: usize, step: usize) -> Result<usize, StepError> {
    cx.state().add(run, step)?;
    work(STEP).await;
    Ok(step)
}

/// The steps of one run, one after the other.
#[workflow]
async fn effects(ctx: Context, run: usize) -> Result<usize, Error> {
    let mut done = 0;
    for step in 0..STEPS {
        done += usize::from(ctx.step(effect, (run, step)).await? == step);
    }
    Ok(done)
}

/// Starts the runs, or finds them by their keys, and waits for all outputs.
pub(crate) fn run(options: &RecoveryArgs) -> Result<()> {
    block_on(async {
        let world = outlast::open(&options.url).await?;
        let worker = Worker::builder(world.clone())
            .state(EffectsFile::open(&options.folder)?)
            .register((effects, effect))
            .start()
            .await?;
        let client = Client::new(world);
        ready().await?;
        let mut tasks = tokio::task::JoinSet::new();
        for run in 0..options.runs {
            let client = client.clone();
            tasks.spawn(
                async move { client.start(effects, run).key(format!("run-{run}")).await?.output().await },
            );
        }
        while let Some(output) = tasks.join_next().await {
            let done = output??;
            if done != STEPS {
                return Err(format!("a run of {STEPS} steps says that it did {done}").into());
            }
        }
        println!("{DONE}");
        worker.stop().await?;
        Ok(())
    })
}
