//! A program with many runs of some slow steps.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{RunQuery, World};
use outlast_conformance::KillerWorld;

use crate::mixed_program::sleep;
use crate::process_folder::{Ack, Outputs, ProcessFolder};

/// The steps of each run.
pub(crate) const STEPS: u32 = 5;

/// Starts runs by key, and waits until all runs of the world have ended.
pub(crate) async fn run(
    process_folder: &ProcessFolder,
    world: Arc<KillerWorld>,
    starts: u32,
    live: usize,
) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((chain, link))
        .live_runs(live)
        // Long, so that a busy machine does not cost the session.
        .session_time("60s")
        .start()
        .await?;
    let client = Client::new(world);
    start(&client, process_folder, starts).await?;
    let mut outputs = Outputs::new();
    for run in client.runs(RunQuery::default()).await?.runs {
        let output = client.handle::<String>(run.id).output().await?;
        outputs.insert(run.key.unwrap(), output);
    }
    worker.stop().await?;
    Ok(outputs)
}

/// Starts this many runs, each by its key.
pub(crate) async fn start(client: &Client, process_folder: &ProcessFolder, starts: u32) -> Result<(), Error> {
    for number in 0..starts {
        let key = key(number);
        client.start(chain, &(key.clone(), number)).key(&key).await?;
        process_folder.log_ack(&Ack::Started(key));
    }
    Ok(())
}

pub(crate) fn key(number: u32) -> String {
    format!("chain-{number}")
}

/// The expected outputs.
pub(crate) fn outputs(starts: u32) -> Outputs {
    (0..starts).map(|number| (key(number), "0 1 2 3 4".into())).collect()
}

#[workflow]
async fn chain(ctx: Context, key: String, number: u32) -> Result<String, Error> {
    let mut links = Vec::new();
    for at in 0..STEPS {
        links.push(ctx.step(link, &(key.clone(), number, at)).await?.to_string());
    }
    Ok(links.join(" "))
}

#[step]
async fn link(cx: StepContext<ProcessFolder>, key: String, number: u32, at: u32) -> Result<u32, StepError> {
    cx.state().log_effect(&cx, &key, "link");
    // From 30 to 79 ms, not the same for neighbours.
    sleep(&format!("{}ms", 30 + (number * 13 + at * 7) % 50)).await;
    Ok(at)
}
