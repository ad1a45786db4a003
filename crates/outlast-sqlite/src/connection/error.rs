//! What SQLite refuses, sorted by what the caller does next.

use std::path::Path;

use outlast_core::WorldError;
use outlast_core::event::EventError;
use rusqlite::{Error, ErrorCode};

/// Why a change was not made: the world refuses it, or SQLite does.
///
/// The world's refusals come before anything of the change is written; SQLite's roll the whole
/// transaction back.
#[derive(Debug)]
pub(crate) enum Refusal {
    World(WorldError),
    Store(Error),
}

impl From<WorldError> for Refusal {
    fn from(error: WorldError) -> Self {
        Self::World(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Refusal {
    /// The refusal as the caller sees it.
    pub(crate) fn into_world(self, path: &Path) -> WorldError {
        match self {
            Self::World(error) => error,
            Self::Store(error) => of_sqlite(&error, path),
        }
    }
}

/// Whether the same statement may succeed in a moment, because another process writes.
pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// An error of SQLite as an error of the world.
pub(crate) fn of_sqlite(error: &Error, path: &Path) -> WorldError {
    let file = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => WorldError::Unavailable(format!(
            "`{file}` is busy: another process has been writing for too long; try again, or end that process"
        )),
        Some(ErrorCode::DiskFull) => WorldError::Unavailable(format!(
            "`{file}` cannot grow, the disk is full; free some space, work goes on by itself"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => WorldError::Unavailable(format!(
            "`{file}` cannot be written; make the file and its folder writable for this user"
        )),
        Some(ErrorCode::CannotOpen) => WorldError::Unavailable(format!(
            "`{file}` cannot be opened ({error}); check that the path exists, that this user may write there, \
             and how many files this process may open"
        )),
        Some(ErrorCode::SystemIoFailure) => WorldError::Unavailable(format!(
            "reading or writing `{file}` failed ({error}); check the disk, work goes on by itself"
        )),
        Some(ErrorCode::DatabaseCorrupt) => {
            WorldError::Corrupt(format!("`{file}` is damaged ({error}); stop, and restore a backup"))
        }
        Some(ErrorCode::NotADatabase) => WorldError::Corrupt(format!(
            "`{file}` is not an SQLite file; give the path of another file, or restore a backup"
        )),
        Some(ErrorCode::TooBig) => WorldError::Limit(format!(
            "a value is too large for `{file}` ({error}); store it elsewhere and pass its address"
        )),
        Some(ErrorCode::ConstraintViolation) => WorldError::Corrupt(format!(
            "`{file}` holds what does not fit together ({error}); stop, and restore a backup"
        )),
        Some(_) => WorldError::Unavailable(format!("SQLite refused to work with `{file}`: {error}")),
        None => WorldError::Corrupt(format!("`{file}` holds a row that no world wrote: {}", damage(error))),
    }
}

/// What is wrong with a value that was read. An event says itself which one it is.
pub(crate) fn damage(error: &Error) -> String {
    match error {
        Error::FromSqlConversionFailure(_, _, why) if why.is::<EventError>() => why.to_string(),
        Error::FromSqlConversionFailure(column, _, why) => format!("column {column}: {why}"),
        other => other.to_string(),
    }
}

/// The answer when the world's threads have ended, or one of them panicked.
pub(crate) fn closed() -> WorldError {
    WorldError::Unavailable("the SQLite world is closed; open it again".into())
}
