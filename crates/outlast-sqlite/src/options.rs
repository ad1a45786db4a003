//! The options of a world, and the URL that can set them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Clock, WorldError};

use crate::connection::statement_counter::StatementCounter;

/// How long a call waits for the write lock of the file, by default. Transactions take milliseconds, so a process that
/// holds the lock for longer is stopped or does something else.
const LOCK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// The maximum length of a file name on the file systems of Linux, macOS and Windows.
const FILE_NAME_BYTES_MAX: usize = 255;

/// The options of a [`SqliteWorld`](crate::SqliteWorld).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The world's clock.
    pub clock: Arc<dyn Clock>,
    /// What an acknowledged change survives. The URL takes precedence.
    pub sync: Durability,
    /// How long a call that writes waits while another process holds the write lock of the file. The URL takes
    /// precedence.
    pub lock_timeout: Duration,
    pub(crate) statements: StatementCounter,
}

impl SqliteOptions {
    /// The default options with this clock: every commit survives a power failure.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            sync: Durability::Full,
            lock_timeout: LOCK_TIMEOUT_DEFAULT,
            statements: StatementCounter::default(),
        }
    }

    /// Counts the statements that the world executes, without those that begin and end transactions. For tests.
    #[cfg(feature = "test-support")]
    #[must_use]
    pub fn count_statements(mut self, statements: Arc<std::sync::atomic::AtomicU64>) -> Self {
        self.statements = StatementCounter::new(statements);
        self
    }

    /// Sets how long a call that writes waits while another process holds the write lock of the file. After that it
    /// fails with [`WorldError::Unavailable`], which names the process if the system tells. The default is 5 seconds.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets what an acknowledged change survives.
    #[must_use]
    pub fn sync(mut self, sync: Durability) -> Self {
        self.sync = sync;
        self
    }
}

/// What an acknowledged change survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// A power failure: every commit waits for the disk.
    #[default]
    Full,
    /// The death of the process. A power failure may lose the most recent commits; the commits before them survive
    /// completely.
    Normal,
}

/// How a process notices changes by other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HintMode {
    /// By hints through its socket, and by a slow poll in case a hint is lost.
    #[default]
    SocketAndPoll,
    /// By polling only: `doorbell=off`.
    PollOnly,
    /// By hints through its socket only: `poll=off`. For tests.
    SocketOnly,
}

impl HintMode {
    /// The interval between polls: `interval`, or `None` if this mode does not poll.
    pub(crate) fn poll_interval(self, interval: Duration) -> Option<Duration> {
        (self != Self::SocketOnly).then_some(interval)
    }
}

/// The parts of a URL such as `sqlite:shop.db?sync=normal`. A plain path is a URL without parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteUrl {
    /// The file.
    pub path: PathBuf,
    /// What an acknowledged change survives, if the URL sets it.
    pub sync: Option<Durability>,
    /// How long a call waits for the write lock, if the URL sets it: `timeout=10`, in seconds.
    pub lock_timeout: Option<Duration>,
    /// How this process notices changes by other processes.
    pub hint_mode: HintMode,
}

impl SqliteUrl {
    /// Parses `sqlite:shop.db`, `sqlite:/var/lib/shop.db`, `sqlite:shop.db?sync=normal&timeout=10` or a path.
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] if there is no path, the path names an in-memory database, or a parameter is unknown.
    pub fn parse(text: &str) -> Result<Self, WorldError> {
        let (path, query) = match text.strip_prefix("sqlite:") {
            None => (text, ""),
            Some(rest) => {
                let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
                (path.strip_prefix("//").unwrap_or(path), query)
            }
        };
        if path.is_empty() {
            return Err(WorldError::invalid(format!(
                "`{text}` names no file; write for example `sqlite:shop.db`"
            )));
        }
        if path.contains(":memory:") {
            return Err(WorldError::invalid(format!(
                "`{text}` names an in-memory database; use `memory:` for a world without a file"
            )));
        }
        check_file_name(path)?;
        let mut url =
            Self { path: path.into(), sync: None, lock_timeout: None, hint_mode: HintMode::default() };
        let mut names = BTreeSet::new();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or(parameter);
            if !names.insert(name) {
                return Err(WorldError::invalid(format!("`{text}` has `{name}` twice; write it once")));
            }
            url.set(text, parameter)?;
        }
        Ok(url)
    }

    /// Sets the option that one parameter of the URL names, for example `sync=full`. `text` is the URL, for errors.
    fn set(&mut self, text: &str, parameter: &str) -> Result<(), WorldError> {
        match parameter {
            "sync=full" => self.sync = Some(Durability::Full),
            "sync=normal" => self.sync = Some(Durability::Normal),
            "doorbell=on" => {}
            "doorbell=off" => self.hint_mode = HintMode::PollOnly,
            "poll=off" => self.hint_mode = HintMode::SocketOnly,
            other if other.starts_with("sync=") => {
                return Err(WorldError::invalid(format!(
                    "unknown value `{other}` in `{text}`; write `sync=full` or `sync=normal`"
                )));
            }
            other if other.starts_with("doorbell=") => {
                return Err(WorldError::invalid(format!(
                    "unknown value `{other}` in `{text}`; write `doorbell=on` or `doorbell=off`"
                )));
            }
            other if other.starts_with("timeout=") => self.lock_timeout = Some(seconds(text, other)?),
            other => {
                return Err(WorldError::invalid(format!(
                    "unknown parameter `{other}` in `{text}`; the parameters are `sync`, `timeout`, `doorbell` and `poll`"
                )));
            }
        }
        Ok(())
    }
}

/// Refuses the path of a file that cannot exist.
fn check_file_name(path: &str) -> Result<(), WorldError> {
    if path.contains('\0') {
        return Err(WorldError::invalid(format!("the path {path:?} contains a NUL character; remove it")));
    }
    let name = Path::new(path).file_name().map_or(0, |name| name.len());
    if name > FILE_NAME_BYTES_MAX {
        return Err(WorldError::invalid(format!(
            "the file name in `{path}` has {name} bytes, the limit is {FILE_NAME_BYTES_MAX}; choose a shorter one"
        )));
    }
    Ok(())
}

/// Parses a parameter such as `timeout=10`. `text` is the URL, for the error.
fn seconds(text: &str, parameter: &str) -> Result<Duration, WorldError> {
    let value = parameter.split_once('=').and_then(|(_, value)| value.parse().ok());
    let seconds = value.filter(|seconds| (1..=3_600).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        WorldError::invalid(format!(
            "`{parameter}` in `{text}` is invalid; write seconds as a number from 1 to 3600, without a unit: \
             `timeout=10`"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_contains_the_path_and_the_sync_mode() {
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
            let url =
                SqliteUrl { path: path.into(), sync, lock_timeout: None, hint_mode: HintMode::SocketAndPoll };
            assert_eq!(SqliteUrl::parse(text), Ok(url), "{text}");
        }
    }

    #[test]
    fn a_url_sets_the_lock_timeout() {
        let url = SqliteUrl::parse("sqlite:shop.db?timeout=10&sync=full").unwrap();
        assert_eq!(url.lock_timeout, Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_url_sets_the_hint_mode() {
        let cases = [
            ("", HintMode::SocketAndPoll),
            ("?doorbell=off&sync=full", HintMode::PollOnly),
            ("?poll=off", HintMode::SocketOnly),
        ];
        for (query, hint_mode) in cases {
            assert_eq!(
                SqliteUrl::parse(&format!("sqlite:shop.db{query}")).unwrap().hint_mode,
                hint_mode,
                "{query}"
            );
        }
    }

    #[test]
    fn an_invalid_url_is_refused_with_a_remedy() {
        let long_name = format!("sqlite:{}", "x".repeat(300));
        let cases = [
            ("sqlite:", "names no file"),
            ("sqlite:?sync=full", "names no file"),
            ("", "names no file"),
            ("sqlite::memory:", "use `memory:`"),
            (":memory:", "use `memory:`"),
            ("sqlite:shop.db?sync=off", "`sync=full` or `sync=normal`"),
            ("sqlite:shop.db?doorbell=no", "`doorbell=on` or `doorbell=off`"),
            ("sqlite:shop.db?cache=shared", "the parameters are `sync`, `timeout`, `doorbell` and `poll`"),
            ("sqlite:shop.db?sync=full&sync=normal", "has `sync` twice; write it once"),
            ("sqlite:shop\0.db", "contains a NUL character"),
            (&long_name, "has 300 bytes, the limit is 255"),
            ("sqlite:shop.db?timeout=10s", "without a unit: `timeout=10`"),
            ("sqlite:shop.db?timeout=0", "a number from 1 to 3600"),
        ];
        for (text, remedy) in cases {
            let error = SqliteUrl::parse(text).unwrap_err();
            assert!(matches!(&error, WorldError::Invalid(message) if message.contains(remedy)), "{error}");
        }
    }
}
