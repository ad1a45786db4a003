//! Files of lines that several processes append to, and that survive the death of any of them.
//!
//! Whoever appends holds the file's lock, which the kernel frees at any death. A process that dies in
//! the middle of a line leaves a torn one; the next that comes removes it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Told of the file's length after each line, before whoever wrote it goes on.
pub(crate) type Mark = Box<dyn Fn(u64) + Send + Sync>;

/// A file of lines, each a note as JSON.
pub(crate) struct Notebook {
    open: Mutex<Open>,
    mark: Option<Mark>,
}

/// How sure a line is before whoever wrote it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Care {
    /// It survives the death of the process.
    Written,
    /// It survives the loss of power.
    Synced,
}

impl Notebook {
    /// Opens the file, and makes it if it is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).read(true).append(true).open(path)?;
        Ok(Self { open: Mutex::new(Open { file, read_to: 0 }), mark: None })
    }

    /// The same, and `mark` is told of every line.
    pub(crate) fn marked(mut self, mark: Mark) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Appends a note.
    pub(crate) fn note(&self, note: &impl Serialize) -> io::Result<()> {
        self.exclusively(|open| open.append(note, Care::Written))
    }

    /// Works with the file while nobody else does.
    pub(crate) fn exclusively<T>(&self, work: impl FnOnce(&mut Open) -> io::Result<T>) -> io::Result<T> {
        // Two locks: the file's is between processes, and threads of one share it.
        let mut open = self.open.lock();
        open.file.lock()?;
        let done = work(&mut open);
        let length = open.file.metadata().map(|metadata| metadata.len());
        open.file.unlock()?;
        if let (Some(mark), Ok(length)) = (&self.mark, length) {
            mark(length);
        }
        done
    }
}

/// A notebook that nobody else writes to at the moment.
#[derive(Debug)]
pub(crate) struct Open {
    file: File,
    read_to: u64,
}

impl Open {
    /// The notes that were added since the last look. Removes a torn line.
    pub(crate) fn news<T: DeserializeOwned>(&mut self) -> io::Result<Vec<T>> {
        let lines = self.catch_up()?;
        lines.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
    }

    fn catch_up(&mut self) -> io::Result<String> {
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

    /// Appends a note.
    pub(crate) fn append(&mut self, note: &impl Serialize, care: Care) -> io::Result<()> {
        self.catch_up()?;
        let line = serde_json::to_string(note)? + "\n";
        self.file.write_all(line.as_bytes())?;
        self.read_to += line.len() as u64;
        if care == Care::Synced { self.file.sync_data() } else { Ok(()) }
    }
}

/// All notes of a file. A torn line at its end is one that nobody knows of.
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
    fn a_torn_line_is_removed_by_the_next_who_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "1\n2\n3").unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), [1, 2]);
        Notebook::open(&path).unwrap().note(&4).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n2\n4\n");
    }

    #[test]
    fn two_see_what_the_other_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        let (one, two) = (Notebook::open(&path).unwrap(), Notebook::open(&path).unwrap());
        one.note(&1).unwrap();
        assert_eq!(two.exclusively(Open::news::<u32>).unwrap(), [1]);
        two.note(&2).unwrap();
        one.note(&3).unwrap();
        assert_eq!(two.exclusively(Open::news::<u32>).unwrap(), [3]);
    }
}
