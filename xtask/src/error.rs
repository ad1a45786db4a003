//! Errors of tasks.

use std::fmt;
use std::process::ExitCode;

/// The result of a task.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a task failed.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line is invalid.
    Usage(String),
    /// A check failed, or a tool is missing.
    Failed(String),
}

impl Error {
    /// 2 for an invalid command line, 1 otherwise.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::FAILURE,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => write!(f, "{message}\n\nsee `cargo xtask help`"),
            Self::Failed(message) => f.write_str(message),
        }
    }
}

impl From<throwaway::Error> for Error {
    fn from(error: throwaway::Error) -> Self {
        Self::Failed(error.to_string())
    }
}
