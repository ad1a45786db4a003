//! The plain files beside the database, in which children write what they did to the outside.
//!
//! Each note is one line and one `write`, so that whatever a process did before it died is there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use outlast::core::Clock;
use outlast::{StepContext, SystemClock, Timestamp};
use serde::{Deserialize, Serialize};

/// Every line is filled up to this, a part of the kernel's page of 4,096 bytes: what crosses no page is
/// seen whole or not at all, also after a kill.
const LINE_BYTES: usize = 256;

/// What each run came to, by key.
pub(crate) type Outputs = BTreeMap<String, String>;

/// A folder with the notes of the processes that used one world, which is a file in it or elsewhere.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    /// The URL of a world elsewhere.
    pub(crate) elsewhere: Option<String>,
}

/// An attempt at a step, as the outside saw it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) op: u64,
    pub(crate) attempt: u32,
    pub(crate) step: String,
    pub(crate) pid: u32,
    pub(crate) at: Timestamp,
}

/// Something that a client was told is done.
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

/// What a child that ended by itself leaves behind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) points: u64,
    pub(crate) outputs: Outputs,
}

impl Place {
    /// A folder with a file as its world.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), elsewhere: None }
    }

    pub(crate) fn url(&self) -> String {
        match &self.elsewhere {
            Some(url) => url.clone(),
            None => format!("sqlite:{}", self.database().display()),
        }
    }

    fn database(&self) -> PathBuf {
        self.folder.join("runs.db")
    }

    /// A copy of the database as the dead left it. The original keeps its log, so that the next process
    /// has to recover it by itself. A server is looked at as it is, once it has done what the dead asked for.
    pub(crate) fn copy_database(&self, name: &str) -> Self {
        #[cfg(feature = "postgres")]
        if let Some(url) = &self.elsewhere {
            crate::server::wait_until_alone(url);
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

    /// How many sessions have a lock, held or left behind.
    pub(crate) fn session_locks(&self) -> usize {
        std::fs::read_dir(self.folder.join("runs.db-sessions")).map_or(0, Iterator::count)
    }

    /// Notes an attempt at a step.
    pub(crate) fn note_effect<S>(&self, cx: &StepContext<S>, key: &str, step: &str) {
        let op = cx.key().rsplit('.').next().unwrap().parse().unwrap();
        let (key, step, pid) = (key.into(), step.into(), std::process::id());
        self.note("effects", &Effect { key, op, attempt: cx.attempt(), step, pid, at: SystemClock.now() });
    }

    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.notes("effects")
    }

    /// Notes what a client was told.
    pub(crate) fn note_ack(&self, ack: &Ack) {
        self.note("acks", ack);
    }

    pub(crate) fn acks(&self) -> Vec<Ack> {
        self.notes("acks")
    }

    /// Notes when a child began.
    pub(crate) fn note_life(&self, at: Timestamp) {
        self.note("lives", &at);
    }

    /// When each child began.
    pub(crate) fn lives(&self) -> Vec<Timestamp> {
        self.notes("lives")
    }

    pub(crate) fn write_result(&self, points: u64, outputs: Outputs) {
        let (new, whole) = (self.folder.join("report.new"), self.folder.join("report"));
        std::fs::write(&new, serde_json::to_vec(&Report { points, outputs }).unwrap()).unwrap();
        std::fs::rename(new, whole).unwrap();
    }

    /// What the last child that ended by itself left behind.
    pub(crate) fn report(&self) -> Report {
        serde_json::from_slice(&std::fs::read(self.folder.join("report")).unwrap()).unwrap()
    }

    fn note(&self, file: &str, note: &impl Serialize) {
        let mut file = File::options().create(true).append(true).open(self.folder.join(file)).unwrap();
        let mut line = serde_json::to_string(note).unwrap();
        assert!(line.len() < LINE_BYTES, "a note is short: {line}");
        line = format!("{line:0$}\n", LINE_BYTES - 1);
        assert_eq!(file.write(line.as_bytes()).unwrap(), line.len(), "a line is written whole");
    }

    fn notes<T: for<'a> Deserialize<'a>>(&self, file: &str) -> Vec<T> {
        let Ok(text) = std::fs::read_to_string(self.folder.join(file)) else { return Vec::new() };
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
