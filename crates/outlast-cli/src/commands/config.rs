//! `config show` and `config path`.

use super::CommandContext;
use crate::config::{Origin, Sourced, Target, without_password};
use crate::exit::{CommandError, Exit};
use crate::output::{Align, Table, one_line};

/// A setting for people and programs.
struct ShownSetting {
    name: &'static str,
    value: String,
    origin: String,
}

/// Prints all settings.
pub(super) fn show(context: &CommandContext, with_origin: bool) -> Result<Exit, CommandError> {
    let console = &context.console;
    let shown = settings(context)?;
    let documents: Vec<_> = shown
        .iter()
        .map(|setting| serde_json::json!({"name": setting.name, "value": setting.value, "origin": setting.origin}))
        .collect();
    console.page(&serde_json::json!({"items": documents}), &documents)?;
    let mut table = Table::new([("SETTING", Align::Left), ("VALUE", Align::Left), ("ORIGIN", Align::Left)]);
    for setting in shown {
        let origin = if with_origin { setting.origin } else { String::new() };
        table.row([
            setting.name.into(),
            one_line(&setting.value).into_owned(),
            one_line(&origin).into_owned(),
        ]);
    }
    console.lines(table.without_empty_columns().lines(console.look))?;
    Ok(Exit::Done)
}

fn settings(context: &CommandContext) -> Result<Vec<ShownSetting>, CommandError> {
    let settings = &context.settings;
    let row =
        |name, value: String, origin: &Origin| ShownSetting { name, value, origin: with_name(name, origin) };
    let unset = |name| row(name, "-".into(), &Origin::Default);
    let mut rows = match settings.target()? {
        Some(Target::World(world)) => vec![row("world", without_password(&world.value), &world.origin)],
        Some(Target::Server(server)) => vec![row("server", server.value, &server.origin)],
        None => vec![unset("world")],
    };
    let key =
        settings.access_key()?.map(|key| Sourced { value: "set, not shown".to_owned(), origin: key.origin });
    rows.push(key.map_or_else(|| unset("access_key"), |key| row("access_key", key.value, &key.origin)));
    let profile = settings.first(|values| values.profile.clone());
    rows.push(
        profile.map_or_else(|| unset("profile"), |profile| row("profile", profile.value, &profile.origin)),
    );
    let format = settings.format()?;
    rows.push(row("format", format!("{:?}", format.value).to_lowercase(), &format.origin));
    let color = settings.color()?;
    rows.push(row("color", format!("{:?}", color.value).to_lowercase(), &color.origin));
    let utc = settings.utc();
    rows.push(row("utc", utc.value.to_string(), &utc.origin));
    rows.push(match settings.timeout()? {
        None => unset("timeout"),
        Some(limit) => row("timeout", outlast::core::duration::duration_text(limit.value), &limit.origin),
    });
    Ok(rows)
}

/// The origin, with the name of the flag or variable.
fn with_name(name: &str, origin: &Origin) -> String {
    match origin {
        Origin::Flag if name == "access_key" => "flag --access-key-file".into(),
        Origin::Flag => format!("flag --{name}"),
        Origin::Environment => format!("environment OUTLAST_{}", name.to_uppercase()),
        other => other.to_string(),
    }
}

/// Prints the files of the configuration.
pub(super) fn path(context: &CommandContext) -> Result<Exit, CommandError> {
    let console = &context.console;
    let files = &context.settings.files;
    let user = files.user.as_ref();
    let shown = [("project", files.project.as_ref()), ("user", user)];
    for (name, file) in shown {
        let state = match file {
            Some(file) if file.is_file() => format!("{} ", file.display()),
            Some(file) => format!("{} (does not exist)", file.display()),
            None => "no outlast.toml in this folder or above it".into(),
        };
        console.document(&serde_json::json!({"name": name, "path": file}))?;
        console.line(format!("{name:<8} {}", state.trim_end()))?;
    }
    Ok(Exit::Done)
}
