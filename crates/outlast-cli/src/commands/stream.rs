//! `stream list` and `stream tail`.

use std::time::Duration;

use outlast::RunId;
use outlast_api::{ChunkFilter, ChunkJson};

use super::CommandContext;
use crate::args::TailArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::escape::safe_json;
use crate::output::{Align, Console, Table, one_line, several_lines};
use crate::surface::Surface;
use crate::wait::pause;

/// How often new chunks are asked for.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Lists the streams of a run.
pub(super) async fn list(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    let streams = surface.streams(id).await?;
    console.page(&streams, &streams.items)?;
    if console.is_for_people() && streams.items.is_empty() {
        console.message("the run has no streams");
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        ("STREAM", Align::Left),
        ("ENTRIES", Align::Right),
        ("STORED", Align::Right),
        ("DROPPED", Align::Right),
        ("STATE", Align::Left),
    ]);
    for stream in &streams.items {
        table.row([
            one_line(&stream.name).into_owned(),
            stream.end.to_string(),
            stream.end.saturating_sub(stream.first).to_string(),
            stream.dropped.to_string(),
            if stream.closed { "closed".into() } else { "open".into() },
        ]);
    }
    console.lines(table.lines(console.look))?;
    Ok(Exit::Done)
}

/// Prints the chunks of a stream.
pub(super) async fn tail(context: &CommandContext, args: &TailArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => only_stream(&*surface, id).await?,
    };
    let mut filter = ChunkFilter { from: Some(args.from), ..ChunkFilter::default() };
    loop {
        let page = surface.chunks(id, &name, &filter).await?;
        for chunk in &page.items {
            print_chunk(console, chunk)?;
        }
        let is_complete = page.next >= page.tail;
        if page.done || (is_complete && !args.follow) {
            return Ok(Exit::Done);
        }
        filter.from = Some(i64::try_from(page.next).unwrap_or(i64::MAX));
        if is_complete {
            if surface.run(id).await?.ended_at.is_some() && page.items.is_empty() {
                return Ok(Exit::Done);
            }
            pause(POLL_EVERY).await;
        }
    }
}

async fn only_stream(surface: &dyn Surface, run: RunId) -> Result<String, CommandError> {
    let streams = surface.streams(run).await?.items;
    match streams.as_slice() {
        [] => Err(CommandError::not_found(format!("run {run} has no streams"))),
        [one] => Ok(one.name.clone()),
        several => {
            let names: Vec<_> = several.iter().map(|stream| one_line(&stream.name)).collect();
            Err(CommandError::usage(format!(
                "run {run} has several streams; name one of {}",
                names.join(", ")
            )))
        }
    }
}

fn print_chunk(console: &Console, chunk: &ChunkJson) -> Result<(), CommandError> {
    console.document(chunk)?;
    let Some(json) = &chunk.value.json else {
        return console.line(chunk.value.base64.clone().unwrap_or_default());
    };
    match serde_json::from_str::<String>(json.get()) {
        Ok(text) if chunk.kind != "json" => console.line(several_lines(text.trim_end_matches('\n'))),
        _ => console.line(safe_json(json.get())),
    }
}
