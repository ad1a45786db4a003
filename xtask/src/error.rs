//! Why a task did not succeed.

use std::fmt;
use std::process::ExitCode;

/// The result of a task.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a task did not succeed, sorted by whose turn it is.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line makes no sense: mend it.
    Usage(String),
    /// What was checked is not right, or a tool is missing: mend that.
    Failed(String),
}

impl Error {
    /// 2 for a command line that makes no sense, 1 for everything else.
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
