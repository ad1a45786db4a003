//! Refusals, as problem documents of RFC 9457.

use std::fmt;
use std::ops::{Deref, DerefMut};

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::role::Role;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $title:literal;)*) => {
        /// The code of a problem, which a program decides by. Its text never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemCode {
            $($(#[$doc])* $variant,)*
        }

        impl ProblemCode {
            /// All codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The text of the code.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// The title, which is the same for all problems of the code.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
}

codes! {
    /// The request cannot be read; `errors` says where.
    InvalidRequest = "invalid_request", 400, "The request is not valid";
    /// The cursor belongs to a list with other filters.
    CursorMismatch = "cursor_mismatch", 400, "The cursor belongs to another list";
    /// The request has no valid access key.
    Unauthenticated = "unauthenticated", 401, "An access key is needed";
    /// The request to a webhook has no valid signature.
    NotSigned = "not_signed", 401, "The signature is not valid";
    /// The caller's role does not suffice; `required_role` does.
    Forbidden = "forbidden", 403, "The role does not suffice";
    /// The server only reads.
    ReadOnly = "read_only", 403, "The server is read-only";
    /// The request comes from a page of another origin.
    CrossOrigin = "cross_origin", 403, "The request comes from another origin";
    /// There is no such thing, or no such route.
    NotFound = "not_found", 404, "Not found";
    /// The route does not have this method.
    MethodNotAllowed = "method_not_allowed", 405, "The route does not have this method";
    /// The request does not fit the state of what it concerns.
    Conflict = "conflict", 409, "The request does not fit the current state";
    /// The key belongs to a run with another workflow or input: `run`.
    KeyConflict = "key_conflict", 409, "The key belongs to another start";
    /// The token belongs to another run: `run`.
    TokenTaken = "token_taken", 409, "The token is taken";
    /// Several runs fit: `candidates`.
    Ambiguous = "ambiguous", 409, "Several runs fit";
    /// The run has ended: `run`, `run_status`.
    RunEnded = "run_ended", 409, "The run has ended";
    /// The hook is closed: `run`, `run_status`.
    HookClosed = "hook_closed", 409, "The hook is closed";
    /// The webhook is closed, or its run has ended.
    Gone = "gone", 410, "It does not exist any more";
    /// What the request refers to has changed.
    Stale = "stale", 412, "The request is outdated";
    /// The body is larger than `limit_bytes`.
    TooLarge = "too_large", 413, "The body is too large";
    /// The address is longer than the server reads.
    UriTooLong = "uri_too_long", 414, "The address is too long";
    /// The body is not JSON, or compressed.
    UnsupportedMedia = "unsupported_media", 415, "The type of the body is not supported";
    /// The request was made for another host.
    WrongHost = "wrong_host", 421, "The request was made for another host";
    /// The workflow does not accept the input.
    InputInvalid = "input_invalid", 422, "The workflow does not accept the input";
    /// A text, a list or a payload is longer than its limit.
    TooLong = "too_long", 422, "A value is longer than its limit";
    /// The request needs a precondition.
    PreconditionRequired = "precondition_required", 428, "A precondition is needed";
    /// A limit of a run is reached, such as that of its inbox.
    Limit = "limit", 429, "A limit is reached";
    /// The caller makes too many requests.
    RateLimited = "rate_limited", 429, "Too many requests";
    /// The headers are larger than the server reads.
    HeadersTooLarge = "headers_too_large", 431, "The headers are too large";
    /// Stored data cannot be read.
    Corrupt = "corrupt", 500, "Stored data cannot be read";
    /// The server failed.
    Internal = "internal", 500, "The server failed";
    /// The world does not respond, or the server is stopping.
    Unavailable = "unavailable", 503, "Not available at the moment";
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A refusal: a problem document of RFC 9457. Its members are those of [`ProblemDocument`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
#[error("{}", .0.detail)]
pub struct Problem(Box<ProblemDocument>);

impl Deref for Problem {
    type Target = ProblemDocument;

    fn deref(&self) -> &ProblemDocument {
        &self.0
    }
}

impl DerefMut for Problem {
    fn deref_mut(&mut self) -> &mut ProblemDocument {
        &mut self.0
    }
}

/// The members of a problem document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProblemDocument {
    /// `urn:outlast:problem:` and the code.
    #[serde(rename = "type")]
    pub uri: String,
    /// The title of the code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, and the remedy.
    pub detail: String,
    /// The id of the request; empty if the problem was not made by a server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// The code, by which a program decides.
    pub code: String,
    /// The fields that are not valid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldProblem>,
    /// The run concerned: the owner of a key or token, or the run that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub run: Option<RunId>,
    /// The status of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_status: Option<String>,
    /// The role that suffices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_role: Option<Role>,
    /// The limit of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// The runs that fit, at most 10.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub candidates: Vec<RunId>,
    /// The tag that the thing has now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The number of runs that match now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched: Option<u64>,
}

/// A field of a request that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FieldProblem {
    /// The place: a JSON pointer into the body, or `?name` for a parameter of the query.
    pub pointer: String,
    /// What is wrong with it.
    pub message: String,
}

impl Problem {
    /// A problem with a code and what happened.
    pub fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(ProblemDocument {
            uri: format!("urn:outlast:problem:{code}"),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            instance: String::new(),
            code: code.as_str().into(),
            errors: Vec::new(),
            run: None,
            run_status: None,
            required_role: None,
            limit_bytes: None,
            candidates: Vec::new(),
            etag: None,
            matched: None,
        }))
    }

    /// An invalid field of the request.
    pub fn field(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        let (pointer, message) = (pointer.into(), message.into());
        let detail = if pointer.is_empty() { message.clone() } else { format!("{pointer}: {message}") };
        let field = FieldProblem { pointer, message };
        Self::new(ProblemCode::InvalidRequest, detail).with(|problem| problem.errors.push(field))
    }

    /// The same problem, with other members.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut ProblemDocument)) -> Self {
        change(&mut self.0);
        self
    }

    /// The same problem, about a run.
    #[must_use]
    pub fn of_run(self, run: RunId) -> Self {
        self.with(|problem| problem.run = Some(run))
    }

    /// Whether the problem has this code.
    pub fn is(&self, code: ProblemCode) -> bool {
        self.code == code.as_str()
    }
}
