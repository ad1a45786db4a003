//! Logs that several processes append to, and that survive the death of any of them.
//!
//! A process appends under the file's lock, which the kernel releases when the process dies. A process that dies in
//! the middle of a line leaves a torn line; the next process removes it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Called with the file's length after each line, before the writer continues.
pub(crate) type AppendCallback = Box<dyn Fn(u64) + Send + Sync>;

/// A file of lines, each a JSON value.
pub(crate) struct AppendLog {
    log: Mutex<LockedLog>,
    callback: Option<AppendCallback>,
}

/// The durability of a line before the writer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncMode {
    /// It survives the death of the process.
    Written,
    /// It survives the loss of power.
    Synced,
}

impl AppendLog {
    /// Opens the file, and creates it if needed.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        Ok(Self { log: Mutex::new(LockedLog { file, read_to: 0 }), callback: None })
    }

    /// The same log, with a callback for every line.
    pub(crate) fn with_callback(mut self, callback: AppendCallback) -> Self {
        self.callback = Some(callback);
        self
    }

    /// Appends a value.
    pub(crate) fn append(&self, value: &impl Serialize) -> io::Result<()> {
        self.with_lock(|log| log.append(value, SyncMode::Written))
    }

    /// Calls `work` with the file locked.
    pub(crate) fn with_lock<T>(&self, work: impl FnOnce(&mut LockedLog) -> io::Result<T>) -> io::Result<T> {
        // Two locks: the file's lock is between processes, and all threads of a process share it.
        let mut log = self.log.lock();
        log.file.lock()?;
        let done = work(&mut log);
        let length = log.file.metadata().map(|metadata| metadata.len());
        log.file.unlock()?;
        if let (Some(callback), Ok(length)) = (&self.callback, length) {
            callback(length);
        }
        done
    }
}

/// A log whose file is locked by this process.
#[derive(Debug)]
pub(crate) struct LockedLog {
    file: File,
    read_to: u64,
}

impl LockedLog {
    /// The values that were added since the last call. Removes a torn line.
    pub(crate) fn read_new<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        let lines = self.read_new_lines()?;
        lines.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    fn read_new_lines(&mut self) -> io::Result<String> {
        self.file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            self.file.set_len(self.read_to + whole as u64)?;
            bytes.truncate(whole);
        }
        self.read_to += whole as u64;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Appends a value.
    pub(crate) fn append(&mut self, value: &impl Serialize, sync: SyncMode) -> io::Result<()> {
        self.read_new_lines()?;
        let line = serde_json::to_string(value)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.read_to += line.len() as u64;
        if sync == SyncMode::Synced { self.file.sync_data() } else { Ok(()) }
    }
}

/// All values of a file. A torn line at its end is ignored: it was never acknowledged.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_is_removed_by_the_next_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "1\n2\n3").unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), [1, 2]);
        AppendLog::open(&path).unwrap().append(&4).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n4\n");
    }

    #[test]
    fn each_process_reads_what_the_other_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let (one, two) = (AppendLog::open(&path).unwrap(), AppendLog::open(&path).unwrap());
        one.append(&1).unwrap();
        assert_eq!(two.with_lock(LockedLog::read_new::<u32>).unwrap(), [1]);
        two.append(&2).unwrap();
        one.append(&3).unwrap();
        assert_eq!(two.with_lock(LockedLog::read_new::<u32>).unwrap(), [3]);
    }
}
