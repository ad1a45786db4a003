//! A file of access keys that is read again when it changes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use outlast::core::{Clock, Timestamp};
use outlast::{Error, ErrorKind, SystemClock};
use parking_lot::Mutex;

use super::AccessKeys;

/// How often the file is looked at, while there are requests.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// A file of access keys, and how it looked when it was read.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    seen: Mutex<SeenFile>,
}

#[derive(Debug)]
struct SeenFile {
    checked_at: Timestamp,
    /// When it was changed, and its length; `None` if there is no file.
    state: Option<(SystemTime, u64)>,
}

impl KeyFile {
    /// Reads a file.
    pub(super) fn open(path: &Path) -> Result<(Self, AccessKeys), Error> {
        let failed = |error: io::Error| {
            let message = format!("the access keys in {} cannot be read: {error}", path.display());
            Error::of_kind(ErrorKind::Invalid, message)
        };
        // The state first: a change between the two is noticed at the next check.
        let state = state_of(path).map_err(failed)?;
        let keys = AccessKeys::from_json(&fs::read_to_string(path).map_err(failed)?)?;
        let seen = Mutex::new(SeenFile { checked_at: SystemClock.now(), state });
        Ok((Self { path: path.into(), seen }, keys))
    }

    /// The keys of the file, if it has changed since it was read. Callers in between get `None`.
    pub(super) fn changed(&self) -> Option<AccessKeys> {
        let mut seen = self.seen.try_lock()?;
        let now = SystemClock.now();
        if now.since(seen.checked_at) < CHECK_EVERY {
            return None;
        }
        seen.checked_at = now;
        let state = state_of(&self.path).unwrap_or(seen.state);
        if state == seen.state {
            return None;
        }
        if state.is_none() {
            tracing::error!(file = %self.path.display(), "the file of access keys is gone; all keys are refused");
            seen.state = state;
            return Some(AccessKeys::default());
        }
        let read = fs::read_to_string(&self.path).map_err(Error::from);
        match read.and_then(|text| AccessKeys::from_json(&text)) {
            Ok(keys) => {
                tracing::info!(file = %self.path.display(), "the access keys were read again");
                seen.state = state;
                Some(keys)
            }
            Err(error) => {
                tracing::error!(file = %self.path.display(), %error, "the access keys cannot be read; those before stay");
                None
            }
        }
    }

    /// Lets the next call look at the file.
    #[cfg(test)]
    pub(super) fn expire(&self) {
        self.seen.lock().checked_at = Timestamp::from_micros(0);
    }
}

/// How a file looks; `None` if there is none.
fn state_of(path: &Path) -> io::Result<Option<(SystemTime, u64)>> {
    match fs::metadata(path) {
        Ok(data) => Ok(Some((data.modified()?, data.len()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
