//! `completions`, `man`, `version`.

use std::fs;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::CommandContext;
use crate::args::{Arguments, grouped_help};
use crate::exit::{CommandError, Exit};

fn command(context: &CommandContext) -> clap::Command {
    Arguments::command().name(context.name.clone()).bin_name(context.name.clone())
}

/// Prints the completion script of a shell.
pub(super) fn completions(context: &CommandContext, shell: Shell) -> Result<Exit, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(context), context.name.clone(), &mut script);
    context.console.raw_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}

/// Prints the manual page of the program, or writes one page per command.
pub(super) fn man(context: &CommandContext, folder: Option<&Path>) -> Result<Exit, CommandError> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(grouped_help(command(context))).render(&mut page)?;
        context.console.raw_line(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(Exit::Done);
    };
    fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command(context), folder)?;
    context.console.message(format!("wrote manual pages to {}", folder.display()));
    Ok(Exit::Done)
}

/// Prints the version.
pub(super) fn version(context: &CommandContext) -> Result<Exit, CommandError> {
    let version = env!("CARGO_PKG_VERSION");
    let worlds = if cfg!(feature = "postgres") { vec!["sqlite", "postgres"] } else { vec!["sqlite"] };
    context.console.document(&serde_json::json!({"version": version, "worlds": worlds, "api": 1}))?;
    context.console.line(format!("outlast {version} ({})", worlds.join(", ")))?;
    Ok(Exit::Done)
}
