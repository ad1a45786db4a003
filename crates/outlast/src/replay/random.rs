//! The random numbers of a run: the same in every replay.

use outlast_core::{OpNumber, RunId, RunStarted};

use super::operation_table::OperationTable;

impl OperationTable {
    /// The next number of the run's random sequence: SplitMix64.
    pub(super) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1, for example for the jitter of a pause.
    pub(super) fn chance(&mut self) -> f64 {
        self.next_random() as f64 / u64::MAX as f64
    }
}

/// The seed of a generation's random numbers: from the id of the run, and from the number of its first operation, so
/// that no two generations have the same sequence.
pub(super) fn random_seed(run: RunId, first_op: OpNumber) -> u64 {
    let bits = run.bits();
    let seed = (bits >> 64) as u64 ^ bits as u64;
    seed ^ first_op.0.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The run whose id is the seed of a run's random numbers: itself, or the one that was forked.
pub(super) fn seed_run(run: RunId, started: &RunStarted) -> RunId {
    started.forked.as_ref().map_or(run, |origin| origin.seed)
}
