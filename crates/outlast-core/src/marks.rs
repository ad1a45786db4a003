//! Marks: what is true of a run beside its status.
//!
//! The status tells where a run is in line; a mark is set and cleared in the same change as its cause. Lists show the
//! mark as the status.

use std::collections::BTreeMap;
use std::fmt;

/// The marks of a run, a set of bits.
///
/// A mark that this build does not know is kept and shown as `other`.
///
/// ```
/// use outlast_core::Marks;
///
/// let marks = Marks::PAUSED.with(Marks::QUARANTINED);
/// assert!(marks.is_paused() && marks.is_quarantined());
/// assert_eq!(marks.to_string(), "quarantined, paused");
/// assert_eq!(marks.without(Marks::PAUSED), Marks::QUARANTINED);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Marks(u32);

impl Marks {
    /// No mark.
    pub const NONE: Self = Self(0);
    /// The run does not continue until it is resumed, cancelled or terminated, or its deadline passes.
    pub const PAUSED: Self = Self(1);
    /// The run ends, and its compensations run before that.
    pub const COMPENSATING: Self = Self(2);
    /// The run has ended, and its compensations have run.
    pub const COMPENSATED: Self = Self(4);
    /// The run is kept until it is released: pruning, retention and bulk calls skip it.
    pub const QUARANTINED: Self = Self(8);

    /// The marks that only the holder of a run sets and clears.
    pub const OF_HOLDER: Self = Self::COMPENSATING.with(Self::COMPENSATED);

    /// Every mark that this build knows; the first one that a run has is shown as its status.
    pub const ALL: [Self; 4] = [Self::QUARANTINED, Self::PAUSED, Self::COMPENSATING, Self::COMPENSATED];

    /// The marks with these bits, as a world stores them.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, as a world stores them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether there is no mark.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has one of these marks.
    pub const fn has(self, marks: Self) -> bool {
        self.0 & marks.0 != 0
    }

    /// Whether the run is paused.
    pub const fn is_paused(self) -> bool {
        self.has(Self::PAUSED)
    }

    /// Whether the run's compensations are running.
    pub const fn is_compensating(self) -> bool {
        self.has(Self::COMPENSATING)
    }

    /// Whether the run's compensations have run.
    pub const fn is_compensated(self) -> bool {
        self.has(Self::COMPENSATED)
    }

    /// Whether the run is in quarantine.
    pub const fn is_quarantined(self) -> bool {
        self.has(Self::QUARANTINED)
    }

    /// These marks and the given ones.
    #[must_use]
    pub const fn with(self, marks: Self) -> Self {
        Self(self.0 | marks.0)
    }

    /// These marks except the given ones.
    #[must_use]
    pub const fn without(self, marks: Self) -> Self {
        Self(self.0 & !marks.0)
    }

    /// Those of the marks that only the holder sets and clears.
    #[must_use]
    pub const fn of_holder(self) -> Self {
        Self(self.0 & Self::OF_HOLDER.0)
    }

    /// The marks after the end of the run: a run that has ended is neither paused nor compensating.
    #[must_use]
    pub const fn ended(self) -> Self {
        self.without(Self::PAUSED).without(Self::COMPENSATING)
    }

    /// The names of the marks, the most important first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let known = Self::ALL.into_iter().filter(move |mark| self.has(*mark)).map(Self::name_of_one);
        let unknown = Self::ALL.into_iter().fold(self, Self::without);
        known.chain((!unknown.is_empty()).then_some("other"))
    }

    /// The name of a single mark.
    const fn name_of_one(self) -> &'static str {
        match self {
            Self::PAUSED => "paused",
            Self::COMPENSATING => "compensating",
            Self::COMPENSATED => "compensated",
            Self::QUARANTINED => "quarantined",
            _ => "other",
        }
    }
}

impl fmt::Display for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.names().collect::<Vec<_>>().join(", "))
    }
}

/// The number of runs with each mark, including marks without runs. A run with two marks is counted twice.
pub type MarkCounts = BTreeMap<Marks, u64>;

/// The number of runs with each mark, from the number of runs with each combination of marks.
pub fn count_marks(combinations: impl IntoIterator<Item = (Marks, u64)>) -> MarkCounts {
    let mut counts: MarkCounts = Marks::ALL.into_iter().map(|mark| (mark, 0)).collect();
    for (marks, runs) in combinations {
        for (mark, count) in &mut counts {
            *count += if marks.has(*mark) { runs } else { 0 };
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_keeps_what_describes_its_end() {
        let all = Marks::from_bits(31);
        assert_eq!(all.ended().to_string(), "quarantined, compensated, other");
        assert!(!all.ended().is_paused() && !all.ended().is_compensating());
    }

    #[test]
    fn a_run_with_two_marks_counts_for_both() {
        let both = Marks::PAUSED.with(Marks::QUARANTINED);
        let counts = count_marks([(Marks::PAUSED, 2), (both, 3)]);
        assert_eq!((counts[&Marks::PAUSED], counts[&Marks::QUARANTINED]), (5, 3));
        assert_eq!(counts[&Marks::COMPENSATED], 0);
    }

    #[test]
    fn a_mark_of_a_later_build_is_kept_and_shown_as_other() {
        let marks = Marks::from_bits(0x100).with(Marks::PAUSED);
        assert_eq!(marks.to_string(), "paused, other");
        assert_eq!(marks.without(Marks::PAUSED).bits(), 0x100);
        assert_eq!(Marks::NONE.to_string(), "");
    }
}
