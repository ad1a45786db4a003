//! Maps whose keys are names from code: steps, workflows, labels of metrics.
//!
//! They are read several times per step. The names are short, there are few of them, and only registered code adds
//! one, so a hash that resists chosen keys would be paid for nothing: reading a map by a hostile name costs one bucket.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// A map by name.
pub(crate) type NameMap<V> = HashMap<Arc<str>, V, NameHash>;

/// Hashes names with [`NameHasher`].
pub(crate) type NameHash = BuildHasherDefault<NameHasher>;

/// FNV-1a with 64 bits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHasher(u64);

const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

impl Default for NameHasher {
    fn default() -> Self {
        Self(OFFSET_BASIS)
    }
}

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        let hash = |text: &str| {
            let mut hasher = NameHasher::default();
            hasher.write(text.as_bytes());
            hasher.finish()
        };
        // Published test vectors.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn many_names_are_found() {
        let names: Vec<Arc<str>> = (0..1_000).map(|number| format!("step_{number}").into()).collect();
        let map: NameMap<usize> = names.iter().cloned().zip(0..).collect();
        for (number, name) in names.iter().enumerate() {
            assert_eq!(map.get(&**name), Some(&number));
        }
    }
}
