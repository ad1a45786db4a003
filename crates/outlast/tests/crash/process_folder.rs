//! The folder of a test: the database (unless it is on a server), and plain files in which children log effects.
//!
//! Each entry is one line and one `write`, so that it survives the death of its process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use outlast::core::Clock;
use outlast::{StepContext, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};

/// Every line is padded to this length, a divisor of the kernel's page size of 4,096 bytes: a write within one page is
/// atomic, also when the process is killed.
const LINE_BYTES: usize = 256;

/// The output of each run, by key.
pub(crate) type Outputs = BTreeMap<String, String>;

/// A folder with the logs of the processes that use one world.
#[derive(Clone, Debug)]
pub(crate) struct ProcessFolder {
    pub(crate) folder: PathBuf,
    /// The URL of the world, if it is not in the folder.
    pub(crate) world_url: Option<String>,
}

/// A logged attempt at a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) op: u64,
    pub(crate) attempt: u32,
    pub(crate) step: String,
    pub(crate) pid: u32,
    pub(crate) at: Timestamp,
}

/// Something that was acknowledged to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ack {
    /// The run with this key is started.
    Started(String),
    /// The inbox of the run with this key has this many messages.
    Sent(String, u64),
    /// The run with this key has ended.
    Ended(String),
    /// The run with this key waits, or one of its steps does.
    Waits(String),
}

/// The result of a child that ended successfully.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) points: u64,
    pub(crate) outputs: Outputs,
}

impl ProcessFolder {
    /// A folder with an SQLite world in it.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), world_url: None }
    }

    pub(crate) fn url(&self) -> String {
        match &self.world_url {
            Some(url) => url.clone(),
            None => format!("sqlite:{}", self.database().display()),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("runs.db")
    }

    /// The file with the output of all children.
    pub(crate) fn output(&self) -> PathBuf {
        self.folder.join("output")
    }

    /// A copy of the database after a kill. The original keeps its log, so that the next process has to recover it. On
    /// a server there is no copy: this waits until the server has executed the calls of the killed process.
    pub(crate) fn copy_database(&self, name: &str) -> Self {
        if let Some(url) = &self.world_url {
            crate::postgres_schema::wait_until_disconnected(url);
            return self.clone();
        }
        let copy = Self::new(&self.folder.join(name));
        std::fs::create_dir(&copy.folder).unwrap();
        std::fs::copy(self.database(), copy.database()).unwrap();
        let log = self.folder.join("runs.db-wal");
        if log.exists() {
            std::fs::copy(log, copy.folder.join("runs.db-wal")).unwrap();
        }
        copy
    }

    /// The number of lock files of sessions.
    pub(crate) fn session_locks(&self) -> usize {
        std::fs::read_dir(self.folder.join("runs.db-sessions")).map_or(0, Iterator::count)
    }

    /// Logs an attempt at a step.
    pub(crate) fn log_effect<S>(&self, cx: &StepContext<S>, key: &str, step: &str) {
        let op = cx.key().rsplit('.').next().unwrap().parse().unwrap();
        let (key, step, pid) = (key.into(), step.into(), std::process::id());
        self.append("effects", &Effect { key, op, attempt: cx.attempt(), step, pid, at: SystemClock.now() });
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.read("effects")
    }

    /// Logs an acknowledgement.
    pub(crate) fn log_ack(&self, ack: &Ack) {
        self.append("acks", ack);
    }

    pub(crate) fn acks(&self) -> Vec<Ack> {
        self.read("acks")
    }

    /// Logs the start of a child.
    pub(crate) fn log_start(&self, at: Timestamp) {
        self.append("lives", &at);
    }

    /// The start time of each child.
    pub(crate) fn child_starts(&self) -> Vec<Timestamp> {
        self.read("lives")
    }

    pub(crate) fn write_result(&self, points: u64, outputs: Outputs) {
        let (new, whole) = (self.folder.join("report.new"), self.folder.join("report"));
        std::fs::write(&new, serde_json::to_vec(&Report { points, outputs }).unwrap()).unwrap();
        std::fs::rename(new, whole).unwrap();
    }

    /// The result of the last child that ended successfully.
    pub(crate) fn report(&self) -> Report {
        serde_json::from_slice(&std::fs::read(self.folder.join("report")).unwrap()).unwrap()
    }

    fn append(&self, file: &str, value: &impl Serialize) {
        let mut file = File::options().create(true).append(true).open(self.folder.join(file)).unwrap();
        let mut line = serde_json::to_string(value).unwrap();
        assert!(line.len() < LINE_BYTES, "an entry is too long: {line}");
        line = format!("{line:0$}\n", LINE_BYTES - 1);
        assert_eq!(file.write(line.as_bytes()).unwrap(), line.len(), "a line is written whole");
    }

    fn read<T: for<'a> Deserialize<'a>>(&self, file: &str) -> Vec<T> {
        let Ok(text) = std::fs::read_to_string(self.folder.join(file)) else { return Vec::new() };
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
