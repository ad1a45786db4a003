//! Errors of SQLite as errors of the world, sorted by what the caller does next.

use std::path::Path;

use outlast_core::WorldError;
use outlast_core::event::EventError;
use outlast_core::sql::UnreadableColumn;
use rusqlite::{Error, ErrorCode};

use crate::connection::permissions::missing_permission;

/// Why a call failed: the world refused it, or SQLite returned an error.
///
/// The world refuses a change before it writes any part of it. An error of SQLite rolls back the whole transaction.
#[derive(Debug)]
pub(crate) enum Refusal {
    World(WorldError),
    Sqlite(Error),
}

impl From<WorldError> for Refusal {
    fn from(error: WorldError) -> Self {
        Self::World(error)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Refusal {
    /// Converts it into the error that the caller gets.
    pub(crate) fn into_world_error(self, path: &Path) -> WorldError {
        match self {
            Self::World(error) => error,
            Self::Sqlite(error) => from_sqlite(&error, path),
        }
    }
}

/// Whether a statement failed because another process holds a lock, so that it may succeed if it is repeated.
pub(crate) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Converts an error of SQLite into an error of the world, whose source it is.
pub(crate) fn from_sqlite(error: &Error, path: &Path) -> WorldError {
    classified(error, path).caused_by(error)
}

/// The kind of the error, by the code of SQLite: whether the caller, the data or the state of the machine is the cause.
fn classified(error: &Error, path: &Path) -> WorldError {
    let file = path.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => WorldError::unavailable(format!(
            "`{file}` is busy: another process has been writing for too long; try again, or end that process"
        )),
        Some(ErrorCode::DiskFull) => WorldError::unavailable(format!(
            "`{file}` cannot grow because the disk is full; free some space, then work resumes by itself"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            missing_permission(path).unwrap_or_else(|| {
                WorldError::unavailable(format!(
                    "`{file}` cannot be opened ({error}); check that its folder exists, and how many files this \
                     process may open"
                ))
            })
        }
        Some(ErrorCode::SystemIoFailure) => WorldError::unavailable(format!(
            "reading or writing `{file}` failed ({error}); check the disk; work resumes by itself"
        )),
        Some(ErrorCode::DatabaseCorrupt) => WorldError::corrupt(format!(
            "`{file}` is damaged ({error}); stop the workers, and restore a backup"
        )),
        Some(ErrorCode::NotADatabase) => WorldError::corrupt(format!(
            "`{file}` is not an SQLite file; give the path of another file, or restore a backup"
        )),
        Some(ErrorCode::TooBig) => WorldError::limit(format!(
            "a value is too large for `{file}` ({error}); store it elsewhere and pass its address"
        )),
        Some(ErrorCode::ConstraintViolation) => WorldError::corrupt(format!(
            "`{file}` contains inconsistent rows ({error}); stop the workers, and restore a backup"
        )),
        Some(_) => WorldError::unavailable(format!("SQLite cannot use `{file}`: {error}")),
        None => WorldError::corrupt(format!(
            "`{file}` contains a row that no world wrote: {}",
            describe_damage(error)
        )),
    }
}

/// Describes a value that cannot be read. The errors of events and of the columns of messages name them already.
pub(crate) fn describe_damage(error: &Error) -> String {
    match error {
        Error::FromSqlConversionFailure(_, _, why)
            if why.is::<EventError>() || why.is::<UnreadableColumn>() =>
        {
            why.to_string()
        }
        Error::FromSqlConversionFailure(column, _, why) => format!("column {column}: {why}"),
        other => other.to_string(),
    }
}

/// The error of a call to a world whose threads have ended, or one of whose threads panicked.
pub(crate) fn world_closed() -> WorldError {
    WorldError::Unavailable("the SQLite world is closed; open it again".into())
}
