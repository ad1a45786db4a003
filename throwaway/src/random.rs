//! Chance that nobody can guess, without a dependency.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

/// A random number. Each hasher of the standard library has a key of its own that the system's
/// random source seeded.
pub(crate) fn number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A word of 32 random letters and digits, which needs no quoting anywhere.
pub(crate) fn word() -> String {
    format!("{:016x}{:016x}", number(), number())
}
