//! Where the file is and how it is written: options, and the URL that says the same.

use std::path::PathBuf;
use std::sync::Arc;

use outlast_core::{Clock, WorldError};

/// How a [`SqliteWorld`](crate::SqliteWorld) is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The world's clock.
    pub clock: Arc<dyn Clock>,
    /// What an acknowledged change survives, unless the URL says otherwise.
    pub sync: Sync,
}

impl SqliteOptions {
    /// The safe options, on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sync: Sync::Full }
    }

    /// These options with another `sync`.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }
}

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// The loss of power: every commit waits for the disk.
    #[default]
    Full,
    /// The death of the process. The last commits before a loss of power may be lost, whole and in order.
    Normal,
}

/// The parts of a URL such as `sqlite:shop.db?sync=normal`; a plain path is one without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteUrl {
    /// The file.
    pub path: PathBuf,
    /// What an acknowledged change survives, when the URL says so.
    pub sync: Option<Sync>,
}

impl SqliteUrl {
    /// Reads `sqlite:shop.db`, `sqlite:/var/lib/shop.db`, `sqlite:shop.db?sync=normal` or a path.
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] when there is no path, the path asks for a database in memory, or a
    /// parameter is not known.
    pub fn parse(text: &str) -> Result<Self, WorldError> {
        let (path, query) = match text.strip_prefix("sqlite:") {
            None => (text, ""),
            Some(rest) => {
                let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
                (path.strip_prefix("//").unwrap_or(path), query)
            }
        };
        if path.is_empty() {
            return Err(WorldError::Invalid(format!(
                "`{text}` names no file; write for example `sqlite:shop.db`"
            )));
        }
        if path.contains(":memory:") {
            return Err(WorldError::Invalid(format!(
                "`{text}` asks for a database in memory; use `memory:` for a world that keeps nothing"
            )));
        }
        Ok(Self { path: path.into(), sync: parse_query(text, query)? })
    }
}

fn parse_query(text: &str, query: &str) -> Result<Option<Sync>, WorldError> {
    let mut sync = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        sync = Some(match parameter {
            "sync=full" => Sync::Full,
            "sync=normal" => Sync::Normal,
            other if other.starts_with("sync=") => {
                return Err(WorldError::Invalid(format!(
                    "`{other}` in `{text}` is not known; write `sync=full` or `sync=normal`"
                )));
            }
            other => {
                return Err(WorldError::Invalid(format!(
                    "parameter `{other}` in `{text}` is not known; the only one is `sync`"
                )));
            }
        });
    }
    Ok(sync)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_and_how() {
        let cases = [
            ("sqlite:shop.db", "shop.db", None),
            ("sqlite:/var/lib/shop.db", "/var/lib/shop.db", None),
            ("sqlite:///var/lib/shop.db", "/var/lib/shop.db", None),
            ("sqlite:shop.db?sync=normal", "shop.db", Some(Sync::Normal)),
            ("sqlite:shop.db?sync=full", "shop.db", Some(Sync::Full)),
            ("shop.db", "shop.db", None),
            ("/tmp/what?.db", "/tmp/what?.db", None),
        ];
        for (text, path, sync) in cases {
            assert_eq!(SqliteUrl::parse(text), Ok(SqliteUrl { path: path.into(), sync }), "{text}");
        }
    }

    #[test]
    fn a_url_that_makes_no_sense_is_refused_with_the_remedy() {
        let cases = [
            ("sqlite:", "names no file"),
            ("sqlite:?sync=full", "names no file"),
            ("", "names no file"),
            ("sqlite::memory:", "use `memory:`"),
            (":memory:", "use `memory:`"),
            ("sqlite:shop.db?sync=off", "`sync=full` or `sync=normal`"),
            ("sqlite:shop.db?cache=shared", "the only one is `sync`"),
        ];
        for (text, remedy) in cases {
            let error = SqliteUrl::parse(text).unwrap_err();
            assert!(matches!(&error, WorldError::Invalid(message) if message.contains(remedy)), "{error}");
        }
    }
}
