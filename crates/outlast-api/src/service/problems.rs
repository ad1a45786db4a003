//! Problems from errors of the client.

use outlast::{Error, ErrorKind};
use outlast_core::limits::REASON_BYTES_MAX;
use outlast_core::{PayloadError, RunId, WorldError};

use super::Service;
use crate::problem::{FieldProblem, Problem, ProblemCode};

/// The problem of an error that needs no further look.
pub(super) fn of_error(error: Error) -> Problem {
    let code = match error.kind() {
        ErrorKind::NotFound => ProblemCode::NotFound,
        ErrorKind::Conflict => ProblemCode::Conflict,
        ErrorKind::Limit => ProblemCode::TooLong,
        ErrorKind::Invalid => ProblemCode::InvalidRequest,
        ErrorKind::Unavailable | ErrorKind::Timeout => ProblemCode::Unavailable,
        ErrorKind::Corrupt => {
            tracing::error!(%error, "stored data cannot be read");
            let detail = "stored data of this run cannot be read; the log of the server says why";
            return Problem::new(ProblemCode::Corrupt, detail);
        }
        kind => {
            tracing::error!(%error, ?kind, "a request failed");
            let detail = "the server failed to answer; its log says why";
            return Problem::new(ProblemCode::Internal, detail);
        }
    };
    if code == ProblemCode::Unavailable {
        // The text names hosts and files.
        tracing::warn!(%error, "the world does not respond");
        return Problem::new(code, "the world does not respond at the moment; repeat the request");
    }
    Problem::new(code, error.to_string())
}

/// The problem of an error of the world itself.
pub(super) fn of_world(error: WorldError) -> Problem {
    of_error(error.into())
}

/// The problem of a payload that cannot be stored.
pub(super) fn of_payload(pointer: &str, error: &PayloadError) -> Problem {
    match error {
        PayloadError::TooLarge { .. } | PayloadError::TooDeep { .. } => too_long(pointer, error.to_string()),
        _ => Problem::field(pointer, error.to_string()),
    }
}

/// A field that is longer than its limit.
pub(super) fn too_long(pointer: &str, message: impl Into<String>) -> Problem {
    let message = message.into();
    let field = FieldProblem { pointer: pointer.into(), message: message.clone() };
    let problem = Problem::new(ProblemCode::TooLong, format!("{pointer}: {message}"));
    problem.with(|problem| problem.errors.push(field))
}

/// Refuses a text that is longer than its limit.
pub(super) fn check_length(pointer: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    match text.len() {
        bytes if bytes <= bytes_max => Ok(()),
        bytes => {
            Err(too_long(pointer, format!("it has {bytes} bytes, the limit is {bytes_max}; shorten it")))
        }
    }
}

/// Refuses a text that is empty or longer than its limit.
pub(super) fn check_name(pointer: &str, text: &str, bytes_max: usize) -> Result<(), Problem> {
    if text.is_empty() {
        return Err(Problem::field(pointer, "it is empty; give it at least one character"));
    }
    check_length(pointer, text, bytes_max)
}

/// The reason of a request, if it is not too long.
pub(super) fn check_reason(reason: Option<&str>) -> Result<(), Problem> {
    check_length("/reason", reason.unwrap_or_default(), REASON_BYTES_MAX)
}

impl Service {
    /// The problem of a call that a run refused. Lengths were checked before, so a limit is that of its inbox.
    pub(super) async fn refused_by(&self, run: RunId, error: Error) -> Problem {
        match error.kind() {
            ErrorKind::Limit => Problem::new(ProblemCode::Limit, error.to_string()).of_run(run),
            ErrorKind::Conflict => match self.client.run(run).await {
                Ok(view) if view.status.is_final() => {
                    let detail = format!("run {run} has ended as {}", view.status);
                    let ended = Problem::new(ProblemCode::RunEnded, detail).of_run(run);
                    ended.with(|problem| problem.run_status = Some(view.status.as_str().into()))
                }
                _ => of_error(error).of_run(run),
            },
            _ => of_error(error),
        }
    }
}
