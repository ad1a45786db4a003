//! Flags: what follows from other fields of a run.

use super::{RunView, Status};

/// A flag of a run: it follows from other fields, and says more than the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FlagFilter {
    /// The run waits for the next attempt of a step.
    Retrying,
    /// The run was asked to stop, and has not ended.
    Cancelling,
}

impl FlagFilter {
    /// Every flag.
    pub const ALL: [Self; 2] = [Self::Retrying, Self::Cancelling];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retrying => "retrying",
            Self::Cancelling => "cancelling",
        }
    }
}

impl std::fmt::Display for FlagFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The number of runs with each flag, counted up to [`FLAG_COUNT_MAX`](crate::limits::FLAG_COUNT_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlagCounts {
    /// Runs that wait for the next attempt of a step.
    pub retrying: u64,
    /// Runs that were asked to stop, and have not ended.
    pub cancelling: u64,
}

impl FlagCounts {
    /// The counts of a world.
    pub const fn new(retrying: u64, cancelling: u64) -> Self {
        Self { retrying, cancelling }
    }
}

impl RunView {
    /// Whether it was asked to stop, and has not ended.
    pub fn is_cancelling(&self) -> bool {
        self.is_cancel_requested && !self.status.is_final()
    }

    /// Whether it has this flag.
    pub fn has_flag(&self, flag: FlagFilter) -> bool {
        match flag {
            FlagFilter::Retrying => self.is_retrying && self.status == Status::Waiting,
            FlagFilter::Cancelling => self.is_cancelling(),
        }
    }

    /// The names of its flags.
    ///
    /// ```
    /// # use outlast_core::{HolderColumns, RunId, RunView, Status};
    /// let mut run = RunView::of_columns(RunId::from_bits(1), Status::Waiting, &HolderColumns::default());
    /// run.is_retrying = true;
    /// assert_eq!(run.flags().collect::<Vec<_>>(), ["retrying"]);
    /// ```
    pub fn flags(&self) -> impl Iterator<Item = &'static str> {
        FlagFilter::ALL.into_iter().filter(|flag| self.has_flag(*flag)).map(FlagFilter::as_str)
    }
}
