//! Schedules for people.

use outlast_api::{DidWhat, FiringJson, ScheduleJson};

use crate::exit::CommandError;
use crate::output::ids::short_id;
use crate::output::symbols::run_status;
use crate::output::times::Zone;
use crate::output::{Align, Console, Look, Table, Tone, one_line, times};

/// What was done, in words.
pub(super) fn did(did: DidWhat) -> &'static str {
    match did {
        DidWhat::Requested => "done",
        DidWhat::Already => "already",
        DidWhat::Nothing => "nothing to do",
    }
}

/// The zone in which a schedule fires: its own, or that of the console.
pub(super) fn zone_of(console: &Console, name: Option<&str>) -> Zone {
    name.and_then(Zone::named).unwrap_or_else(|| console.zone.clone())
}

/// Schedules as a table.
pub(super) fn table(console: &Console, schedules: &[ScheduleJson]) -> Table {
    let (look, now) = (console.look, console.now());
    let mut table = Table::new([
        ("STATUS", Align::Left),
        ("SCHEDULE", Align::Left),
        ("WORKFLOW", Align::Left),
        ("NEXT", Align::Left),
        ("FIRED", Align::Right),
        ("FAILED", Align::Right),
        ("RUNS", Align::Right),
        ("WHEN", Align::Left),
    ]);
    for schedule in schedules {
        let next = schedule.next.first().filter(|_| schedule.paused.is_none());
        let count = |count: u64| if count == 0 { String::new() } else { count.to_string() };
        table.row([
            status(look, schedule),
            one_line(&schedule.id).into_owned(),
            one_line(&schedule.definition.workflow).into_owned(),
            next.map(|at| times::age(now, at.0)).unwrap_or_default(),
            count(schedule.counts.fired),
            count(schedule.counts.failed),
            count(schedule.running.len() as u64),
            one_line(&schedule.description).into_owned(),
        ]);
    }
    table.without_empty_columns()
}

fn status(look: Look, schedule: &ScheduleJson) -> String {
    if schedule.problem.is_some() {
        return look.paint(Tone::Bad, format!("{} problem", look.either("⚠", "!")));
    }
    match &schedule.paused {
        Some(_) => look.paint(Tone::Warning, format!("{} paused", look.either("‖", "="))),
        None => look.paint(Tone::Good, format!("{} active", look.either("▶", ">"))),
    }
}

/// One schedule with everything about it.
pub(super) fn schedule(console: &Console, schedule: &ScheduleJson) -> Result<(), CommandError> {
    let (look, now, definition) = (console.look, console.now(), &schedule.definition);
    let name = look.paint(Tone::Strong, one_line(&schedule.id));
    let version = definition.version.map(|version| format!(" v{version}")).unwrap_or_default();
    console.line(format!(
        "{name}  starts {}{version}  {}",
        one_line(&definition.workflow),
        status(look, schedule)
    ))?;
    let fact = |label: &str, text: String| {
        console.line(format!("{}{text}", look.paint(Tone::Dim, format!("{label:<9}"))))
    };
    let rule = definition.cron.as_ref().map(|cron| format!("  ({})", one_line(cron))).unwrap_or_default();
    fact("when", format!("{}{rule}", one_line(&schedule.description)))?;
    fact("rules", rules(schedule))?;
    let queue = definition.queue.as_deref().unwrap_or("default");
    let tags: Vec<_> = definition.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let tags = if tags.is_empty() { String::new() } else { format!(" · tags {}", tags.join(" ")) };
    fact("target", format!("queue {}{}", one_line(queue), one_line(&tags)))?;
    fact("input", input(schedule))?;
    if let Some(pause) = &schedule.paused {
        let by = pause.actor.as_ref().map(|actor| format!(" by {}", one_line(actor))).unwrap_or_default();
        let since = times::ago(now, pause.since.0);
        fact("paused", format!("{since}{by}: {}", one_line(&pause.reason)))?;
    }
    if let Some(problem) = &schedule.problem {
        fact("problem", one_line(problem).into_owned())?;
    }
    if let Some(refusal) = &schedule.refusal {
        fact("refused", format!("{}: {}", times::ago(now, refusal.at.0), one_line(&refusal.message)))?;
    }
    fact("so far", counts(schedule))?;
    if let Some(last) = &schedule.last {
        let at = zone_of(console, definition.zone.as_deref()).minute(last.scheduled_at.0);
        fact("last", format!("{at}  {}", short_id(look, last.run)))?;
    }
    next(console, schedule)?;
    fact("revision", schedule.revision.to_string())
}

fn rules(schedule: &ScheduleJson) -> String {
    let definition = &schedule.definition;
    let mut rules = Vec::new();
    rules.extend(definition.overlap.map(|rule| format!("overlap {rule}")));
    let limit = definition.catch_up_limit.map(|limit| format!(" up to {limit}")).unwrap_or_default();
    rules.extend(definition.catch_up.map(|rule| format!("catch up {rule}{limit}")));
    rules.extend(definition.jitter.as_ref().map(|jitter| format!("jitter {jitter}")));
    rules.extend(definition.deadline.as_ref().map(|deadline| format!("deadline {deadline}")));
    rules.extend(definition.pause_after.map(|failures| format!("pause after {failures} failures")));
    rules.extend(definition.start_at.map(|at| format!("from {at}")));
    rules.extend(definition.end_at.map(|at| format!("until {at}")));
    rules.join(" · ")
}

fn input(schedule: &ScheduleJson) -> String {
    let definition = &schedule.definition;
    match (&definition.input_from, &definition.input) {
        (Some(step), _) => format!("the output of step {}", one_line(step)),
        (None, Some(json)) => one_line(json.get()).into_owned(),
        (None, None) if definition.input_omitted => "too large to be shown".into(),
        (None, None) => "null".into(),
    }
}

fn counts(schedule: &ScheduleJson) -> String {
    let counts = &schedule.counts;
    let mut parts = vec![format!("{} fired", counts.fired)];
    let others = [
        (counts.completed, "completed"),
        (counts.failed, "failed"),
        (counts.cancelled, "cancelled"),
        (schedule.running.len() as u64, "running"),
        (counts.skipped, "skipped"),
        (counts.missed, "missed"),
        (counts.refused, "refused"),
        (counts.repeated, "fired before"),
    ];
    parts
        .extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, name)| format!("{count} {name}")));
    if !schedule.backlog.is_empty() {
        parts.push(format!("{} ranges to backfill", schedule.backlog.len()));
    }
    parts.join(" · ")
}

/// The next instants, in the zone of the schedule and in that of the terminal.
fn next(console: &Console, schedule: &ScheduleJson) -> Result<(), CommandError> {
    let (look, now) = (console.look, console.now());
    let zone = zone_of(console, schedule.definition.zone.as_deref());
    for (index, at) in schedule.next.iter().enumerate() {
        let label = if index == 0 { "next" } else { "" };
        let (there, here) = (zone.minute(at.0), console.zone.minute(at.0));
        let here = if there == here { String::new() } else { format!("  ({here} here)") };
        console.line(format!(
            "{}{there}{here}  {}",
            look.paint(Tone::Dim, format!("{label:<9}")),
            look.paint(Tone::Dim, times::age(now, at.0))
        ))?;
    }
    Ok(())
}

/// Firings as a table.
pub(super) fn firings(console: &Console, firings: &[FiringJson]) -> Table {
    let (look, now) = (console.look, console.now());
    let mut table = Table::new([
        ("STATUS", Align::Left),
        ("INSTANT", Align::Left),
        ("RUN", Align::Left),
        ("TOOK", Align::Right),
        ("NOTE", Align::Left),
    ]);
    for firing in firings {
        let run = &firing.run;
        let took = run.ended_at.map_or(now, |at| at.0).since(run.created_at.0);
        let failure = run.failure.as_ref().map(|failure| failure.message.clone()).unwrap_or_default();
        let note = if firing.triggered { format!("triggered  {failure}") } else { failure };
        table.row([
            run_status(look, run),
            firing.scheduled_at.map(|at| console.zone.minute(at.0)).unwrap_or_default(),
            short_id(look, run.id),
            times::duration(took),
            one_line(note.trim_end()).into_owned(),
        ]);
    }
    table.without_empty_columns()
}
