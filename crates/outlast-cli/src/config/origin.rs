//! Where a value of the configuration comes from.

use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A flag of the command.
    Flag,
    /// The environment.
    Environment,
    /// A profile of a file.
    Profile(PathBuf, String),
    /// A file.
    File(PathBuf),
    /// The variable `DATABASE_URL`.
    DatabaseUrl,
    /// A file of the current folder exists.
    LocalFile,
    /// Nobody has set it.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment => f.write_str("environment"),
            Self::Profile(path, name) => write!(f, "{} [profile.{name}]", path.display()),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::DatabaseUrl => f.write_str("DATABASE_URL"),
            Self::LocalFile => f.write_str("found in this folder"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sourced<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}
