//! How commands end: exit codes and errors.

use std::fmt;
use std::io;

use outlast::{Error, ErrorKind};
use outlast_api::{Problem, ProblemCode};

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// It failed.
    Failure,
    /// The arguments or the configuration are wrong, or a name is ambiguous.
    Usage,
    /// There is no such thing.
    NotFound,
    /// The caller is not known, or not allowed to do it.
    NotAllowed,
    /// It does not fit the current state.
    Conflict,
    /// The time is over.
    TimedOut,
    /// The awaited run did not complete.
    NotCompleted,
    /// The world or the server does not respond.
    Unavailable,
    /// It was interrupted.
    Interrupted,
}

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failure => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::NotAllowed => 4,
            Self::Conflict => 5,
            Self::TimedOut => 6,
            Self::NotCompleted => 7,
            Self::Unavailable => 8,
            Self::Interrupted => 130,
        }
    }

    /// The exit code for a problem.
    fn of_problem(problem: &Problem) -> Self {
        match problem.code.as_str() {
            "ambiguous" | "input_invalid" | "cursor_mismatch" | "too_long" | "too_large" => Self::Usage,
            "rate_limited" | "unavailable" => Self::Unavailable,
            TIMED_OUT => Self::TimedOut,
            _ => match problem.status {
                400 => Self::Usage,
                401 | 403 | 421 => Self::NotAllowed,
                404 => Self::NotFound,
                409 | 410 | 412 | 428 => Self::Conflict,
                502..=504 => Self::Unavailable,
                _ => Self::Failure,
            },
        }
    }
}

/// The code of a problem for a time that is over. Servers do not use it: a long poll ends with 200.
const TIMED_OUT: &str = "timed_out";

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// Something was refused.
    Refused(Problem),
    /// Nobody reads the output any more.
    ClosedPipe,
    /// A person said no, or pressed Ctrl-C.
    Interrupted,
}

impl CommandError {
    /// Wrong arguments or configuration.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::InvalidRequest, detail).into()
    }

    /// There is no such thing.
    pub(crate) fn not_found(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::NotFound, detail).into()
    }

    /// It does not fit the current state.
    pub(crate) fn conflict(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::Conflict, detail).into()
    }

    /// The world or the server does not respond.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::Unavailable, detail).into()
    }

    /// A file could not be read or written, a program could not be started, ….
    pub(crate) fn failure(detail: impl Into<String>) -> Self {
        Problem::new(ProblemCode::Internal, detail).into()
    }

    /// The time is over.
    pub(crate) fn timed_out(detail: impl Into<String>) -> Self {
        let mut problem = Problem::new(ProblemCode::Unavailable, detail);
        problem.uri = format!("urn:outlast:problem:{TIMED_OUT}");
        problem.title = "The time is over".into();
        problem.code = TIMED_OUT.into();
        problem.into()
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Refused(problem) => Exit::of_problem(problem),
            Self::ClosedPipe => Exit::Done,
            Self::Interrupted => Exit::Interrupted,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(problem) => f.write_str(&problem.detail),
            Self::ClosedPipe => f.write_str("nobody reads the output"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::failure(error.to_string()),
        }
    }
}

impl From<Error> for CommandError {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => ProblemCode::InvalidRequest,
            ErrorKind::NotFound => ProblemCode::NotFound,
            ErrorKind::Conflict => ProblemCode::Conflict,
            ErrorKind::Unavailable => ProblemCode::Unavailable,
            ErrorKind::Corrupt => ProblemCode::Corrupt,
            ErrorKind::Limit => ProblemCode::Limit,
            _ => ProblemCode::Internal,
        };
        Problem::new(code, error.to_string()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_has_its_exit_code() {
        let exit = |code| CommandError::from(Problem::new(code, "")).exit().code();
        assert_eq!(exit(ProblemCode::InvalidRequest), 2);
        assert_eq!(exit(ProblemCode::Ambiguous), 2);
        assert_eq!(exit(ProblemCode::NotFound), 3);
        assert_eq!(exit(ProblemCode::Unauthenticated), 4);
        assert_eq!(exit(ProblemCode::ReadOnly), 4);
        assert_eq!(exit(ProblemCode::WrongHost), 4);
        assert_eq!(exit(ProblemCode::KeyConflict), 5);
        assert_eq!(exit(ProblemCode::Stale), 5);
        assert_eq!(exit(ProblemCode::Unavailable), 8);
        assert_eq!(exit(ProblemCode::RateLimited), 8);
        assert_eq!(exit(ProblemCode::Internal), 1);
        assert_eq!(CommandError::timed_out("").exit().code(), 6);
        assert_eq!(CommandError::ClosedPipe.exit().code(), 0);
        assert_eq!(CommandError::Interrupted.exit().code(), 130);
    }
}
