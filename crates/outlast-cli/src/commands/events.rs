//! `run events`: the history of a run.

use outlast_api::{EventFilter, EventJson, EventOrder, ItemPage, PageRequest};

use super::CommandContext;
use crate::args::EventsArgs;
use crate::exit::{CommandError, Exit};
use crate::naming::find_run;
use crate::output::escape::safe_json;
use crate::output::table::cut;
use crate::output::{Console, Tone, one_line};

/// Prints the events of a run.
pub(super) async fn events(context: &CommandContext, args: &EventsArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let payloads = args.payloads.as_deref().map(str::parse).transpose();
    let mut filter = EventFilter {
        from: args.from,
        kind: args.kind.clone(),
        op: args.op,
        order: if args.newest { EventOrder::NewestFirst } else { EventOrder::OldestFirst },
        payloads: payloads.map_err(|error| CommandError::usage(format!("--payloads: {error}")))?,
        page: PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None },
    };
    let surface = context.surface().await?;
    let id = find_run(&*surface, &args.run.run).await?;
    let wanted = args.limit.unwrap_or(usize::MAX);
    let mut all = Vec::new();
    let next = loop {
        filter.page.limit = Some((wanted - all.len()).clamp(1, PageRequest::LIMIT_MAX));
        let page = surface.events(id, &filter).await?;
        all.extend(page.items);
        if page.next.is_none() || all.len() >= wanted {
            break page.next;
        }
        filter.page.cursor = page.next;
    };
    let page = ItemPage { items: all, next, prev: None };
    console.page(&page, &page.items)?;
    if console.is_for_people() {
        console.lines(page.items.iter().map(|event| event_line(console, event)))?;
    }
    Ok(Exit::Done)
}

/// An event on one line.
pub(super) fn event_line(console: &Console, event: &EventJson) -> String {
    let look = console.look;
    let op = event.op.map(|op| format!("#{op}")).unwrap_or_default();
    let tone = match event.kind.rsplit_once('_').map_or("", |(_, end)| end) {
        "failed" => Tone::Bad,
        "completed" | "fired" | "received" => Tone::Good,
        "cancelled" | "terminated" | "stuck" => Tone::Warning,
        _ => Tone::Plain,
    };
    let (number, time) = (format!("{:>4}", event.number), console.zone.precise(event.at.0));
    let (number, time) = (look.paint(Tone::Dim, number), look.paint(Tone::Dim, time));
    let kind = look.paint(tone, format!("{:<24}", one_line(&event.kind)));
    let data = safe_json(event.data.get());
    let data = one_line(data.trim());
    let line = format!("{number}  {time}  {op:>4}  {kind}  {}", look.paint(Tone::Dim, data));
    if look.is_terminal { cut(&line, look.width, look) } else { line }
}
