//! The world, the caller and the state of the server.

use serde::{Deserialize, Serialize};

use crate::rfc3339::Rfc3339;
use crate::role::Role;

/// The world that a server works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorldJson {
    /// `memory`, `sqlite` or `postgres`.
    pub kind: String,
    /// Where it is, without secrets.
    pub place: String,
    /// What an acknowledged change survives.
    pub durability: String,
    /// How changes by other processes are noticed.
    pub hints: String,
    /// Its clock.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = "date-time"))]
    pub now: Rfc3339,
    /// The version of the library.
    pub library: String,
}

/// The caller, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MeJson {
    /// Its name.
    pub actor: String,
    /// Its role.
    pub role: Role,
    /// Whether the server refuses all changes.
    pub read_only: bool,
}

/// Whether a server is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReadinessJson {
    /// Whether it is.
    pub ready: bool,
    /// The reason, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
