//! Which process holds the write lock of a file, as far as the system tells.

use std::path::Path;

/// The byte of the `-shm` file that SQLite locks while a connection writes.
const WRITE_LOCK_BYTE: u64 = 120;

/// How often the list of locks is read if it does not contain the lock. It is read in pieces: a line is left out if
/// others before it are removed between two of them.
#[cfg(target_os = "linux")]
const READS_MAX: usize = 5;

/// The holder of a write lock, for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockHolder {
    /// Another connection of this process.
    ThisProcess,
    /// A process, by its id.
    Process(u32),
    /// The system does not tell.
    Unknown,
}

impl LockHolder {
    /// The current holder of the write lock of the database at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        find(path).unwrap_or(Self::Unknown)
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("another connection of this process"),
            Self::Process(process) => write!(f, "process {process}"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

#[cfg(target_os = "linux")]
fn find(path: &Path) -> Option<LockHolder> {
    use std::os::unix::fs::MetadataExt;

    use crate::connection::opened_file::with_suffix;

    let inode = with_suffix(path, "-shm").metadata().ok()?.ino();
    let process = (0..READS_MAX).find_map(|_| {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        write_lock_owner(&locks, inode)
    })?;
    Some(if process == std::process::id() { LockHolder::ThisProcess } else { LockHolder::Process(process) })
}

#[cfg(not(target_os = "linux"))]
fn find(_: &Path) -> Option<LockHolder> {
    None
}

/// The process that holds SQLite's write lock on the file with this inode, in the text of `/proc/locks`. Its lines are
/// `number: kind ADVISORY WRITE process device:inode first last`; those of waiting processes have `->` after the
/// number.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux has `/proc/locks`"))]
fn write_lock_owner(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, "WRITE", process, file, first, last] = words[..] else { return None };
        let (_, locked) = file.rsplit_once(':')?;
        let last = last.parse().unwrap_or(u64::MAX);
        let is_write_lock = (first.parse().ok()?..=last).contains(&WRITE_LOCK_BYTE);
        if locked.parse() == Ok(inode) && is_write_lock { process.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_found_in_the_list_of_locks() {
        let locks = "1: POSIX  ADVISORY  READ 17 fd:01:42 124 124\n\
                     2: POSIX  ADVISORY  WRITE 18 fd:01:43 120 120\n\
                     3: POSIX  ADVISORY  WRITE 19 fd:01:42 121 121\n\
                     4: POSIX  ADVISORY  WRITE 20 fd:01:42 120 120\n\
                     4: -> POSIX  ADVISORY  WRITE 21 fd:01:42 120 120\n\
                     5: FLOCK  ADVISORY  WRITE 22 fd:01:44 0 EOF\n";
        assert_eq!(write_lock_owner(locks, 42), Some(20));
        assert_eq!(write_lock_owner(locks, 43), Some(18));
        assert_eq!(write_lock_owner(locks, 44), Some(22), "a lock on the whole file");
        assert_eq!(write_lock_owner(locks, 45), None);
        assert_eq!(write_lock_owner("not a list", 42), None);
    }
}
