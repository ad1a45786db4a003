//! Errors of servers.

use std::fmt;

/// The result of an operation on a server.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a server failed, with the remedy or the server's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}
