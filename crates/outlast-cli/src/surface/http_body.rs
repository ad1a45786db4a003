//! Bodies of requests and responses.

use bytes::Bytes;
use outlast_api::{Problem, ProblemCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The response of a server that is not a refusal.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let detail = format!("the server's response cannot be read: {error}; is it a server of Outlast?");
            Problem::new(ProblemCode::Internal, detail)
        })
    }

    /// The body as text.
    pub(super) fn text(&self) -> Result<String, Problem> {
        let text = String::from_utf8(self.body.to_vec());
        text.map_err(|_| Problem::new(ProblemCode::Internal, "the server's response is not text"))
    }
}

/// The body of a request.
pub(super) fn write_body(body: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(body).map_err(|error| Problem::field("", error.to_string()))
}

/// Reads a response. A status from 300 on is a refusal.
pub(super) fn read_answer((status, body): (u16, Bytes)) -> Result<Answer, Problem> {
    if (200..300).contains(&status) {
        return Ok(Answer { status, body });
    }
    if let Ok(problem) = serde_json::from_slice::<Problem>(&body) {
        return Err(problem);
    }
    // A proxy, or a server of something else.
    let code = match status {
        401 => ProblemCode::Unauthenticated,
        403 => ProblemCode::Forbidden,
        404 => ProblemCode::NotFound,
        502..=504 => ProblemCode::Unavailable,
        _ => ProblemCode::Internal,
    };
    let detail = format!(
        "the server answered with status {status} and no problem document; is it a server of Outlast?"
    );
    Err(Problem::new(code, detail).with(|problem| problem.status = status))
}
