//! `world info`, `migrate`, `prune`, `backup`.

use std::fs;
use std::path::Path;

use outlast::core::duration::duration_text;
use outlast::sqlite::SqliteUrl;
use outlast_api::PruneRequest;

use super::CommandContext;
use super::input::past_time;
use crate::config::without_password;
use crate::connect::{open_existing, world_url};
use crate::exit::{CommandError, Exit};
use crate::output::symbols::status;
use crate::output::{Tone, one_line};

/// Says where runs are stored, and how many there are.
pub(super) async fn info(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let surface = context.surface().await?;
    let world = surface.world().await?;
    console.document(&world)?;
    if !console.is_for_people() {
        return Ok(Exit::Done);
    }
    let look = console.look;
    let label = |name: &str| look.paint(Tone::Dim, format!("{name:<12}"));
    console.line(format!("{}{} {}", label("world"), one_line(&world.kind), one_line(&world.place)))?;
    console.line(format!("{}{}", label("durability"), one_line(&world.durability)))?;
    console.line(format!("{}{}", label("hints"), one_line(&world.hints)))?;
    console.line(format!("{}{}", label("clock"), console.zone.precise(world.now.0)))?;
    console.line(format!("{}{}", label("library"), one_line(&world.library)))?;
    let counts = surface.counts().await?;
    let counted: Vec<_> = counts.counts.iter().filter(|(_, count)| **count > 0).collect();
    let runs: Vec<_> =
        counted.iter().map(|(name, count)| format!("{} {count}", status(look, name))).collect();
    console.line(format!(
        "{}{}",
        label("runs"),
        if runs.is_empty() { "none".into() } else { runs.join("   ") }
    ))?;
    let workers = surface.workers().await?;
    console.line(format!("{}{}", label("workers"), workers.items.len()))?;
    Ok(Exit::Done)
}

/// Creates or upgrades the tables of a world.
pub(super) async fn migrate(context: &CommandContext) -> Result<Exit, CommandError> {
    let url = world_url(&context.settings, &context.console, "a migration")?;
    if url.starts_with("sqlite:") {
        let path = SqliteUrl::parse(&url).map_err(outlast::Error::from)?.path;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
    }
    let world = outlast::open(&url).await?;
    context.console.message(format!("{} is ready", without_password(&world.describe().place)));
    Ok(Exit::Done)
}

/// Deletes the runs that ended before a time.
pub(super) async fn prune(
    context: &CommandContext,
    ended_before: &str,
    is_dry: bool,
    is_confirmed: bool,
) -> Result<Exit, CommandError> {
    let console = &context.console;
    let before = past_time(console.now(), "--ended-before", ended_before)?;
    let surface = context.surface().await?;
    if is_dry || !is_confirmed {
        let counted = surface.prune(&PruneRequest { ended_before: before, dry_run: true }).await?;
        let count = counted.deleted;
        let at_least = if counted.more { "more than " } else { "" };
        let time = console.zone.precise(before.0);
        console.message(format!("delete {at_least}{count} runs that ended before {time}"));
        if is_dry || count == 0 {
            console.document(&counted)?;
            return Ok(Exit::Done);
        }
        if !console.can_ask() {
            return Err(CommandError::usage(format!(
                "nobody can confirm to delete {count} runs; add `--yes`"
            )));
        }
        if console.ask("Type the number of runs to go on:")? != count.to_string() {
            console.message("nothing was done");
            return Err(CommandError::Interrupted);
        }
    }
    let pruned = surface.prune(&PruneRequest { ended_before: before, dry_run: false }).await?;
    console.document(&pruned)?;
    console.line(format!("deleted {} runs", pruned.deleted))?;
    Ok(Exit::Done)
}

/// Copies a world to a new file.
pub(super) async fn backup(context: &CommandContext, file: &Path) -> Result<Exit, CommandError> {
    let url = world_url(&context.settings, &context.console, "a backup")?;
    let world = open_existing(&url).await?;
    let clock = world.clock();
    let begin = clock.now();
    outlast::backup(&*world, file).await?;
    let took = duration_text(clock.now().since(begin));
    context.console.message(format!("copied to {} in {took}", file.display()));
    Ok(Exit::Done)
}
