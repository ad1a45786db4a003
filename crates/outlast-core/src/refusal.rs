//! Refusals that every world gives in the same words.

use crate::error::WorldError;
use crate::id::{RunId, SessionId};
use crate::limits::{BATCH_TURNS_MAX, INBOX_MESSAGES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX};
use crate::message::MessageBody;
use crate::run::{Start, Status};

/// There is no such run.
pub fn no_run(run: RunId) -> WorldError {
    WorldError::NotFound(format!("there is no run {run}; look at the list of runs"))
}

/// The session is gone.
pub fn session_gone(session: SessionId) -> WorldError {
    WorldError::Fenced(format!("session {session} is gone: it left or was taken over; join again"))
}

/// The run is not stuck, so there is nothing to resume.
pub fn not_stuck(run: RunId, status: Status) -> WorldError {
    WorldError::Conflict(format!("run {run} is {status}, not stuck; nothing to resume"))
}

/// Checks what a start asks for against the limits.
///
/// # Errors
///
/// [`WorldError::Limit`] when the workflow's name or the key is too long.
pub fn check_start(start: &Start) -> Result<(), WorldError> {
    let name = start.workflow.len();
    if name > NAME_BYTES_MAX {
        let message =
            format!("the workflow's name has {name} bytes, the limit is {NAME_BYTES_MAX}; shorten it");
        return Err(WorldError::Limit(message));
    }
    let key = start.key.as_ref().map_or(0, |key| key.text.len());
    if key > KEY_BYTES_MAX {
        let message = format!("the key has {key} bytes, the limit is {KEY_BYTES_MAX}; use a shorter one");
        return Err(WorldError::Limit(message));
    }
    Ok(())
}

/// The start's key names a run that was started otherwise.
pub fn key_taken(start: &Start, run: RunId, workflow: &str) -> WorldError {
    let key = start.key.as_ref().map_or("", |key| &key.text);
    let what = if workflow == &*start.workflow {
        format!("workflow `{workflow}` with another input")
    } else {
        format!("workflow `{workflow}`, not `{}`", start.workflow)
    };
    WorldError::Conflict(format!("key `{key}` names run {run} of {what}; use another key"))
}

/// Checks whether a run in this status, with so many unread messages, takes one more.
///
/// # Errors
///
/// [`WorldError::Conflict`] when it has ended, [`WorldError::Limit`] when its inbox is full.
pub fn check_send(run: RunId, status: Status, unread: u64, body: &MessageBody) -> Result<(), WorldError> {
    if status.is_final() {
        return Err(WorldError::Conflict(format!(
            "run {run} has ended ({status}); it takes no more messages"
        )));
    }
    if unread >= INBOX_MESSAGES_MAX && !body.is_exempt_from_limit() {
        return Err(WorldError::Limit(format!(
            "the inbox of run {run} is full: {unread} messages are unread, the limit is {INBOX_MESSAGES_MAX}; \
             wait until the run has read some"
        )));
    }
    Ok(())
}

/// Checks how many turns are committed in one call.
///
/// # Errors
///
/// [`WorldError::Limit`] when there are too many.
pub fn check_batch(turns: usize) -> Result<(), WorldError> {
    if turns <= BATCH_TURNS_MAX {
        return Ok(());
    }
    Err(WorldError::Limit(format!(
        "the batch has {turns} turns, the limit is {BATCH_TURNS_MAX}; commit it in parts"
    )))
}
