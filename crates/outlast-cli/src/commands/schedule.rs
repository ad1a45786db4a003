//! `schedule`: reads and controls schedules.

mod define;
mod print;

use outlast_api::{
    BackfillRequest, DidWhat, PageRequest, ScheduleControlledJson, ScheduleFilter, SchedulePauseRequest,
    SchedulePreviewRequest, SchedulesControlledJson, SchedulesRequest, preview_schedule,
};

use super::CommandContext;
use super::input::past_time;
use crate::args::{
    BackfillArgs, FiringsArgs, PreviewArgs, ScheduleCommand, ScheduleDeleteArgs, ScheduleListArgs,
    SchedulePauseArgs, SchedulesArgs,
};
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, one_line, times};

/// Executes a command on schedules.
pub(super) async fn schedule(
    context: &CommandContext,
    command: ScheduleCommand,
) -> Result<Exit, CommandError> {
    match command {
        ScheduleCommand::List(args) => list(context, &args).await,
        ScheduleCommand::Show(args) => show(context, &args.name).await,
        ScheduleCommand::Create(args) => define::create(context, &args).await,
        ScheduleCommand::Update(args) => define::update(context, &args).await,
        ScheduleCommand::Pause(args) => pause(context, &args).await,
        ScheduleCommand::Resume(args) => resume(context, &args).await,
        ScheduleCommand::Trigger(args) => trigger(context, &args.name).await,
        ScheduleCommand::Backfill(args) => backfill(context, &args).await,
        ScheduleCommand::Firings(args) => firings(context, &args).await,
        ScheduleCommand::Delete(args) => delete(context, &args).await,
        ScheduleCommand::Preview(args) => preview(context, &args),
    }
}

async fn list(context: &CommandContext, args: &ScheduleListArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let paused = (args.paused || args.active).then_some(args.paused);
    let page = PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None };
    let mut filter = ScheduleFilter { workflow: args.workflow.clone(), paused, page };
    let mut all = surface.schedules(&filter).await?;
    while let Some(next) = all.next.take() {
        filter.page.cursor = Some(next);
        let more = surface.schedules(&filter).await?;
        all.items.extend(more.items);
        all.next = more.next;
    }
    all.items.sort_by(|one, other| one.id.cmp(&other.id));
    console.page(&all, &all.items)?;
    if console.is_for_people() && all.items.is_empty() {
        console.message("no schedules; see `outlast schedule create --help`");
        return Ok(Exit::Done);
    }
    console.lines(print::table(console, &all.items).lines(console.look))?;
    Ok(Exit::Done)
}

async fn show(context: &CommandContext, name: &str) -> Result<Exit, CommandError> {
    let schedule = context.surface().await?.schedule(name).await?;
    context.console.document(&schedule)?;
    print::schedule(&context.console, &schedule)?;
    Ok(Exit::Done)
}

async fn pause(context: &CommandContext, args: &SchedulePauseArgs) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    if let [name] = &args.schedules.names[..] {
        let request = SchedulePauseRequest { reason: args.reason.clone() };
        return controlled(context, "pause", &surface.pause_schedule(name, &request).await?);
    }
    let request = many_request(&args.schedules, args.reason.clone());
    results(context, "pause", &surface.pause_schedules(&request).await?)
}

async fn resume(context: &CommandContext, args: &SchedulesArgs) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    if let [name] = &args.names[..] {
        return controlled(context, "resume", &surface.resume_schedule(name).await?);
    }
    results(context, "resume", &surface.resume_schedules(&many_request(args, None)).await?)
}

fn many_request(args: &SchedulesArgs, reason: Option<String>) -> SchedulesRequest {
    SchedulesRequest { ids: args.names.clone(), all: args.all, reason }
}

async fn trigger(context: &CommandContext, name: &str) -> Result<Exit, CommandError> {
    let triggered = context.surface().await?.trigger_schedule(name).await?;
    if context.console.is_for_people()
        && triggered.did == DidWhat::Requested
        && let Some(last) = triggered.schedule.last.filter(|_| triggered.schedule.waiting.is_none())
    {
        context.console.message("fired");
        context.console.line(last.run.to_string())?;
        return Ok(Exit::Done);
    }
    controlled(context, "trigger", &triggered)
}

fn controlled(
    context: &CommandContext,
    verb: &str,
    controlled: &ScheduleControlledJson,
) -> Result<Exit, CommandError> {
    context.console.document(controlled)?;
    let name = one_line(&controlled.schedule.id);
    context.console.line(format!("{name}  {verb}: {}", print::did(controlled.did)))?;
    Ok(Exit::Done)
}

fn results(
    context: &CommandContext,
    verb: &str,
    many: &SchedulesControlledJson,
) -> Result<Exit, CommandError> {
    let console = &context.console;
    console.page(many, &many.results)?;
    let mut is_refused = false;
    for result in &many.results {
        match (&result.did, &result.problem) {
            (Some(did), _) => {
                console.line(format!("{}  {verb}: {}", one_line(&result.id), print::did(*did)))?;
            }
            (None, problem) => {
                is_refused = true;
                let why = problem.as_ref().map_or("no reason was given", |problem| &problem.detail);
                console.warning(format!("{}: {}", one_line(&result.id), one_line(why)));
            }
        }
    }
    Ok(if is_refused { Exit::Failure } else { Exit::Done })
}

async fn backfill(context: &CommandContext, args: &BackfillArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let (now, name) = (surface.world().await?.now.0, &args.schedule.name);
    let to = args.to.as_ref().map(|to| past_time(now, "--to", to)).transpose()?.unwrap_or(now.into());
    let mut request = BackfillRequest { from: past_time(now, "--from", &args.from)?, to, dry_run: true };
    let counted = surface.backfill_schedule(name, &request).await?;
    let more = if counted.more { "more than " } else { "" };
    let text = format!("{more}{} instants of {}", counted.instants, one_line(name));
    if args.dry_run {
        console.document(&counted)?;
        console.line(text)?;
        console.lines(counted.sample.iter().map(|at| format!("  {}", console.zone.precise(at.0))))?;
        return Ok(Exit::Done);
    }
    if counted.instants == 0 {
        console.message(format!("{text}: nothing to do"));
        return Ok(Exit::Done);
    }
    if !args.yes {
        console.message(format!("fire {text}, one after the other"));
        console.confirm("Fire them? [y/N]")?;
    }
    request.dry_run = false;
    let done = surface.backfill_schedule(name, &request).await?;
    console.document(&done)?;
    console.line(format!("{}  backfill: {text}", one_line(name)))?;
    Ok(Exit::Done)
}

async fn firings(context: &CommandContext, args: &FiringsArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let page = PageRequest { limit: Some(args.limit as usize), cursor: None };
    let firings = context.surface().await?.firings(&args.schedule.name, &page).await?;
    console.page(&firings, &firings.items)?;
    if console.is_for_people() && firings.items.is_empty() {
        console.message("it has not fired");
        return Ok(Exit::Done);
    }
    console.lines(print::firings(console, &firings.items).lines(console.look))?;
    Ok(Exit::Done)
}

async fn delete(context: &CommandContext, args: &ScheduleDeleteArgs) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let schedule = surface.schedule(&args.schedule.name).await?;
    let name = one_line(&schedule.id).into_owned();
    if !args.yes {
        context.console.message(format!("end schedule {name}: {}", one_line(&schedule.description)));
        context.console.confirm("End it? [y/N]")?;
    }
    surface.delete_schedule(&schedule.id).await?;
    context.console.message(format!("{name} has ended; its name is free"));
    Ok(Exit::Done)
}

fn preview(context: &CommandContext, args: &PreviewArgs) -> Result<Exit, CommandError> {
    let console = &context.console;
    let request = SchedulePreviewRequest {
        cron: args.cron.clone(),
        zone: args.zone.clone(),
        every: args.every.clone(),
        count: Some(usize::from(args.count)),
        after: None,
    };
    let preview = preview_schedule(&request, console.now().into())?;
    console.document(&preview)?;
    console.line(one_line(&preview.description))?;
    let zone = print::zone_of(console, preview.zone.as_deref());
    let mut table = Table::new([("NEXT", Align::Left), ("IN", Align::Left), ("HERE", Align::Left)]);
    for at in &preview.instants {
        let here = console.zone.minute(at.0);
        let there = zone.minute(at.0);
        let here = if here == there { String::new() } else { here };
        table.row([there, times::age(console.now(), at.0).trim_start_matches("in ").to_owned(), here]);
    }
    console.lines(table.without_empty_columns().lines(console.look))?;
    Ok(Exit::Done)
}
