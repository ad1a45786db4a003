//! A data import with `ctx.iterate`: ten thousand rows in pages, by a process that may be killed at any time. The history
//! that a replay needs stays short, however many pages there are.

use outlast::prelude::*;
use serde::{Deserialize, Serialize};

const ROWS: u64 = 10_000;
const PAGE: u64 = 100;

/// What an iteration needs of the earlier ones. It is recorded at the end of each.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Progress {
    next: u64,
    imported: u64,
    rejected: u64,
}

/// Reads one page from the source, and returns its rows.
#[step]
async fn read_page(first: u64) -> Result<Vec<u64>, StepError> {
    Ok((first..(first + PAGE).min(ROWS)).collect())
}

/// Writes the rows that are valid, and returns their number. In a real import it is an upsert: a page may be written
/// twice if the process is killed before the outcome is recorded.
#[step]
async fn write_rows(rows: Vec<u64>) -> Result<u64, StepError> {
    Ok(rows.iter().filter(|row| *row % 97 != 0).count() as u64)
}

#[workflow]
async fn import(ctx: Context, source: String) -> Result<String, Error> {
    let total = ctx
        .iterate("pages", Progress::default(), async |ctx, mut progress| {
            let rows = ctx.step(read_page, progress.next).await?;
            let read = rows.len() as u64;
            if read == 0 {
                return Ok(Next::Done(progress));
            }
            let written = ctx.step(write_rows, &rows).await?;
            progress.next += read;
            progress.imported += written;
            progress.rejected += read - written;
            Ok(Next::Again(progress))
        })
        .await?;
    Ok(format!("{source}: {} rows imported, {} rejected", total.imported, total.rejected))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let world = outlast::open("memory:").await?;
    let worker = Worker::builder(world.clone()).register((import, read_page, write_rows)).start().await?;
    let client = Client::new(world);
    let run = client.start(import, "customers.csv".to_owned()).await?;
    println!("{}", run.output().await?);
    let events = client.events(run.id()).without_payloads().await?;
    let needed = events.iter().filter(|event| !event.is_skipped).count();
    println!("a replay needs {needed} events of a run with {} pages", ROWS / PAGE);
    worker.stop().await
}
