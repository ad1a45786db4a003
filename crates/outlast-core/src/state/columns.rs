//! The holder's columns of a run's row, and how they change.

use std::sync::Arc;

use crate::failed_builds::FailedBuilds;
use crate::marks::Marks;
use crate::run::{RunFailure, Start, Stuck};
use crate::time::Timestamp;
use crate::turn::Turn;

/// The columns of a run's row that only its holder changes. A claim returns them, and every turn contains their old
/// and new values, so that a world need not read them to commit it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HolderColumns {
    /// The number of worker crashes that count against the run.
    pub crashes: u32,
    /// The number of kept payloads.
    pub kept: u64,
    /// When it is cancelled; `None` once it was cancelled or has ended.
    pub deadline: Option<Timestamp>,
    /// Why it is stuck. A run that is claimed keeps this until it progresses.
    pub stuck: Option<Box<Stuck>>,
    /// The builds that could not continue it.
    pub failed_builds: FailedBuilds,
    /// Those of its marks that only the holder sets and clears ([`Marks::OF_HOLDER`]). The row has further marks. In the
    /// columns after a turn with which the run fails, [`Marks::QUARANTINED`] puts it into quarantine.
    pub marks: Marks,
    /// The number of the first event that a replay needs: the first event of the turn with the last cut, 0 without
    /// one. Claims do not load turns before it.
    pub replay_from: u64,
    /// How often it has continued as a new generation.
    pub continued: u64,
    /// Whether it waits for the next attempt of a step. It is written when the holder lets go of the run: a run that is
    /// claimed keeps the value until then.
    pub is_retrying: bool,
    /// Why it failed. Only a run that has ended as failed has it.
    pub failure: Option<Box<RunFailure>>,
}

impl HolderColumns {
    /// The columns of a new run.
    pub fn of_start(start: &Start) -> Self {
        Self { deadline: start.deadline, ..Self::default() }
    }

    /// The columns after the end of a run.
    #[must_use]
    pub fn ended(&self) -> Self {
        let Self { kept, replay_from, continued, marks, .. } = *self;
        Self { kept, replay_from, continued, marks: marks.ended(), ..Self::default() }
    }
}

/// The holder's columns before and after a turn. Most turns do not change them; both are then the same allocation.
#[derive(Clone, Debug, Default)]
pub struct TurnColumns {
    /// The values before the turn.
    pub before: Arc<HolderColumns>,
    /// The values after the turn. [`RowChange`](crate::RowChange) decides about the reason why the run was stuck and
    /// the failed builds.
    pub after: Arc<HolderColumns>,
}

impl TurnColumns {
    /// The columns of a turn that does not change them.
    pub fn unchanged(columns: impl Into<Arc<HolderColumns>>) -> Self {
        let before = columns.into();
        Self { after: before.clone(), before }
    }

    /// The columns of a turn that changes them.
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
    /// The columns after the turn if the run stays held. Once the run progresses, the reason why it was stuck and the
    /// failed builds are cleared.
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
