//! A folder with the bank's file and the notes of all who used one world, which is a file in it or elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outlast::Timestamp;
use serde::{Deserialize, Serialize};

use super::bank::{Bank, Entry};
use super::notebook::{Mark, Notebook, read};

/// The files of a folder, and the world.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    folder: PathBuf,
    /// Where the world is, if not in the folder.
    elsewhere: Option<String>,
}

/// The worlds that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WorldKind {
    /// One file, several processes.
    Sqlite,
    /// A server of this program's own, which may be restarted.
    Postgres,
}

impl WorldKind {
    /// The session of a worker. Short, so that a frozen one is taken over soon; but a server that restarts
    /// must be back before.
    pub(crate) fn session(self) -> Duration {
        match self {
            Self::Sqlite => Duration::from_secs(1),
            Self::Postgres => Duration::from_secs(6),
        }
    }

    /// How far a turn's time may be behind the machine's: a worker knows the clock of a server from its answers,
    /// and those take their time.
    pub(crate) fn lag(self) -> Duration {
        match self {
            Self::Sqlite => Duration::ZERO,
            Self::Postgres => Duration::from_millis(250),
        }
    }
}

/// The files that are appended to, besides the database.
pub(crate) const NOTEBOOKS: [&str; 4] = [BANK, ATTEMPTS, ACKS, DIARY];
const BANK: &str = "bank";
const ATTEMPTS: &str = "attempts";
const ACKS: &str = "acks";
const DIARY: &str = "diary";

/// The database's own files. The shared memory is not among them: it is made anew from the log.
pub(crate) const DATABASE: [&str; 2] = ["runs.db", "runs.db-wal"];

/// An attempt at a step, as the outside saw it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AttemptNote {
    /// The step's key: run, generation and operation.
    pub(crate) key: String,
    pub(crate) attempt: u32,
    pub(crate) step: String,
    /// The life of a worker that made it.
    pub(crate) life: u32,
    pub(crate) at: Timestamp,
}

/// Something that a client was told is done. Runs are named by their keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ack {
    Started(String),
    /// The run's inbox has a message.
    Sent(String),
    Ended(String),
}

/// What became of a worker's life.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Diary {
    Born {
        life: u32,
        pid: u32,
        fate: String,
    },
    /// It died by SIGKILL.
    Killed {
        life: u32,
    },
    /// It was frozen by SIGSTOP, and let go on.
    Frozen {
        life: u32,
        from: Timestamp,
        until: Timestamp,
    },
    /// Its session was lost, and it opened another one.
    Lost {
        life: u32,
        at: Timestamp,
    },
    /// The server did not answer in between.
    Restarted {
        how: String,
        from: Timestamp,
        until: Timestamp,
    },
    /// It took over this many runs of others.
    Took {
        life: u32,
        runs: u64,
    },
}

impl Place {
    /// The folder, which is there, with the world in it.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), elsewhere: None }
    }

    /// The folder, which is there, with the world at this URL.
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

    /// Where a life of a worker says what it has to say.
    pub(crate) fn log(&self, life: u32) -> PathBuf {
        self.folder.join(format!("worker-{life}.log"))
    }

    /// Opens the files that are appended to. `mark` makes what is told of each line, by the file's name.
    pub(crate) fn open(&self, mark: impl Fn(&'static str) -> Option<Mark>) -> io::Result<Books> {
        let open = |name| {
            let notebook = Notebook::open(&self.folder.join(name))?;
            Ok::<_, io::Error>(match mark(name) {
                Some(mark) => notebook.marked(mark),
                None => notebook,
            })
        };
        Ok(Books {
            bank: Bank::new(open(BANK)?),
            attempts: open(ATTEMPTS)?,
            acks: open(ACKS)?,
            diary: open(DIARY)?,
        })
    }

    pub(crate) fn entries(&self) -> io::Result<Vec<Entry>> {
        read(&self.folder.join(BANK))
    }

    pub(crate) fn attempts(&self) -> io::Result<Vec<AttemptNote>> {
        read(&self.folder.join(ATTEMPTS))
    }

    pub(crate) fn acks(&self) -> io::Result<Vec<Ack>> {
        read(&self.folder.join(ACKS))
    }

    pub(crate) fn diary(&self) -> io::Result<Vec<Diary>> {
        read(&self.folder.join(DIARY))
    }
}

/// The files that a process appends to.
pub(crate) struct Books {
    pub(crate) bank: Bank,
    pub(crate) attempts: Notebook,
    pub(crate) acks: Notebook,
    pub(crate) diary: Notebook,
}
