//! Where the file is and how it is written: options, and the URL that says the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outlast_core::{Clock, WorldError};

/// How a [`SqliteWorld`](crate::SqliteWorld) is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The world's clock.
    pub clock: Arc<dyn Clock>,
    /// What an acknowledged change survives, unless the URL says otherwise.
    pub sync: Durability,
    /// What is counted up for every statement that the world executes, apart from those that only begin
    /// and end transactions. For tests.
    #[doc(hidden)]
    pub statements: Option<Arc<AtomicU64>>,
}

impl SqliteOptions {
    /// The safe options, on this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, sync: Durability::Full, statements: None }
    }

    /// These options, with every statement counted.
    #[doc(hidden)]
    #[must_use]
    pub fn count_statements(mut self, statements: Arc<AtomicU64>) -> Self {
        self.statements = Some(statements);
        self
    }

    /// These options with another `sync`.
    #[must_use]
    pub fn sync(mut self, sync: Durability) -> Self {
        self.sync = sync;
        self
    }
}

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The loss of power: every commit waits for the disk.
    #[default]
    Full,
    /// The death of the process. The last commits before a loss of power may be lost, whole and in order.
    Normal,
}

/// How changes by other processes are noticed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintMode {
    /// By the doorbell, with a slow poll behind it.
    #[default]
    Behind,
    /// By polling alone: `doorbell=off`.
    Alone,
    /// By the doorbell alone: `poll=off`. For tests.
    Never,
}

impl HintMode {
    /// How often to poll, where `usual` is how often that is otherwise.
    pub(crate) fn period(self, usual: Duration) -> Option<Duration> {
        (self != Self::Never).then_some(usual)
    }
}

/// The parts of a URL such as `sqlite:shop.db?sync=normal`; a plain path is one without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteUrl {
    /// The file.
    pub path: PathBuf,
    /// What an acknowledged change survives, when the URL says so.
    pub sync: Option<Durability>,
    /// How changes by other processes are noticed.
    pub poll: HintMode,
}

impl SqliteUrl {
    /// Reads `sqlite:shop.db`, `sqlite:/var/lib/shop.db`, `sqlite:shop.db?sync=normal&doorbell=off` or a path.
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
        let mut url = Self { path: path.into(), sync: None, poll: HintMode::default() };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            url.set(text, parameter)?;
        }
        Ok(url)
    }

    fn set(&mut self, text: &str, parameter: &str) -> Result<(), WorldError> {
        match parameter {
            "sync=full" => self.sync = Some(Durability::Full),
            "sync=normal" => self.sync = Some(Durability::Normal),
            "doorbell=on" => {}
            "doorbell=off" => self.poll = HintMode::Alone,
            "poll=off" => self.poll = HintMode::Never,
            other if other.starts_with("sync=") => {
                return Err(WorldError::Invalid(format!(
                    "`{other}` in `{text}` is not known; write `sync=full` or `sync=normal`"
                )));
            }
            other => {
                return Err(WorldError::Invalid(format!(
                    "parameter `{other}` in `{text}` is not known; there are `sync` and `doorbell`"
                )));
            }
        }
        Ok(())
    }
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
            ("sqlite:shop.db?sync=normal", "shop.db", Some(Durability::Normal)),
            ("sqlite:shop.db?sync=full", "shop.db", Some(Durability::Full)),
            ("shop.db", "shop.db", None),
            ("/tmp/what?.db", "/tmp/what?.db", None),
        ];
        for (text, path, sync) in cases {
            let url = SqliteUrl { path: path.into(), sync, poll: HintMode::Behind };
            assert_eq!(SqliteUrl::parse(text), Ok(url), "{text}");
        }
    }

    #[test]
    fn a_url_says_how_others_are_heard() {
        let cases = [
            ("", HintMode::Behind),
            ("?doorbell=off&sync=full", HintMode::Alone),
            ("?poll=off", HintMode::Never),
        ];
        for (query, poll) in cases {
            assert_eq!(SqliteUrl::parse(&format!("sqlite:shop.db{query}")).unwrap().poll, poll, "{query}");
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
            ("sqlite:shop.db?cache=shared", "there are `sync` and `doorbell`"),
        ];
        for (text, remedy) in cases {
            let error = SqliteUrl::parse(text).unwrap_err();
            assert!(matches!(&error, WorldError::Invalid(message) if message.contains(remedy)), "{error}");
        }
    }
}
