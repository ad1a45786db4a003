//! The working directory of a test: the database (unless it is on a server), the bank's file, and the logs of all
//! processes.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::Timestamp;
use serde::{Deserialize, Serialize};

use super::append_log::{AppendCallback, AppendLog, read};
use super::bank::{Bank, BankEntry};

/// The files of a working directory, and the URL of the world.
#[derive(Clone, Debug)]
pub(crate) struct Workdir {
    folder: PathBuf,
    /// The URL of the world, if it is not in the folder.
    elsewhere: Option<String>,
}

/// The worlds that can be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WorldKind {
    /// One file, several processes.
    Sqlite,
    /// A server of this program's own, which may be restarted.
    Postgres,
}

impl WorldKind {
    /// The session time of a worker. Short, so that a frozen worker is taken over soon, but longer than a restart of
    /// the server.
    pub(crate) fn session(self) -> Duration {
        match self {
            Self::Sqlite => Duration::from_secs(1),
            Self::Postgres => Duration::from_secs(6),
        }
    }

    /// How far a turn's time may be behind the machine's: a worker estimates the clock of a server from its answers,
    /// which are delayed.
    pub(crate) fn lag(self) -> Duration {
        match self {
            Self::Sqlite => Duration::ZERO,
            Self::Postgres => Duration::from_millis(250),
        }
    }
}

/// The files that are appended to, besides the database.
pub(crate) const LOG_FILES: [&str; 4] = [BANK, ATTEMPTS, ACKS, PROCESS_EVENTS];
const BANK: &str = "bank";
const ATTEMPTS: &str = "attempts";
const ACKS: &str = "acks";
const PROCESS_EVENTS: &str = "diary";

/// The files of the database, without the shared memory, which SQLite recreates from the log.
pub(crate) const DATABASE: [&str; 2] = ["runs.db", "runs.db-wal"];

/// An attempt at a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttemptNote {
    /// The step's key: run, generation and operation.
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) step: String,
    /// The number of the worker process that made it.
    #[serde(rename = "life")]
    pub(crate) worker_number: u32,
    pub(crate) at: Timestamp,
}

/// Something that was acknowledged to a client. Runs are identified by their keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ack {
    Started(String),
    /// The run's inbox has a message.
    Sent(String),
    Ended(String),
}

/// An event of a worker's process, or of the server. The stored names are those of older builds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ProcessEvent {
    /// It was started.
    #[serde(rename = "Born")]
    Started {
        #[serde(rename = "life")]
        worker_number: u32,
        pid: u32,
        #[serde(rename = "fate")]
        plan: String,
    },
    /// It was killed by SIGKILL.
    Killed {
        #[serde(rename = "life")]
        worker_number: u32,
    },
    /// It was frozen by SIGSTOP, and continued.
    Frozen {
        #[serde(rename = "life")]
        worker_number: u32,
        from: Timestamp,
        until: Timestamp,
    },
    /// Its session was lost, and it opened another one.
    #[serde(rename = "Lost")]
    SessionLost {
        #[serde(rename = "life")]
        worker_number: u32,
        at: Timestamp,
    },
    /// It stopped as it was asked to, in the middle of the load.
    Left {
        #[serde(rename = "life")]
        worker_number: u32,
    },
    /// The server did not answer in between.
    Restarted { how: String, from: Timestamp, until: Timestamp },
    /// It took over this many runs of others.
    #[serde(rename = "Took")]
    TookOver {
        #[serde(rename = "life")]
        worker_number: u32,
        runs: u64,
    },
}

impl Workdir {
    /// An existing folder, with the world in it.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), elsewhere: None }
    }

    /// An existing folder, with the world at this URL.
    pub(crate) fn with_world(folder: &Path, url: impl Into<String>) -> Self {
        Self { folder: folder.into(), elsewhere: Some(url.into()) }
    }

    pub(crate) fn world(&self) -> WorldKind {
        if self.elsewhere.is_some() { WorldKind::Postgres } else { WorldKind::Sqlite }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The URL of the world.
    pub(crate) fn url(&self) -> String {
        match &self.elsewhere {
            Some(url) => url.clone(),
            None => format!("sqlite:{}", self.database().display()),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join(DATABASE[0])
    }

    /// The log file of a worker process.
    pub(crate) fn log(&self, worker_number: u32) -> PathBuf {
        self.folder.join(format!("worker-{worker_number}.log"))
    }

    /// Opens the logs. `callback` returns the callback of each log, by the file's name.
    pub(crate) fn open(
        &self,
        callback: impl Fn(&'static str) -> Option<AppendCallback>,
    ) -> io::Result<LogFiles> {
        let open = |name| {
            let append_log = AppendLog::open(&self.folder.join(name))?;
            Ok::<_, io::Error>(match callback(name) {
                Some(callback) => append_log.with_callback(callback),
                None => append_log,
            })
        };
        Ok(LogFiles {
            bank: Bank::new(open(BANK)?),
            attempts: open(ATTEMPTS)?,
            acks: open(ACKS)?,
            process_events: open(PROCESS_EVENTS)?,
        })
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<BankEntry>> {
        read(&self.folder.join(BANK))
    }

    pub(crate) fn attempts(&self) -> io::Result<Vec<AttemptNote>> {
        read(&self.folder.join(ATTEMPTS))
    }

    pub(crate) fn acks(&self) -> io::Result<Vec<Ack>> {
        read(&self.folder.join(ACKS))
    }

    pub(crate) fn process_events(&self) -> io::Result<Vec<ProcessEvent>> {
        read(&self.folder.join(PROCESS_EVENTS))
    }
}

/// The logs that a process appends to.
pub(crate) struct LogFiles {
    pub(crate) bank: Bank,
    pub(crate) attempts: AppendLog,
    pub(crate) acks: AppendLog,
    pub(crate) process_events: AppendLog,
}
