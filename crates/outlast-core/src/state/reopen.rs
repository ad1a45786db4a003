//! The row of a run that had ended and is open again.

use super::HolderColumns;
use crate::error::WorldError;
use crate::marks::Marks;
use crate::refusal::not_reopenable;
use crate::retried::Reopen;
use crate::run::Status;
use crate::time::Timestamp;

/// What a world reads before it reopens a run.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedRun {
    /// The status of the run.
    pub status: Status,
    /// Its marks.
    pub marks: Marks,
    /// The number of events in its history.
    pub events: u64,
    /// The holder's columns of its row.
    pub kept: u64,
    /// How often it has continued as a new generation.
    pub continued: u64,
    /// Whether it has outbox entries that are not applied.
    pub has_outbox: bool,
}

/// The holder's columns of a run that is reopened. Its status is `pending` then, it is ready at once, it has neither an
/// end nor waits, and it was not asked to stop.
///
/// # Errors
///
/// [`WorldError::Conflict`] when the run cannot be reopened, [`WorldError::Invalid`] when its deadline has passed.
pub fn reopened(run: &EndedRun, reopen: &Reopen, now: Timestamp) -> Result<HolderColumns, WorldError> {
    let id = reopen.message.run;
    if !matches!(run.status, Status::Failed | Status::Cancelled) {
        return Err(not_reopenable(
            id,
            run.status,
            "only a run that has failed or was cancelled can be retried",
        ));
    }
    if run.marks.is_compensated() {
        return Err(not_reopenable(id, run.status, "its compensations have undone what it did"));
    }
    if run.has_outbox {
        let reason = "messages that it has sent are not delivered yet; try again later";
        return Err(not_reopenable(id, run.status, reason));
    }
    if run.events != reopen.events {
        return Err(not_reopenable(
            id,
            run.status,
            "its history has changed since the retry was computed; try again",
        ));
    }
    if reopen.deadline.is_some_and(|deadline| deadline <= now) {
        return Err(WorldError::invalid(format!(
            "the deadline of run {id} has passed, so it would be cancelled at once; give it a later one"
        )));
    }
    Ok(HolderColumns {
        kept: run.kept,
        continued: run.continued,
        replay_from: reopen.replay_from,
        deadline: reopen.deadline,
        ..HolderColumns::default()
    })
}
