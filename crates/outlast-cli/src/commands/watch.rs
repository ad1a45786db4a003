//! `watch`: follows a run until it ends.

use std::time::Duration;

use outlast::RunId;
use outlast_api::{EventFilter, EventJson, PageRequest, PayloadAmount};

use super::CommandContext;
use super::events::event_line;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::symbols::run_status;
use crate::surface::Surface;
use crate::wait::pause;

/// How often new events are asked for.
const POLL_EVERY: Duration = Duration::from_millis(250);

/// Follows a run.
pub(super) async fn watch(context: &CommandContext, text: &str) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let id = find_run(&*surface, text).await?;
    follow(context, &*surface, id).await
}

/// Prints the events of a run until it ends. The exit code says whether it completed.
pub(super) async fn follow(
    context: &CommandContext,
    surface: &dyn Surface,
    id: RunId,
) -> Result<Exit, CommandError> {
    let console = &context.console;
    let mut from = 0;
    loop {
        // Read the run first: if it has ended, all its events are there.
        let run = surface.run(id).await?;
        for event in new_events(surface, id, from).await? {
            from = event.number + 1;
            console.document(&event)?;
            console.line(event_line(console, &event))?;
        }
        if run.ended_at.is_some() {
            console.line(run_status(console.look, &run))?;
            return Ok(if run.status == "completed" { Exit::Done } else { Exit::NotCompleted });
        }
        pause(POLL_EVERY).await;
    }
}

/// The events of a run from a number on.
async fn new_events(surface: &dyn Surface, id: RunId, from: u64) -> Result<Vec<EventJson>, CommandError> {
    let mut filter = EventFilter {
        from: Some(from),
        payloads: Some(PayloadAmount::Preview),
        page: PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None },
        ..EventFilter::default()
    };
    let mut events = Vec::new();
    loop {
        let page = surface.events(id, &filter).await?;
        events.extend(page.items);
        match page.next {
            Some(next) => filter.page.cursor = Some(next),
            None => return Ok(events),
        }
    }
}
