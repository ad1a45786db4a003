//! Roles: what a caller of the API may do.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a caller may do. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Reads metrics.
    Metrics,
    /// Reads everything.
    Read,
    /// Starts runs, sends to them and controls them.
    Operate,
    /// Also deletes.
    Admin,
}

impl Role {
    /// All roles, the least powerful first.
    pub const ALL: [Self; 4] = [Self::Metrics, Self::Read, Self::Operate, Self::Admin];

    /// The name of the role.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Whether a caller with this role may do what needs `required`.
    pub fn includes(self, required: Self) -> bool {
        self >= required
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = InvalidRole;

    fn from_str(text: &str) -> Result<Self, InvalidRole> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| InvalidRole(text.into()))
    }
}

/// A text that is not a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a role; expected metrics, read, operate or admin")]
pub struct InvalidRole(String);
