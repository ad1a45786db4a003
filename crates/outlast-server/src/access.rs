//! Who may call the API.

pub(crate) mod keys;
pub(crate) mod local;
pub(crate) mod origin;
pub(crate) mod trusted_proxy;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use outlast_api::{Caller, Problem, ProblemCode};

use keys::AccessKeys;

/// Decides who makes a request, for applications with accounts of their own.
///
/// ```
/// use outlast_api::{Caller, Role};
/// use outlast_server::{Access, AccessError};
///
/// struct Header;
///
/// #[async_trait::async_trait]
/// impl Access for Header {
///     async fn caller(&self, request: &axum::http::request::Parts) -> Result<Caller, AccessError> {
///         let user = request.headers.get("x-user").and_then(|user| user.to_str().ok());
///         let user = user.ok_or(AccessError::Unauthenticated)?.to_owned();
///         Ok(Caller { scope: user.clone(), actor: user, role: Role::Read })
///     }
/// }
/// ```
#[async_trait]
pub trait Access: Send + Sync + 'static {
    /// The caller of a request, with its role.
    ///
    /// # Errors
    ///
    /// If the caller is not known, or may not use the API at all.
    async fn caller(&self, request: &Parts) -> Result<Caller, AccessError>;
}

/// Why a request is not answered at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AccessError {
    /// Nobody knows who makes it.
    Unauthenticated,
    /// The caller may not use the API.
    Forbidden,
    /// The accounts cannot be read at the moment.
    Unavailable,
}

impl From<AccessError> for Problem {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Unauthenticated => {
                Self::new(ProblemCode::Unauthenticated, "log in, or send an access key")
            }
            AccessError::Forbidden => Self::new(ProblemCode::Forbidden, "you may not use this API"),
            AccessError::Unavailable => Self::new(
                ProblemCode::Unavailable,
                "accounts cannot be read at the moment; repeat the request",
            ),
        }
    }
}

/// How callers are known.
#[derive(Clone)]
pub(crate) enum AccessMode {
    Local,
    Keys(Arc<AccessKeys>),
    Custom(Arc<dyn Access>),
}

impl fmt::Debug for AccessMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "Local",
            Self::Keys(_) => "Keys",
            Self::Custom(_) => "Custom",
        })
    }
}

/// The access key of a request: `Authorization: Bearer olk_…`.
pub(crate) fn bearer(request: &Parts) -> Option<&str> {
    let value = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

/// Refuses a request with an access key in its address, which logs would contain.
pub(crate) fn refuse_key_in_address(request: &Parts) -> Result<(), Problem> {
    let address = request.uri.path_and_query().map(|address| address.as_str()).unwrap_or_default();
    if !address.contains(keys::PREFIX) {
        return Ok(());
    }
    let message = "the address contains an access key, which logs may now contain; revoke it, and send keys in the header \
                   Authorization";
    Err(Problem::new(ProblemCode::InvalidRequest, message))
}
