//! The columns of a run's row that only its holder changes: what they are, and how they follow from each other.

use std::sync::Arc;

use crate::failed_builds::FailedBuilds;
use crate::run::{Start, Stuck};
use crate::time::Timestamp;
use crate::turn::Turn;

/// The columns of a run's row that only its holder changes. A claim brings them, and every turn says what they were
/// and what it makes of them, so that a world need not read them to commit it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HolderColumns {
    /// How many crashes of its worker count against the run.
    pub crashes: u32,
    /// How many payloads for hooks were received that nobody has taken.
    pub kept: u64,
    /// When it is asked to stop, as long as that counts.
    pub deadline: Option<Timestamp>,
    /// Why it is stuck. A run that is claimed keeps this until it progresses.
    pub stuck: Option<Box<Stuck>>,
    /// The builds that could not continue it.
    pub failed_builds: FailedBuilds,
}

impl HolderColumns {
    /// Those of a run that has just started.
    pub fn of_start(start: &Start) -> Self {
        Self { deadline: start.deadline, ..Self::default() }
    }

    /// Those that are left when a run ends which had these.
    #[must_use]
    pub fn ended(&self) -> Self {
        Self { kept: self.kept, ..Self::default() }
    }
}

/// What a turn says of the columns that only the holder changes. Most turns leave them as they are, and then both are
/// the same allocation.
#[derive(Clone, Debug, Default)]
pub struct TurnColumns {
    /// As they were before the turn.
    pub before: Arc<HolderColumns>,
    /// As its workflow and worker leave them. What becomes of the reason why the run was stuck and of the builds that
    /// failed is decided by [`RowChange`](crate::RowChange).
    pub after: Arc<HolderColumns>,
}

impl TurnColumns {
    /// Those of a turn that leaves them as they are.
    pub fn unchanged(columns: impl Into<Arc<HolderColumns>>) -> Self {
        let before = columns.into();
        Self { after: before.clone(), before }
    }

    /// Those of a turn that makes this of them.
    pub fn changed(before: Arc<HolderColumns>, after: HolderColumns) -> Self {
        let after = if *before == after { before.clone() } else { Arc::new(after) };
        Self { before, after }
    }
}

impl PartialEq for TurnColumns {
    fn eq(&self, other: &Self) -> bool {
        self.before == other.before && self.after == other.after
    }
}

impl Turn {
    /// The columns of the run after the turn, if it is held on: once it progresses, nobody remembers why it was stuck and
    /// which builds failed.
    pub fn held_columns(&self) -> Arc<HolderColumns> {
        let TurnColumns { before, after } = &self.columns;
        let next_event = self.next_event();
        let stuck = before.stuck.as_deref().filter(|_| next_event == self.seq);
        let failed_builds = before.failed_builds.at_event(next_event);
        if after.stuck.as_deref() == stuck && after.failed_builds == failed_builds {
            return after.clone();
        }
        let stuck = stuck.cloned().map(Box::new);
        Arc::new(HolderColumns { stuck, failed_builds, ..(**after).clone() })
    }
}
