//! A disk as a list of deeds, and what a power cut may leave of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::super::Result;
use super::super::place::DATABASE;

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// One thing that was done, in the order in which it was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Wrote {
        file: usize,
        at: u64,
        bytes: Box<[u8]>,
    },
    Truncated {
        file: usize,
        size: u64,
    },
    /// All deeds to the file before this one are on the disk.
    Synced {
        file: usize,
        upto: usize,
    },
    /// A file of the outside has this length now: someone was told something, or an effect happened.
    Told {
        name: &'static str,
        length: u64,
    },
}

/// What becomes of the deeds that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsynced {
    Lost,
    Kept,
    /// Each is lost or kept.
    Some,
    /// Of each, some sectors are lost.
    Torn,
}

/// A power cut: after how many deeds, and what becomes of those that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) after: usize,
    pub(super) unsynced: Unsynced,
    pub(super) seed: u64,
}

impl Cut {
    /// A cut by chance. One of three is in the middle of a checkpoint, if there was one.
    pub(super) fn random(deeds: &[Deed], chance: &mut fastrand::Rng) -> Self {
        let moved: Vec<usize> = (0..deeds.len())
            .filter(|index| {
                matches!(deeds[*index], Deed::Wrote { file: 0, .. } | Deed::Synced { file: 0, .. })
            })
            .collect();
        let after = match chance.u8(..3) {
            0 if !moved.is_empty() => moved[chance.usize(..moved.len())] + chance.usize(..=1),
            _ => chance.usize(..=deeds.len()),
        };
        let all = [Unsynced::Lost, Unsynced::Kept, Unsynced::Some, Unsynced::Torn];
        Self { after, unsynced: all[chance.usize(..all.len())], seed: chance.u64(..) }
    }

    /// What the disk holds after the cut.
    pub(super) fn image(&self, deeds: &[Deed]) -> Image {
        let mut chance = fastrand::Rng::with_seed(self.seed);
        let deeds = &deeds[..self.after.min(deeds.len())];
        let mut synced = [0; DATABASE.len()];
        for deed in deeds {
            if let Deed::Synced { file, upto } = deed {
                synced[*file] = synced[*file].max(*upto);
            }
        }
        let mut image = Image::default();
        for (index, deed) in deeds.iter().enumerate() {
            match deed {
                Deed::Wrote { file, at, bytes } => {
                    let kept = if index < synced[*file] { Kept::All } else { self.kept(&mut chance) };
                    kept.write(&mut image.files[*file], *at, bytes, &mut chance);
                }
                Deed::Truncated { file, size } => {
                    if index < synced[*file] || self.kept(&mut chance) != Kept::Nothing {
                        image.files[*file].truncate(usize::try_from(*size).unwrap_or(usize::MAX));
                    }
                }
                Deed::Told { name, length } => {
                    let told = image.told.entry(name).or_default();
                    *told = (*told).max(*length);
                }
                Deed::Synced { .. } => {}
            }
        }
        image
    }

    /// What is kept of a deed that was not synced.
    fn kept(&self, chance: &mut fastrand::Rng) -> Kept {
        match self.unsynced {
            Unsynced::Lost => Kept::Nothing,
            Unsynced::Kept => Kept::All,
            Unsynced::Some if chance.bool() => Kept::All,
            Unsynced::Some => Kept::Nothing,
            Unsynced::Torn => Kept::Sectors,
        }
    }
}

/// What is kept of one deed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    All,
    /// Some sectors, by chance.
    Sectors,
}

impl Kept {
    fn write(self, file: &mut Vec<u8>, at: u64, bytes: &[u8], chance: &mut fastrand::Rng) {
        let (mut at, mut rest) = (usize::try_from(at).unwrap_or(usize::MAX), bytes);
        while !rest.is_empty() && self != Self::Nothing {
            // Up to the end of the sector, wherever the write began.
            let (part, behind) = rest.split_at(rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES));
            if self == Self::All || chance.bool() {
                // Where there was nothing, a hole reads as zeros.
                file.resize(file.len().max(at + part.len()), 0);
                file[at..at + part.len()].copy_from_slice(part);
            }
            (at, rest) = (at + part.len(), behind);
        }
    }
}

/// What a disk holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Image {
    files: [Vec<u8>; DATABASE.len()],
    told: BTreeMap<&'static str, u64>,
}

impl Image {
    /// Makes a folder of it. What the outside knew comes from `origin`.
    pub(super) fn restore(&self, origin: &Path, folder: &Path) -> Result<()> {
        fs::create_dir(folder)?;
        for (name, bytes) in DATABASE.iter().zip(&self.files) {
            fs::write(folder.join(name), bytes)?;
        }
        for (name, length) in &self.told {
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

    fn deeds() -> Vec<Deed> {
        let wrote = |at, byte, length| Deed::Wrote { file: 0, at, bytes: vec![byte; length].into() };
        vec![
            wrote(0, 1, 1_000),
            Deed::Told { name: "acks", length: 5 },
            wrote(500, 2, 1_000),
            // The second write came while the disk was busy with the first.
            Deed::Synced { file: 0, upto: 1 },
            Deed::Told { name: "acks", length: 9 },
            Deed::Truncated { file: 0, size: 10 },
        ]
    }

    fn file(after: usize, unsynced: Unsynced) -> Vec<u8> {
        Cut { after, unsynced, seed: 3 }.image(&deeds()).files[0].clone()
    }

    #[test]
    fn what_was_synced_is_there_and_the_rest_is_as_the_cut_says() {
        assert_eq!(file(1, Unsynced::Lost), [0; 0]);
        assert_eq!(file(5, Unsynced::Lost), [1; 1_000]);
        let both = [vec![1; 500], vec![2; 1_000]].concat();
        assert_eq!(file(5, Unsynced::Kept), both);
        assert_eq!(file(6, Unsynced::Kept), [1; 10]);
        for seed in 0..50 {
            let image = Cut { after: 5, unsynced: Unsynced::Some, seed }.image(&deeds());
            assert!(image.files[0] == both || image.files[0] == [1; 1_000], "whole or not at all");
        }
    }

    #[test]
    fn a_torn_write_ends_at_sectors() {
        let torn = (0..50).map(|seed| Cut { after: 5, unsynced: Unsynced::Torn, seed }.image(&deeds()));
        let torn: Vec<Vec<u8>> = torn.map(|image| image.files[0].clone()).collect();
        assert!(
            torn.iter().any(|file| file[510] == 2 && file.get(512) == Some(&1)),
            "the first sector alone"
        );
        assert!(torn.iter().all(|file| file[..500] == [1; 500]), "what was synced stays");
    }

    #[test]
    fn what_was_told_is_as_of_the_cut() {
        let told = |after| Cut { after, unsynced: Unsynced::Kept, seed: 1 }.image(&deeds()).told;
        assert_eq!(told(1), BTreeMap::new());
        assert_eq!(told(4), BTreeMap::from([("acks", 5)]));
        assert_eq!(told(6), BTreeMap::from([("acks", 9)]));
    }
}
