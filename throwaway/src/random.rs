//! Unpredictable random values, without a dependency.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A random number. The standard library seeds the key of each hasher from the system's random source.
pub(crate) fn number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A text of 32 random letters and digits, which needs no quoting.
pub(crate) fn word() -> String {
    format!("{:016x}{:016x}", number(), number())
}
