//! What a server's files say of it.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

/// How much of a log is shown.
const TAIL_BYTES_MAX: u64 = 4_000;

/// Lines of `postmaster.pid`, counted from 0: the server's process, its shared memory, its status.
const PID_LINE: usize = 0;
const MEMORY_LINE: usize = 6;
const STATUS_LINE: usize = 7;

/// Whether the server with this process takes connections. The file of an earlier life has another number.
pub(super) fn is_ready(data: &Path, pid: u32) -> bool {
    line(data, PID_LINE).is_some_and(|line| line == pid.to_string())
        && line(data, STATUS_LINE).is_some_and(|line| line == "ready")
}

/// Frees the small piece of shared memory that a killed server leaves. It is only tidiness.
pub(super) fn free_memory(data: &Path) {
    let Some(memory) = line(data, MEMORY_LINE) else { return };
    let Some(id) = memory.split_whitespace().last() else { return };
    let mut command = Command::new("ipcrm");
    let _ =
        command.args(["-m", id]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

fn line(data: &Path, index: usize) -> Option<String> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().nth(index).map(|line| line.trim().to_owned())
}

/// Why a server did not start.
#[derive(Debug)]
pub(super) struct Refusal {
    reason: String,
    said: String,
}

impl Refusal {
    /// With what the server has written to its log since it was `begin` long.
    pub(super) fn new(reason: &str, log: &Path, begin: u64) -> Self {
        Self { reason: reason.into(), said: since(log, begin) }
    }

    /// Whether somebody else has the port.
    pub(super) fn is_of_the_port(&self) -> bool {
        self.said.contains("Address already in use")
    }

    /// Whether what a killed server left still goes on for a moment.
    pub(super) fn is_for_now(&self) -> bool {
        self.said.contains("pre-existing shared memory block") || self.is_of_the_port()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; it said:\n{}", self.reason, self.said)
    }
}

/// How long the file is by now.
pub(super) fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |data| data.len())
}

/// The end of the file.
pub(super) fn tail(file: &Path) -> String {
    since(file, 0)
}

/// The end of what was added to the file since it was `begin` long.
fn since(file: &Path, begin: u64) -> String {
    let begin = begin.max(length(file).saturating_sub(TAIL_BYTES_MAX));
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(file)
        && file.seek(SeekFrom::Start(begin)).is_ok()
    {
        let _ = file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).trim_end().to_owned()
}
