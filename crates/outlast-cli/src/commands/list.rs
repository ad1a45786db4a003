//! `list`: lists runs.

mod notes;

use std::time::Duration;

use outlast::{Status, Timestamp};
use outlast_api::{ItemPage, PageRequest, RunFilter, RunJson, RunListOrder};

use super::CommandContext;
use super::input::past_time;
use crate::args::{FilterArgs, ListArgs};
use crate::exit::{CommandError, Exit};
use crate::output::ids::short_id;
use crate::output::symbols::run_status;
use crate::output::{Align, Console, Look, Table, Tone, one_line, times};
use crate::surface::Surface;
use crate::wait::pause;

pub(super) use self::notes::note;

/// How often a watched list is read.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// The statuses of runs that have not ended.
const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Stuck];

/// Lists runs.
pub(super) async fn list(context: &CommandContext, args: &ListArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let mut filter = filter(console.now(), &args.filter)?;
    let time = |name: &str, text: &Option<String>| {
        text.as_ref().map(|text| past_time(console.now(), name, text)).transpose()
    };
    filter.flag = args.flag;
    filter.ended_from = time("--ended-since", &args.ended_since)?;
    filter.ended_before = time("--ended-until", &args.ended_until)?;
    filter.built_in = args.built_in;
    filter.queued_steps = args.queued_steps;
    filter.order = if args.oldest { RunListOrder::OldestFirst } else { RunListOrder::NewestFirst };
    filter.page = PageRequest { limit: Some(args.limit as usize), cursor: args.cursor.clone() };
    let surface = context.surface().await?;
    if args.watch {
        return watch(console, &*surface, &filter, args).await;
    }
    let page =
        if args.all { read_all(&*surface, filter).await? } else { read_page(&*surface, &filter).await? };
    console.page(&page, &page.items)?;
    print(console, &page.items, args.wide)?;
    if console.is_for_people() {
        console.message(footer(&page));
    }
    Ok(Exit::Done)
}

/// The filter of the arguments.
pub(super) fn filter(now: Timestamp, args: &FilterArgs) -> Result<RunFilter, CommandError> {
    let time =
        |name: &str, text: &Option<String>| text.as_ref().map(|text| past_time(now, name, text)).transpose();
    Ok(RunFilter {
        statuses: if args.open { OPEN.to_vec() } else { args.status.clone() },
        marks: args.mark.clone(),
        workflow: args.workflow.clone(),
        queue: args.queue.clone(),
        parent: args.parent,
        root: args.root,
        tags: args.tag.iter().cloned().collect(),
        created_from: time("--since", &args.since)?,
        created_before: time("--until", &args.until)?,
        text: args.text.clone(),
        ..RunFilter::default()
    })
}

/// Reads as many runs as the page has room for: a page of the world may be short although there are more.
async fn read_page(surface: &dyn Surface, filter: &RunFilter) -> Result<ItemPage<RunJson>, CommandError> {
    let wanted = filter.page.limit();
    let mut page = surface.runs(filter).await?;
    while page.items.len() < wanted
        && let Some(next) = page.next.take()
    {
        let rest = PageRequest { limit: Some(wanted - page.items.len()), cursor: Some(next) };
        let more = surface.runs(&RunFilter { page: rest, ..filter.clone() }).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    Ok(page)
}

/// Reads all pages.
pub(super) async fn read_all(
    surface: &dyn Surface,
    mut filter: RunFilter,
) -> Result<ItemPage<RunJson>, CommandError> {
    filter.page.limit = Some(PageRequest::LIMIT_MAX);
    let mut items = Vec::new();
    loop {
        let page = surface.runs(&filter).await?;
        items.extend(page.items);
        match page.next {
            Some(next) => filter.page.cursor = Some(next),
            None => return Ok(ItemPage { items, next: None, prev: None }),
        }
    }
}

async fn watch(
    console: &Console,
    surface: &dyn Surface,
    filter: &RunFilter,
    args: &ListArgs,
) -> Result<Exit, CommandError> {
    loop {
        let page = read_page(surface, filter).await?;
        if console.look.is_terminal {
            console.line("\u{1b}[H\u{1b}[2J")?;
        }
        console.page(&page, &page.items)?;
        print(console, &page.items, args.wide)?;
        console
            .line(console.look.paint(Tone::Dim, format!("as of {}", console.zone.precise(console.now()))))?;
        pause(WATCH_EVERY).await;
    }
}

/// Prints runs as a table.
pub(super) fn print(console: &Console, runs: &[RunJson], is_wide: bool) -> Result<(), CommandError> {
    if runs.is_empty() {
        return Ok(());
    }
    console.lines(table(console.look, console.now(), runs, is_wide).lines(console.look))
}

fn table(look: Look, now: Timestamp, runs: &[RunJson], is_wide: bool) -> Table {
    let mut columns = vec![
        ("STATUS", Align::Left),
        ("RUN", Align::Left),
        ("WORKFLOW", Align::Left),
        ("KEY", Align::Left),
        ("STARTED", Align::Right),
        ("TOOK", Align::Right),
    ];
    if is_wide {
        columns.extend([("QUEUE", Align::Left), ("TAGS", Align::Left), ("MARKS", Align::Left)]);
    }
    columns.push(("NOTE", Align::Left));
    let mut table = Table::new(columns);
    for run in runs {
        let took = run.ended_at.map_or(now, |at| at.0).since(run.created_at.0);
        let mut cells = vec![
            run_status(look, run),
            short_id(look, run.id),
            format!("{} v{}", one_line(&run.workflow), run.version),
            run.key.as_deref().map(|key| one_line(key).into_owned()).unwrap_or_default(),
            times::age(now, run.created_at.0),
            times::duration(took),
        ];
        if is_wide {
            let tags: Vec<_> = run.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
            cells.extend([
                one_line(&run.queue).into(),
                one_line(&tags.join(" ")).into(),
                run.marks.join(" "),
            ]);
        }
        cells.push(one_line(&note(now, run)).into_owned());
        table.row(cells);
    }
    table.without_empty_columns()
}

fn footer(page: &ItemPage<RunJson>) -> String {
    let count = match page.items.len() {
        0 => "no runs".to_owned(),
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    };
    match &page.next {
        Some(next) => format!("{count}; more: --cursor {next}"),
        None => count,
    }
}

#[cfg(test)]
mod tests;
