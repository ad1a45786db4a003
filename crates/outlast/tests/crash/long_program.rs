//! A program with long runs: one that loops, one that continues as new generations, one that is paused and resumed, and one
//! whose step writes to a stream.

use std::sync::Arc;

use outlast::core::Event;
use outlast::prelude::*;
use outlast::{ErrorKind, World};
use outlast_conformance::KillerWorld;
use serde::de::DeserializeOwned;

use crate::mixed_program::{ExpectedRun, log_output};
use crate::process_folder::{Ack, Outputs, ProcessFolder};
use crate::snapshot::WorldSnapshot;

const ITERATIONS: u32 = 4;
const GENERATIONS: u64 = 3;
const CHUNKS: u32 = 20;

/// The stream of the runs that have one.
const LOG: &str = "log";

/// The runs of the program. The key of each is the name of its workflow.
pub(crate) const RUNS: [ExpectedRun; 4] = [
    ExpectedRun { key: "looped", output: "0 1 2 3", branches: 1, is_deterministic: true },
    ExpectedRun { key: "continued", output: "1 2 3", branches: 1, is_deterministic: true },
    ExpectedRun { key: "interrupted", output: "0 1 go", branches: 1, is_deterministic: true },
    ExpectedRun { key: "streamed", output: "20 chunks", branches: 1, is_deterministic: true },
];

/// Starts all runs, pauses and resumes one, and waits until all have completed. It may be killed at any time and run
/// again.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        // All attempts must stay in the history, for the checks.
        .keep_generations(GENERATIONS as usize)
        .register((looped, continued, interrupted, streamed))
        .register((mark, write_numbers))
        .start()
        .await?;
    let client = Client::new(world);
    let mut runs = Vec::new();
    macro_rules! start {
        ($($workflow:ident, $input:expr);*) => {$(
            let key = stringify!($workflow).to_owned();
            runs.push(client.start($workflow, $input(&key)).key(&key).await?);
            process_folder.log_ack(&Ack::Started(key));
        )*};
    }
    start!(looped, String::clone; continued, |key: &String| (key.clone(), Vec::new());
        interrupted, String::clone; streamed, String::clone);
    interrupt(process_folder, &runs[2]).await?;
    let mut outputs = Outputs::new();
    for run in &runs {
        log_output(process_folder, run, &mut outputs).await?;
    }
    // Every chunk of a workflow is there once; of a step, those of its last attempt.
    let iterations: Vec<u32> = (0..ITERATIONS).collect();
    assert_eq!(read::<u32>(&client, &runs[0]).await?, iterations);
    let chunks: Vec<u32> = (0..CHUNKS).collect();
    assert_eq!(read::<u32>(&client, &runs[3]).await?, chunks);
    assert_eq!(client.state::<u64>(runs[1].id()).await?, Some(GENERATIONS));
    worker.stop().await?;
    Ok(outputs)
}

async fn read<T: DeserializeOwned>(client: &Client, run: &RunHandle<String>) -> Result<Vec<T>, Error> {
    client.stream::<T>(run.id(), LOG).follow().await?.read_to_end().await
}

/// Pauses the run, resumes it, and sends what it waits for. A file says what an earlier process has done.
async fn interrupt(process_folder: &ProcessFolder, run: &RunHandle<String>) -> Result<(), Error> {
    let once = async |what: &str, done: Result<(), Error>| match done {
        // An earlier process has sent the payload, and the run has ended.
        Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
        done => done.map(|()| std::fs::write(process_folder.folder.join(what), "").unwrap()),
    };
    let is_done = |what: &str| process_folder.folder.join(what).exists();
    if !is_done("paused") {
        once("paused", run.pause().reason("wait").await.map(drop)).await?;
    }
    if !is_done("resumed") {
        once("resumed", run.resume().await.map(drop)).await?;
    }
    once("sent", run.send("go", "go").key("go").await).await
}

/// Checks the histories of the program when all runs have ended.
pub(crate) fn check_end(end: &WorldSnapshot) {
    let count = |key: &str, kind: &str| end.runs[key].events().filter(|event| event.kind() == kind).count();
    assert_eq!(count("looped", "iteration_ended") as u32, ITERATIONS - 1);
    let cuts = end.runs["looped"].events();
    let cuts = cuts.filter(|event| matches!(event, Event::IterationEnded(ended) if ended.cut.is_some()));
    assert_eq!(cuts.count() as u32, ITERATIONS - 1, "a replay skips every iteration but the last");
    assert_eq!(count("continued", "run_continued") as u64, GENERATIONS - 1);
    assert_eq!(end.runs["continued"].view.generation, GENERATIONS);
    assert!(!end.runs["interrupted"].view.marks.is_paused());
}

// --- workflows ---

#[workflow]
async fn looped(ctx: Context, key: String) -> Result<String, Error> {
    ctx.iterate("count", Vec::new(), async |ctx, mut done: Vec<String>| {
        let number = ctx.step(mark, (key.clone(), done.len() as u32)).await?;
        ctx.stream(LOG).write(&number);
        done.push(number.to_string());
        Ok(if done.len() as u32 == ITERATIONS { Next::Done(done.join(" ")) } else { Next::Again(done) })
    })
    .await
}

#[workflow]
async fn continued(ctx: Context, (key, mut done): (String, Vec<String>)) -> Result<String, Error> {
    let generation = ctx.generation();
    ctx.publish(&generation);
    done.push(ctx.step(mark, (key.clone(), generation as u32)).await?.to_string());
    if generation == GENERATIONS {
        return Ok(done.join(" "));
    }
    ctx.continue_as(&(key, done))
}

/// Waits, so that no message arrives after its end.
#[workflow]
async fn interrupted(ctx: Context, key: String) -> Result<String, Error> {
    let first = ctx.step(mark, (key.clone(), 0)).await?;
    let second = ctx.step(mark, (key, 1)).await?;
    let go = ctx.hook::<String>("go").await?;
    Ok(format!("{first} {second} {go}"))
}

#[workflow]
async fn streamed(ctx: Context, key: String) -> Result<String, Error> {
    let chunks = ctx.step(write_numbers, &key).await?;
    Ok(format!("{chunks} chunks"))
}

// --- steps ---

#[step]
async fn mark(cx: StepContext<ProcessFolder>, key: String, number: u32) -> u32 {
    cx.state().log_effect(&cx, &key, "mark");
    number
}

#[step]
async fn write_numbers(cx: StepContext<ProcessFolder>, key: String) -> Result<u32, StepError> {
    cx.state().log_effect(&cx, &key, "write");
    for number in 0..CHUNKS {
        cx.stream(LOG).write(&number).await?;
    }
    Ok(CHUNKS)
}
