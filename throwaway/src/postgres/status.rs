//! Reads the files of a server.

use std::fmt;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

/// The maximum length of the shown end of a log.
const TAIL_BYTES_MAX: u64 = 4_000;

/// Lines of `postmaster.pid`, counted from 0: the server's process, its shared memory, its status.
const PID_LINE: usize = 0;
const MEMORY_LINE: usize = 6;
const STATUS_LINE: usize = 7;

/// Whether the server with this pid accepts connections. The file of an earlier process has another pid.
pub(super) fn is_ready(data: &Path, pid: u32) -> bool {
    line(data, PID_LINE).is_some_and(|line| line == pid.to_string())
        && line(data, STATUS_LINE).is_some_and(|line| line == "ready")
}

/// Frees the shared memory segment of a killed server.
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
pub(super) struct StartFailure {
    reason: String,
    output: String,
}

impl StartFailure {
    /// With the part of the server's log after `begin`.
    pub(super) fn new(reason: &str, log: &Path, begin: u64) -> Self {
        Self { reason: reason.into(), output: since(log, begin) }
    }

    /// Whether the port is in use.
    pub(super) fn is_port_in_use(&self) -> bool {
        self.output.contains("Address already in use")
    }

    /// Whether the start can succeed later: processes of a killed server still run.
    pub(super) fn is_temporary(&self) -> bool {
        self.output.contains("pre-existing shared memory block") || self.is_port_in_use()
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; its log ends with:\n{}", self.reason, self.output)
    }
}

/// The current length of the file.
pub(super) fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |data| data.len())
}

/// The end of the file.
pub(super) fn tail(file: &Path) -> String {
    since(file, 0)
}

/// The end of the part of the file after `begin`.
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
