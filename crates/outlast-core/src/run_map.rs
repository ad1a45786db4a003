//! [`RunMap`] and [`RunSet`]: values by run, and sets of runs.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::id::RunId;

/// A hash map with runs as keys, for values that are looked up on every turn.
///
/// The lower half of a run id is random, and an attacker gains nothing from slow lookups of their own runs. So no
/// DoS-resistant hash is needed, which would cost more than the rest of the lookup.
pub type RunMap<V> = HashMap<RunId, V, BuildHasherDefault<RunHasher>>;

/// A set of runs with the same hash.
pub type RunSet = HashSet<RunId, BuildHasherDefault<RunHasher>>;

/// Hashes the id of a run with one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunHasher(u64);

impl RunHasher {
    /// An odd multiplier from the golden ratio (Fibonacci hashing).
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        // Combine both halves of the product: the table uses the lowest and the highest bits.
        let product = u128::from(self.0 ^ word) * Self::FACTOR;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for RunHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u128(&mut self, id: u128) {
        self.add((id >> 64) as u64 ^ (id as u64).rotate_left(32));
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;
    use crate::id::IdSource;
    use crate::time::Timestamp;

    #[test]
    fn ids_of_one_moment_are_spread_over_a_table() {
        let mut source = IdSource::new();
        let hasher = BuildHasherDefault::<RunHasher>::default();
        let hashes: Vec<u64> = (0..4096_u128)
            .map(|count| source.next(Timestamp::from_micros(1_700_000_000_000_000), count))
            .map(|bits| hasher.hash_one(RunId::from_bits(bits)))
            .collect();
        let lowest: BTreeSet<_> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let highest: BTreeSet<_> = hashes.iter().map(|hash| hash >> 57).collect();
        // 4,096 numbers at random hit 63 of 100 places.
        assert!(lowest.len() > 4096 / 2, "{} of 4096 places", lowest.len());
        assert_eq!(highest.len(), 128);
    }
}
