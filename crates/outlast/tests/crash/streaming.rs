//! A process is killed while a step writes to a stream, and another process reads the stream.

use std::sync::Arc;

use outlast::prelude::*;
use outlast::{ChunkOrigin, StreamItem, World};
use outlast_conformance::KillerWorld;

use crate::child::{ChildArgs, ChildExit, ChildProcess, Program};
use crate::postgres_schema::Schema;
use crate::process_folder::{Outputs, ProcessFolder};

const KEY: &str = "streamer";
const STREAM: &str = "numbers";
const CHUNKS: u32 = 1_000;
const KILLED_AFTER: u32 = 500;

#[test]
fn a_reader_ends_with_the_chunks_of_the_surviving_attempt() {
    let folder = tempfile::tempdir().unwrap();
    check(&ProcessFolder::new(folder.path()));
}

#[test]
fn a_reader_ends_with_the_chunks_of_the_surviving_attempt_on_postgres() {
    throwaway::needs_postgres!();
    let folder = tempfile::tempdir().unwrap();
    let schema = Schema::make(0);
    check(&ProcessFolder { world_url: Some(schema.url.clone()), ..ProcessFolder::new(folder.path()) });
}

fn check(process_folder: &ProcessFolder) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(kill_and_read(process_folder));
}

fn start_child(process_folder: &ProcessFolder) -> ChildProcess {
    let process_folder = process_folder.clone();
    ChildProcess::start(ChildArgs { program: Program::Streamer, process_folder, point: None })
}

/// Starts the run here, kills the process that executes it when this one has read half of the chunks, and reads on while
/// another process executes it.
async fn kill_and_read(process_folder: &ProcessFolder) {
    let client = Client::new(outlast::open(&process_folder.url()).await.unwrap());
    let run = client.start(streamer, ()).key(KEY).await.unwrap();
    let mut tail = client.stream::<u32>(run.id(), STREAM).follow().await.unwrap();
    let first = start_child(process_folder);
    let mut read = Vec::new();
    while read.len() < KILLED_AFTER as usize {
        let Some(StreamItem::Chunk(chunk)) = tail.next().await.unwrap() else { panic!("the stream ended") };
        read.push(chunk);
    }
    first.kill();
    let second = start_child(process_folder);
    let mut restarts = 0;
    while let Some(item) = tail.next().await.unwrap() {
        match item {
            StreamItem::Chunk(chunk) => read.push(chunk),
            StreamItem::Restarted { op, from } => {
                restarts += 1;
                read.retain(|chunk| {
                    let ChunkOrigin::Step { op: of, .. } = chunk.origin else { return true };
                    of != op || chunk.index < from
                });
            }
        }
    }
    assert_eq!(second.end(), ChildExit::Done);
    assert_eq!(restarts, 1, "the stream says that the step began again");
    let expected: Vec<u32> = (0..CHUNKS).collect();
    assert_eq!(read.iter().map(|chunk| chunk.value).collect::<Vec<_>>(), expected);
    assert!(read.iter().all(|chunk| chunk.origin == read[0].origin), "of one attempt");
    let mut later = client.stream::<u32>(run.id(), STREAM).follow().await.unwrap();
    assert_eq!(later.read_to_end().await.unwrap(), expected, "a reader that comes later");
    assert_eq!(run.output().await.unwrap(), CHUNKS);
}

/// Executes the run until it has ended.
pub(crate) async fn run(process_folder: &ProcessFolder, world: Arc<KillerWorld>) -> Result<Outputs, Error> {
    let world: Arc<dyn World> = world;
    let worker = Worker::builder(world.clone())
        .state(process_folder.clone())
        .register((streamer, stream_numbers))
        .start()
        .await?;
    Client::new(world).start(streamer, ()).key(KEY).await?.output().await?;
    worker.stop().await?;
    Ok(Outputs::new())
}

#[workflow]
async fn streamer(ctx: Context) -> Result<u32, Error> {
    ctx.step(stream_numbers, ()).await
}

/// The first attempt never ends: it is killed.
#[step]
async fn stream_numbers(cx: StepContext<ProcessFolder>) -> Result<u32, StepError> {
    let is_first = cx.state().effects().is_empty();
    cx.state().log_effect(&cx, KEY, "stream");
    for number in 0..CHUNKS {
        cx.stream(STREAM).write(&number).await?;
        if is_first && number + 1 == KILLED_AFTER {
            std::future::pending::<()>().await;
        }
    }
    Ok(CHUNKS)
}
