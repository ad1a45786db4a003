//! The configuration: flags, environment, files, defaults, and where each value comes from.

mod files;
mod origin;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use outlast::IntoDuration;

pub(crate) use self::files::{ConfigFiles, Values};
pub(crate) use self::origin::{Origin, Sourced};
use crate::args::{ColorChoice, CommonArgs, Format};
use crate::exit::CommandError;

/// Where the world of a folder is, unless something else is configured.
pub(crate) const LOCAL_WORLD: &str = "sqlite:.outlast/outlast.db";

/// What surrounds the process: environment and folder.
#[derive(Clone)]
pub(crate) struct Surroundings {
    /// Reads a variable of the environment.
    pub(crate) variable: fn(&str) -> Option<String>,
    /// The current folder.
    pub(crate) folder: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { variable, folder: std::env::current_dir().unwrap_or_default() }
    }
}

/// All values that are set somewhere, by level.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The levels, the strongest first.
    levels: Vec<(Origin, Values)>,
    /// The files that were looked for.
    pub(crate) files: ConfigFiles,
    /// `DATABASE_URL`.
    database_url: Option<String>,
    folder: PathBuf,
}

/// Where a command connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To a world.
    World(Sourced<String>),
    /// To a server.
    Server(Sourced<String>),
}

impl Settings {
    /// Reads the configuration.
    pub(crate) fn read(flags: &CommonArgs, around: &Surroundings) -> Result<Self, CommandError> {
        let files = ConfigFiles::find(around);
        let flags = Values::of_flags(flags);
        let environment = Values::of_environment(around)?;
        let (project, user) = (files.read_project()?, files.read_user()?);
        let named = [&flags.profile, &environment.profile, &project.1.values.profile, &user.1.values.profile];
        let profile = named.into_iter().flatten().next().cloned();
        let mut levels = vec![(Origin::Flag, flags), (Origin::Environment, environment)];
        if let Some(name) = &profile {
            let in_files: Vec<_> = [&project, &user]
                .iter()
                .filter_map(|(path, file)| {
                    Some((Origin::Profile(path.clone(), name.clone()), file.profile.get(name)?.clone()))
                })
                .collect();
            if in_files.is_empty() {
                let hint = "add it to outlast.toml as [profile.…], or leave `--profile` out";
                return Err(CommandError::usage(format!("there is no profile `{name}`; {hint}")));
            }
            levels.extend(in_files);
        }
        levels.extend([project, user].map(|(path, file)| (Origin::File(path), file.values)));
        let database_url = (around.variable)("DATABASE_URL");
        Ok(Self { levels, files, database_url, folder: around.folder.clone() })
    }

    /// The first value that is set.
    pub(crate) fn first<T>(&self, value: impl Fn(&Values) -> Option<T>) -> Option<Sourced<T>> {
        let found = self.levels.iter().find_map(|(origin, values)| Some((origin, value(values)?)));
        found.map(|(origin, value)| Sourced { value, origin: origin.clone() })
    }

    /// Where to connect.
    pub(crate) fn target(&self) -> Result<Option<Target>, CommandError> {
        for (origin, values) in &self.levels {
            let from = |value: &String| Sourced { value: value.clone(), origin: origin.clone() };
            match (&values.server, &values.world) {
                (Some(_), Some(_)) => {
                    let detail = format!("both a server and a world are given ({origin}); give one of them");
                    return Err(CommandError::usage(detail));
                }
                (Some(server), None) => return Ok(Some(Target::Server(from(server)))),
                (None, Some(world)) => return Ok(Some(Target::World(from(world)))),
                (None, None) => {}
            }
        }
        if let Some(url) = &self.database_url {
            let origin = Origin::DatabaseUrl;
            return Ok(Some(Target::World(Sourced { value: url.clone(), origin })));
        }
        let local = self.folder.join(".outlast/outlast.db");
        let world = Sourced { value: LOCAL_WORLD.into(), origin: Origin::LocalFile };
        Ok(local.exists().then_some(Target::World(world)))
    }

    /// How data is printed.
    pub(crate) fn format(&self) -> Result<Sourced<Format>, CommandError> {
        self.chosen("format", |values| values.format.clone())
    }

    /// When colours are used.
    pub(crate) fn color(&self) -> Result<Sourced<ColorChoice>, CommandError> {
        self.chosen("color", |values| values.color.clone())
    }

    /// Whether times are shown in UTC.
    pub(crate) fn utc(&self) -> Sourced<bool> {
        self.first(|values| values.utc).unwrap_or(Sourced { value: false, origin: Origin::Default })
    }

    /// How long a command may take.
    pub(crate) fn timeout(&self) -> Result<Option<Sourced<Duration>>, CommandError> {
        let Some(Sourced { value, origin }) = self.first(|values| values.timeout.clone()) else {
            return Ok(None);
        };
        match value.as_str().into_duration() {
            Ok(value) => Ok(Some(Sourced { value, origin })),
            Err(error) => Err(CommandError::usage(format!("timeout ({origin}): {error}"))),
        }
    }

    /// The access key for a server.
    pub(crate) fn access_key(&self) -> Result<Option<Sourced<String>>, CommandError> {
        for (origin, values) in &self.levels {
            let origin = origin.clone();
            match (&values.access_key, &values.access_key_file) {
                (Some(key), _) => return Ok(Some(Sourced { value: key.clone(), origin })),
                (None, Some(file)) => return Ok(Some(Sourced { value: read_key(file)?, origin })),
                (None, None) => {}
            }
        }
        Ok(None)
    }

    fn chosen<T: ValueEnum + Default>(
        &self,
        name: &str,
        value: impl Fn(&Values) -> Option<String>,
    ) -> Result<Sourced<T>, CommandError> {
        let Some(Sourced { value, origin }) = self.first(value) else {
            return Ok(Sourced { value: T::default(), origin: Origin::Default });
        };
        match T::from_str(&value, true) {
            Ok(value) => Ok(Sourced { value, origin }),
            Err(_) => {
                let names: Vec<_> =
                    T::value_variants().iter().filter_map(ValueEnum::to_possible_value).collect();
                let names: Vec<_> = names.iter().map(|name| name.get_name().to_owned()).collect();
                let names = names.join(", ");
                Err(CommandError::usage(format!("{name} ({origin}): `{value}` is not one of {names}")))
            }
        }
    }
}

fn read_key(file: &Path) -> Result<String, CommandError> {
    let text = std::fs::read_to_string(file);
    let text =
        text.map_err(|error| CommandError::usage(format!("the access key in {}: {error}", file.display())))?;
    match text.trim() {
        "" => Err(CommandError::usage(format!("the file {} with the access key is empty", file.display()))),
        key => Ok(key.to_owned()),
    }
}

/// A URL without its password.
pub(crate) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((user, place)) = rest.rsplit_once('@') else { return url.to_owned() };
    match user.split_once(':') {
        Some((name, _)) => format!("{scheme}://{name}:***@{place}"),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests;
