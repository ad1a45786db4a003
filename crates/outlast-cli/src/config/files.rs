//! The values of each level, and the files of the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Surroundings;
use crate::args::CommonArgs;
use crate::exit::CommandError;

/// The values that one level sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) world: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) access_key: Option<String>,
    pub(crate) access_key_file: Option<PathBuf>,
    pub(crate) profile: Option<String>,
    pub(crate) format: Option<String>,
    pub(crate) color: Option<String>,
    pub(crate) utc: Option<bool>,
    pub(crate) timeout: Option<String>,
}

impl Values {
    /// The values of flags.
    pub(super) fn of_flags(flags: &CommonArgs) -> Self {
        let format = match (flags.json, flags.jsonl) {
            (true, _) => Some("json".into()),
            (_, true) => Some("jsonl".into()),
            _ => flags.format.map(|format| format!("{format:?}").to_lowercase()),
        };
        Self {
            world: flags.world.clone(),
            server: flags.server.clone(),
            access_key: None,
            access_key_file: flags.access_key_file.clone(),
            profile: flags.profile.clone(),
            format,
            color: flags.color.map(|color| format!("{color:?}").to_lowercase()),
            utc: flags.utc.then_some(true),
            timeout: flags.timeout.clone(),
        }
    }

    /// The values of the environment.
    pub(super) fn of_environment(around: &Surroundings) -> Result<Self, CommandError> {
        let read = |name: &str| (around.variable)(&format!("OUTLAST_{name}"));
        let utc = match read("UTC").as_deref() {
            None => None,
            Some("1" | "true" | "yes") => Some(true),
            Some("0" | "false" | "no") => Some(false),
            Some(other) => {
                return Err(CommandError::usage(format!("OUTLAST_UTC is `{other}`; write true or false")));
            }
        };
        Ok(Self {
            world: read("WORLD"),
            server: read("SERVER"),
            access_key: read("ACCESS_KEY"),
            access_key_file: read("ACCESS_KEY_FILE").map(PathBuf::from),
            profile: read("PROFILE"),
            format: read("FORMAT"),
            color: read("COLOR"),
            utc,
            timeout: read("TIMEOUT"),
        })
    }
}

/// What a file contains.
#[derive(Debug, Default)]
pub(super) struct FileContent {
    pub(super) values: Values,
    pub(super) profile: BTreeMap<String, Values>,
}

/// The text of a file. Keys that are not known are errors.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileText {
    world: Option<String>,
    server: Option<String>,
    access_key_file: Option<PathBuf>,
    #[serde(default)]
    profile: ProfileText,
    format: Option<String>,
    color: Option<String>,
    utc: Option<bool>,
    timeout: Option<String>,
}

/// The key `profile`: the name of the profile that is used, or the profiles.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ProfileText {
    Name(String),
    Tables(BTreeMap<String, ProfileTable>),
}

impl Default for ProfileText {
    fn default() -> Self {
        Self::Tables(BTreeMap::new())
    }
}

/// One profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileTable {
    world: Option<String>,
    server: Option<String>,
    access_key_file: Option<PathBuf>,
    format: Option<String>,
    color: Option<String>,
    utc: Option<bool>,
    timeout: Option<String>,
}

impl ProfileTable {
    /// Relative paths are relative to the folder of the file.
    fn values(self, folder: &Path) -> Values {
        Values {
            world: self.world,
            server: self.server,
            access_key: None,
            access_key_file: self.access_key_file.map(|file| folder.join(file)),
            profile: None,
            format: self.format,
            color: self.color,
            utc: self.utc,
            timeout: self.timeout,
        }
    }
}

/// The files of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFiles {
    /// The nearest `outlast.toml`, from the current folder up to the root of the repository.
    pub(crate) project: Option<PathBuf>,
    /// The file of the person, whether it exists or not.
    pub(crate) user: Option<PathBuf>,
}

impl ConfigFiles {
    /// Finds them.
    pub(super) fn find(around: &Surroundings) -> Self {
        let mut project = None;
        for folder in around.folder.ancestors() {
            let file = folder.join("outlast.toml");
            if file.is_file() {
                project = Some(file);
                break;
            }
            if folder.join(".git").exists() {
                break;
            }
        }
        let home = || Some(PathBuf::from((around.variable)("HOME")?).join(".config"));
        let base = (around.variable)("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
        Self { project, user: base.map(|base| base.join("outlast/config.toml")) }
    }

    /// The file of the project, and what it contains.
    pub(super) fn read_project(&self) -> Result<(PathBuf, FileContent), CommandError> {
        read(self.project.as_deref())
    }

    /// The file of the person, and what it contains.
    pub(super) fn read_user(&self) -> Result<(PathBuf, FileContent), CommandError> {
        read(self.user.as_deref().filter(|file| file.is_file()))
    }
}

fn read(file: Option<&Path>) -> Result<(PathBuf, FileContent), CommandError> {
    let Some(file) = file else { return Ok((PathBuf::new(), FileContent::default())) };
    let problem =
        |why: String| CommandError::usage(format!("the configuration file {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| problem(error.to_string()))?;
    let content: FileText = toml::from_str(&text).map_err(|error| problem(error.to_string()))?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let (profile, profiles) = match content.profile {
        ProfileText::Name(name) => (Some(name), BTreeMap::new()),
        ProfileText::Tables(tables) => (None, tables),
    };
    let values = Values {
        world: content.world,
        server: content.server,
        access_key: None,
        access_key_file: content.access_key_file.map(|file| folder.join(file)),
        profile,
        format: content.format,
        color: content.color,
        utc: content.utc,
        timeout: content.timeout,
    };
    let profile = profiles.into_iter().map(|(name, table)| (name, table.values(folder))).collect();
    Ok((file.to_owned(), FileContent { values, profile }))
}
