//! A disk as a list of operations, and its possible states after a power cut.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::super::Result;
use super::super::workdir::DATABASE;

/// The unit that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

/// One recorded operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DiskOp {
    Wrote {
        file: usize,
        at: u64,
        bytes: Box<[u8]>,
    },
    Truncated {
        file: usize,
        size: u64,
    },
    /// The operations on the file before `upto` are on the disk.
    Synced {
        file: usize,
        upto: usize,
    },
    /// A log has this length now: something was acknowledged, or an effect happened.
    LogLength {
        name: &'static str,
        length: u64,
    },
}

/// What happens to operations that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Lost,
    WrittenPart,
    /// Each is lost or kept, at random.
    Some,
    /// Some sectors of each are lost.
    Torn,
}

/// A power cut: the number of operations before it, and what happens to those that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PowerCut {
    pub(super) after: usize,
    pub(super) unsynced: Unsynced,
    pub(super) seed: u64,
}

impl PowerCut {
    /// A random cut. One of three is in the middle of a checkpoint, if there was one.
    pub(super) fn random(ops: &[DiskOp], chance: &mut fastrand::Rng) -> Self {
        let moved: Vec<usize> = (0..ops.len())
            .filter(|index| {
                matches!(ops[*index], DiskOp::Wrote { file: 0, .. } | DiskOp::Synced { file: 0, .. })
            })
            .collect();
        let after = match chance.u8(..3) {
            0 if !moved.is_empty() => moved[chance.usize(..moved.len())] + chance.usize(..=1),
            _ => chance.usize(..=ops.len()),
        };
        let all = [Unsynced::Lost, Unsynced::WrittenPart, Unsynced::Some, Unsynced::Torn];
        Self { after, unsynced: all[chance.usize(..all.len())], seed: chance.u64(..) }
    }

    /// The state of the disk after the cut.
    pub(super) fn image(&self, ops: &[DiskOp]) -> DiskImage {
        let mut chance = fastrand::Rng::with_seed(self.seed);
        let ops = &ops[..self.after.min(ops.len())];
        let mut synced = [0; DATABASE.len()];
        for op in ops {
            if let DiskOp::Synced { file, upto } = op {
                synced[*file] = synced[*file].max(*upto);
            }
        }
        let mut image = DiskImage::default();
        for (index, op) in ops.iter().enumerate() {
            match op {
                DiskOp::Wrote { file, at, bytes } => {
                    let written_part =
                        if index < synced[*file] { WrittenPart::All } else { self.written_part(&mut chance) };
                    written_part.write(&mut image.files[*file], *at, bytes, &mut chance);
                }
                DiskOp::Truncated { file, size } => {
                    if index < synced[*file] || self.written_part(&mut chance) != WrittenPart::Nothing {
                        image.files[*file].truncate(usize::try_from(*size).unwrap_or(usize::MAX));
                    }
                }
                DiskOp::LogLength { name, length } => {
                    let log_lengths = image.log_lengths.entry(name).or_default();
                    *log_lengths = (*log_lengths).max(*length);
                }
                DiskOp::Synced { .. } => {}
            }
        }
        image
    }

    /// The part of an operation that is kept although it was not synced.
    fn written_part(&self, chance: &mut fastrand::Rng) -> WrittenPart {
        match self.unsynced {
            Unsynced::Lost => WrittenPart::Nothing,
            Unsynced::WrittenPart => WrittenPart::All,
            Unsynced::Some if chance.bool() => WrittenPart::All,
            Unsynced::Some => WrittenPart::Nothing,
            Unsynced::Torn => WrittenPart::Sectors,
        }
    }
}

/// The part of a write that reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WrittenPart {
    Nothing,
    All,
    /// Some sectors, at random.
    Sectors,
}

impl WrittenPart {
    fn write(self, file: &mut Vec<u8>, at: u64, bytes: &[u8], chance: &mut fastrand::Rng) {
        let (mut at, mut rest) = (usize::try_from(at).unwrap_or(usize::MAX), bytes);
        while !rest.is_empty() && self != Self::Nothing {
            // Up to the end of the sector.
            let (part, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES));
            if self == Self::All || chance.bool() {
                // A hole reads as zeros.
                file.resize(file.len().max(at + part.len()), 0);
                file[at..at + part.len()].copy_from_slice(part);
            }
            (at, rest) = (at + part.len(), behind);
        }
    }
}

/// The state of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DiskImage {
    files: [Vec<u8>; DATABASE.len()],
    log_lengths: BTreeMap<&'static str, u64>,
}

impl DiskImage {
    /// Writes the state to a new folder. The logs are copied from `origin`, up to their lengths.
    pub(super) fn restore(&self, origin: &Path, folder: &Path) -> Result<()> {
        fs::create_dir(folder)?;
        for (name, bytes) in DATABASE.iter().zip(&self.files) {
            fs::write(folder.join(name), bytes)?;
        }
        for (name, length) in &self.log_lengths {
            let mut bytes = fs::read(origin.join(name))?;
            bytes.truncate(usize::try_from(*length)?);
            fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops() -> Vec<DiskOp> {
        let wrote = |at, byte, length| DiskOp::Wrote { file: 0, at, bytes: vec![byte; length].into() };
        vec![
            wrote(0, 1, 1_000),
            DiskOp::LogLength { name: "acks", length: 5 },
            wrote(500, 2, 1_000),
            // The second write happened during the sync of the first.
            DiskOp::Synced { file: 0, upto: 1 },
            DiskOp::LogLength { name: "acks", length: 9 },
            DiskOp::Truncated { file: 0, size: 10 },
        ]
    }

    fn file(after: usize, unsynced: Unsynced) -> Vec<u8> {
        PowerCut { after, unsynced, seed: 3 }.image(&ops()).files[0].clone()
    }

    #[test]
    fn synced_writes_are_kept_and_the_cut_decides_about_the_others() {
        assert_eq!(file(1, Unsynced::Lost), [0; 0]);
        assert_eq!(file(5, Unsynced::Lost), [1; 1_000]);
        let both = [vec![1; 500], vec![2; 1_000]].concat();
        assert_eq!(file(5, Unsynced::WrittenPart), both);
        assert_eq!(file(6, Unsynced::WrittenPart), [1; 10]);
        for seed in 0..50 {
            let image = PowerCut { after: 5, unsynced: Unsynced::Some, seed }.image(&ops());
            assert!(image.files[0] == both || image.files[0] == [1; 1_000], "whole or not at all");
        }
    }

    #[test]
    fn a_torn_write_ends_at_sectors() {
        let torn = (0..50).map(|seed| PowerCut { after: 5, unsynced: Unsynced::Torn, seed }.image(&ops()));
        let torn: Vec<Vec<u8>> = torn.map(|image| image.files[0].clone()).collect();
        assert!(
            torn.iter().any(|file| file[510] == 2 && file.get(512) == Some(&1)),
            "the first sector alone"
        );
        assert!(torn.iter().all(|file| file[..500] == [1; 500]), "what was synced stays");
    }

    #[test]
    fn logs_have_their_length_at_the_time_of_the_cut() {
        let log_lengths =
            |after| PowerCut { after, unsynced: Unsynced::WrittenPart, seed: 1 }.image(&ops()).log_lengths;
        assert_eq!(log_lengths(1), BTreeMap::new());
        assert_eq!(log_lengths(4), BTreeMap::from([("acks", 5)]));
        assert_eq!(log_lengths(6), BTreeMap::from([("acks", 9)]));
    }
}
