//! `schedule create` and `update`.

use outlast_api::{Rfc3339, ScheduleDefinition};

use super::super::CommandContext;
use super::super::input::read_json;
use super::print;
use crate::args::{DefinitionArgs, ScheduleCreateArgs, ScheduleUpdateArgs};
use crate::exit::{CommandError, Exit};

/// Creates a schedule.
pub(super) async fn create(
    context: &CommandContext,
    args: &ScheduleCreateArgs,
) -> Result<Exit, CommandError> {
    let timing = &args.definition.timing;
    if timing.cron.is_none() && timing.every.is_none() {
        return Err(CommandError::usage("say when it fires: `--cron EXPRESSION` or `--every DURATION`"));
    }
    let mut definition = ScheduleDefinition {
        id: Some(args.name.clone()),
        workflow: args.workflow.clone(),
        ..ScheduleDefinition::default()
    };
    apply(&mut definition, &args.definition)?;
    let created = context.surface().await?.create_schedule(&definition).await?;
    context.console.document(&created)?;
    context.console.message("created");
    print::schedule(&context.console, &created)?;
    Ok(Exit::Done)
}

/// Changes a schedule: reads it, and replaces its definition if nobody has changed it meanwhile.
pub(super) async fn update(
    context: &CommandContext,
    args: &ScheduleUpdateArgs,
) -> Result<Exit, CommandError> {
    let surface = context.surface().await?;
    let found = surface.schedule(&args.name).await?;
    let mut definition = found.definition;
    let has_input = args.definition.input.is_some();
    if !has_input && (definition.input_from.is_some() || definition.input_omitted) {
        return Err(CommandError::usage(
            "the input of this schedule is computed by a step, or too large to be read back; give it with `--input`",
        ));
    }
    definition.input_from = None;
    definition.input_omitted = false;
    if let Some(workflow) = &args.workflow {
        definition.workflow.clone_from(workflow);
        definition.version = None;
    }
    apply(&mut definition, &args.definition)?;
    let revision = args.revision.unwrap_or(found.revision);
    let replaced = surface.replace_schedule(&args.name, &definition, revision).await?;
    context.console.document(&replaced)?;
    context.console.message(format!("update: {}", print::did(replaced.did)));
    print::schedule(&context.console, &replaced.schedule)?;
    Ok(Exit::Done)
}

/// Replaces what the arguments give.
fn apply(definition: &mut ScheduleDefinition, args: &DefinitionArgs) -> Result<(), CommandError> {
    fn set<T: Clone>(field: &mut Option<T>, given: &Option<T>) {
        if given.is_some() {
            field.clone_from(given);
        }
    }
    let timing = &args.timing;
    if timing.cron.is_some() {
        definition.every = None;
    }
    if timing.every.is_some() {
        (definition.cron, definition.zone) = (None, None);
    }
    set(&mut definition.cron, &timing.cron);
    set(&mut definition.zone, &timing.zone);
    set(&mut definition.every, &timing.every);
    set(&mut definition.overlap, &args.overlap);
    if args.catch_up.is_some() {
        definition.catch_up_limit = None;
    }
    set(&mut definition.catch_up, &args.catch_up);
    set(&mut definition.catch_up_limit, &args.catch_up_limit);
    set(&mut definition.jitter, &args.jitter);
    set(&mut definition.start_at, &time("--start-at", &args.start_at)?);
    set(&mut definition.end_at, &time("--end-at", &args.end_at)?);
    set(&mut definition.pause_after, &args.pause_after);
    if let Some(input) = &args.input {
        definition.input = Some(read_json("input", input)?);
    }
    set(&mut definition.version, &args.version);
    set(&mut definition.queue, &args.queue);
    set(&mut definition.priority, &args.priority);
    set(&mut definition.deadline, &args.deadline);
    if !args.tag.is_empty() {
        definition.tags = args.tag.iter().cloned().collect();
    }
    Ok(())
}

fn time(name: &str, text: &Option<String>) -> Result<Option<Rfc3339>, CommandError> {
    let read = text.as_ref().map(|text| text.parse()).transpose();
    read.map_err(|error: outlast_api::InvalidTime| CommandError::usage(format!("{name}: {error}")))
}
