//! Errors that all worlds return with the same text.

use crate::error::WorldError;
use crate::failure::{Failure, FailureKind};
use crate::id::{AttemptId, RunId, SessionId};
use crate::limits::{
    BATCH_STARTS_MAX, BATCH_TURNS_MAX, HISTORIES_READ_MAX, HOOK_BUFFER_MAX, INBOX_MESSAGES_MAX,
    KEY_BYTES_MAX, NAME_BYTES_MAX, QUEUES_MAX, RUNS_BY_ID_MAX, STREAMS_MAX, TAG_VALUE_BYTES_MAX, TAGS_MAX,
};
use crate::marks::Marks;
use crate::message::{MessageBody, NewMessage};
use crate::queue::{BUILT_IN_PREFIX, BUILT_IN_QUEUE, check_priority, check_queue, step_of_workflow};
use crate::run::{Start, Status, Tags, Wait};
use crate::work::Join;

/// There is no such run.
pub fn no_run(run: RunId) -> WorldError {
    WorldError::not_found(format!("there is no run {run}; look at the list of runs"))
}

/// The session has ended.
pub fn session_gone(session: SessionId) -> WorldError {
    WorldError::fenced(format!("session {session} is gone: it left or was taken over; join again"))
}

/// The session does not hold the run, so it cannot write to its streams.
pub fn streams_fenced(run: RunId) -> WorldError {
    WorldError::fenced(format!("the session does not hold run {run}, so it cannot write to its streams"))
}

/// The session cannot record the outcome of an attempt at a step of a run that it does not hold.
pub fn outcome_fenced(run: RunId) -> WorldError {
    WorldError::fenced(format!(
        "the session does not hold run {run}, so the transaction of its step is rolled back"
    ))
}

/// The step has ended the transaction in which its outcome is to be recorded.
pub fn transaction_ended_by_step(run: RunId) -> WorldError {
    WorldError::invalid(format!(
        "the step of run {run} has committed or rolled back its transaction itself; remove COMMIT and ROLLBACK: \
         return an error to roll back"
    ))
}

/// The attempt cannot write, because a newer attempt has written, or it belongs to another session.
pub fn attempt_fenced(run: RunId, attempt: AttemptId) -> WorldError {
    WorldError::fenced(format!("attempt {attempt} of run {run} is not the newest one, so it cannot write"))
}

/// The run has too many streams.
pub fn too_many_streams(run: RunId) -> WorldError {
    WorldError::limit(format!("run {run} has {STREAMS_MAX} streams, which is the limit; use fewer names"))
}

/// Earlier chunks of the attempt are missing.
pub fn missing_chunks(stream: &str, first: u64, expected: u64) -> WorldError {
    WorldError::invalid(format!(
        "chunk {first} of an attempt cannot be written to stream `{stream}`, because the next one is {expected}"
    ))
}

/// The run has ended or a worker holds it, so it cannot be resumed.
pub fn not_resumable(run: RunId, status: Status) -> WorldError {
    let reason = if status.is_final() { "it has ended" } else { "a worker holds it" };
    WorldError::conflict(format!("run {run} is {status}, so there is nothing to resume: {reason}"))
}

/// The run cannot be deleted, because it has not ended, is in quarantine, or has an outbox that is not delivered.
pub fn not_deletable(run: RunId, status: Status, marks: Marks) -> WorldError {
    let reason = if !status.is_final() {
        "it has not ended; terminate it first"
    } else if marks.is_quarantined() {
        "it is in quarantine; release it first"
    } else {
        "messages that it has sent are not delivered yet; try again later"
    };
    WorldError::conflict(format!("run {run} is {status}, so it is not deleted: {reason}"))
}

/// The run cannot be retried.
pub fn not_reopenable(run: RunId, status: Status, reason: &str) -> WorldError {
    WorldError::conflict(format!("run {run} is {status} and cannot be retried: {reason}"))
}

/// A run does not have the turns any more from which a fork was computed.
pub fn not_forkable(run: RunId) -> WorldError {
    WorldError::conflict(format!(
        "run {run} cannot be forked: a part of its history was deleted since the fork was computed; try again"
    ))
}

/// Checks a start against the limits.
///
/// # Errors
///
/// [`WorldError::Limit`] when the workflow's name, the queue's, the key or the tags are past their limits,
/// [`WorldError::Invalid`] when the queue has no name, there is no such priority, or the deadline comes
/// before the run may begin.
pub fn check_start(start: &Start) -> Result<(), WorldError> {
    // The name of a queued step is a prefix and the name of the step, which may have the maximum length.
    let name = step_of_workflow(&start.workflow).unwrap_or(&start.workflow).len();
    if name > NAME_BYTES_MAX {
        let message =
            format!("the workflow's name has {name} bytes, the limit is {NAME_BYTES_MAX}; shorten it");
        return Err(WorldError::limit(message));
    }
    let is_built_in = &*start.queue == BUILT_IN_QUEUE && start.workflow.starts_with(BUILT_IN_PREFIX);
    if !is_built_in {
        check_served(&start.queue)?;
    }
    check_priority(start.priority).map_err(WorldError::invalid)?;
    let key = start.key.as_ref().map_or(0, |key| key.text.len());
    if key > KEY_BYTES_MAX {
        let message = format!("the key has {key} bytes, the limit is {KEY_BYTES_MAX}; use a shorter one");
        return Err(WorldError::limit(message));
    }
    if let (Some(begin), Some(deadline)) = (start.not_before, start.deadline)
        && deadline <= begin
    {
        let message =
            format!("the deadline {deadline} is not after {begin}, when the run may begin; set a later one");
        return Err(WorldError::invalid(message));
    }
    check_tags(&start.tags).map_err(WorldError::limit)
}

/// Checks the data of a worker that joins.
///
/// # Errors
///
/// [`WorldError::Limit`] when it serves too many queues or one with too long a name,
/// [`WorldError::Invalid`] when a queue has no name.
pub fn check_join(join: &Join) -> Result<(), WorldError> {
    let queues = join.queues.len();
    if queues > QUEUES_MAX {
        return Err(WorldError::limit(format!(
            "the worker serves {queues} queues, the limit is {QUEUES_MAX}; start another worker for some of them"
        )));
    }
    let mut of_programs = join.queues.iter().filter(|queue| &***queue != BUILT_IN_QUEUE);
    of_programs.try_for_each(|queue| check_served(queue))
}

fn check_served(queue: &str) -> Result<(), WorldError> {
    let refusal = if queue.len() > NAME_BYTES_MAX { WorldError::limit } else { WorldError::invalid };
    check_queue(queue).map_err(refusal)
}

/// Checks all the tags of a run against the limits.
///
/// # Errors
///
/// The problem and the remedy.
pub fn check_tags(tags: &Tags) -> Result<(), String> {
    if tags.len() > TAGS_MAX {
        return Err(format!("the run has {} tags, the limit is {TAGS_MAX}; use fewer", tags.len()));
    }
    for (name, value) in tags {
        if name.is_empty() {
            return Err("a tag needs a name; give it at least one character".into());
        }
        if name.len() > NAME_BYTES_MAX {
            let (cut, bytes) = (name.chars().take(20).collect::<String>(), name.len());
            return Err(format!(
                "the name of tag `{cut}…` has {bytes} bytes, the limit is {NAME_BYTES_MAX}; shorten it"
            ));
        }
        if value.len() > TAG_VALUE_BYTES_MAX {
            let bytes = value.len();
            return Err(format!(
                "the value of tag `{name}` has {bytes} bytes, the limit is {TAG_VALUE_BYTES_MAX}; shorten it"
            ));
        }
    }
    Ok(())
}

/// Checks how many runs are started in one call.
///
/// # Errors
///
/// [`WorldError::Limit`] when there are too many.
pub fn check_starts(starts: usize) -> Result<(), WorldError> {
    if starts <= BATCH_STARTS_MAX {
        return Ok(());
    }
    Err(WorldError::limit(format!(
        "the batch has {starts} starts, the limit is {BATCH_STARTS_MAX}; start them in parts"
    )))
}

/// The start's key names a run with another workflow or input.
pub fn key_taken(start: &Start, run: RunId, workflow: &str) -> WorldError {
    let key = start.key.as_ref().map_or("", |key| &key.text);
    let what = if workflow == &*start.workflow {
        format!("workflow `{workflow}` with another input")
    } else {
        format!("workflow `{workflow}`, not `{}`", start.workflow)
    };
    WorldError::conflict(format!("key `{key}` names run {run} of {what}; use another key"))
}

/// Checks whether a run accepts one more message.
///
/// # Errors
///
/// [`WorldError::Conflict`] when it has ended, or is to be paused and was asked to stop; [`WorldError::Limit`] when its inbox is full, or when a hook's payload
/// would exceed the limit of kept payloads. A payload for a hook that the run waits for is not refused because of kept
/// payloads: it may be the one that lets the run continue and take them.
pub fn check_send(run: RunId, receiver: Receiver<'_>, body: &MessageBody) -> Result<(), WorldError> {
    let Receiver { status, unread, kept, waits, is_cancel_requested } = receiver;
    if status.is_final() {
        return Err(WorldError::conflict(format!(
            "run {run} has ended ({status}); it takes no more messages"
        )));
    }
    if is_cancel_requested && matches!(body, MessageBody::Pause { .. }) {
        return Err(WorldError::conflict(format!(
            "run {run} was asked to stop, so it cannot be paused; wait for its end, or terminate it"
        )));
    }
    if body.is_exempt_from_limit() {
        return Ok(());
    }
    if unread >= INBOX_MESSAGES_MAX {
        return Err(WorldError::limit(format!(
            "the inbox of run {run} is full: {unread} messages are unread, the limit is {INBOX_MESSAGES_MAX}; \
             wait until the run has read some"
        )));
    }
    if let MessageBody::Hook { name, .. } = body
        && unread + kept >= HOOK_BUFFER_MAX as u64
        && !waits.iter().any(|wait| wait.is_for_hook(name))
    {
        return Err(WorldError::limit(format!(
            "run {run} has {unread} unread messages and keeps {kept} payloads that no hook has taken, the limit \
             is {HOOK_BUFFER_MAX}; it takes payloads only for hooks that it waits for, and `{name}` is none of them: check \
             the name, or wait until the run has taken some"
        )));
    }
    Ok(())
}

/// The run does not hold the token to which a payload is sent.
pub fn token_not_held(run: RunId) -> WorldError {
    WorldError::conflict(format!(
        "run {run} does not hold this token any more; look it up again, or send to the run by the name of its hook"
    ))
}

/// Checks a message that is sent with a start.
///
/// # Errors
///
/// [`WorldError::Invalid`] when it is sent to a token, which only a run that exists can hold.
pub fn check_first_message(message: &NewMessage) -> Result<(), WorldError> {
    match message.body.token_hash() {
        None => Ok(()),
        Some(_) => Err(WorldError::invalid("a message that is sent with a start cannot be sent to a token")),
    }
}

/// The code of a failure whose token another run holds. Its details name that run.
pub const TOKEN_TAKEN: &str = "token_taken";

/// Another run holds the token that a run requests for a hook.
pub fn token_taken(hook: &str, owner: RunId) -> Failure {
    let message = format!(
        "the token for hook `{hook}` is taken by run {owner}; choose another token, or wait until that run has closed it \
         or ended"
    );
    let failure = Failure::new(FailureKind::Conflict, message).with_code(TOKEN_TAKEN);
    Failure { details: Some(Box::new(serde_json::json!({ "run": owner }))), ..failure }
}

/// The worker that holds the run cannot read the message.
pub fn unreadable_by_holder(run: RunId, holder: &Holder<'_>, body: &MessageBody) -> WorldError {
    let Holder { host, pid, format } = holder;
    WorldError::conflict(format!(
        "process {pid} on {host} holds run {run} and cannot read this message, which needs format {}: its build reads \
         formats up to {format}; stop that worker or deploy a newer build there, then send again",
        body.format()
    ))
}

/// The worker that holds a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// Its machine.
    pub host: &'a str,
    /// Its process.
    pub pid: u32,
    /// The highest format that its build can read.
    pub format: u32,
}

/// The state of a run that decides whether it accepts one more message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receiver<'a> {
    /// The status of the run.
    pub status: Status,
    /// The number of unread messages.
    pub unread: u64,
    /// The number of kept payloads.
    pub kept: u64,
    /// Its waits. Needed only for a run with kept payloads.
    pub waits: &'a [Wait],
    /// Whether it was asked to stop.
    pub is_cancel_requested: bool,
}

// A run without kept payloads refuses messages only when its inbox is full, so its waits need not be read.
const _: () = assert!(HOOK_BUFFER_MAX as u64 >= INBOX_MESSAGES_MAX);

/// Checks how many runs are read by id in one call.
///
/// # Errors
///
/// [`WorldError::Limit`] when they are too many.
pub fn check_runs_by_id(runs: usize) -> Result<(), WorldError> {
    if runs <= RUNS_BY_ID_MAX {
        return Ok(());
    }
    Err(WorldError::limit(format!(
        "{runs} runs are requested by id, the limit is {RUNS_BY_ID_MAX}; read them in parts"
    )))
}

/// Checks how many histories are read in one call.
///
/// # Errors
///
/// [`WorldError::Limit`] when they are too many.
pub fn check_histories(runs: usize) -> Result<(), WorldError> {
    if runs <= HISTORIES_READ_MAX {
        return Ok(());
    }
    Err(WorldError::limit(format!(
        "{runs} histories are requested, the limit is {HISTORIES_READ_MAX}; read them in parts"
    )))
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
    Err(WorldError::limit(format!(
        "the batch has {turns} turns, the limit is {BATCH_TURNS_MAX}; commit it in parts"
    )))
}

/// The code of the failure of a child that was not started.
pub const CHILD_NOT_STARTED: &str = "outlast:child_not_started";

/// The failure of a child's operation whose start was refused.
pub fn child_refused(start: &Start, error: &WorldError) -> Failure {
    let kind = match error {
        WorldError::Conflict(_) => FailureKind::Conflict,
        WorldError::Limit(_) => FailureKind::Limit,
        _ => FailureKind::Invalid,
    };
    let mut failure = Failure::new(kind, format!("child `{}` was not started: {error}", start.workflow));
    failure.code = Some(CHILD_NOT_STARTED.into());
    failure
}

/// The failure of an awaited child's operation whose key names a run that another start began.
pub fn child_exists(start: &Start, run: RunId) -> Failure {
    let key = start.key.as_ref().map_or("", |key| &key.text);
    let message = format!(
        "child `{}` was not started: key `{key}` names run {run}, which is not a child of this operation; \
         use another key, or abandon the child",
        start.workflow
    );
    let mut failure = Failure::new(FailureKind::Conflict, message);
    failure.code = Some(CHILD_NOT_STARTED.into());
    failure.details = Some(Box::new(serde_json::json!({ "run": run })));
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Payload;

    const RUN: RunId = RunId::from_bits(7);

    fn payload_for(hook: &str) -> MessageBody {
        MessageBody::Hook { name: hook.into(), payload: Payload::null(), to: Default::default() }
    }

    #[test]
    fn a_run_that_keeps_too_many_payloads_takes_those_it_waits_for() {
        let waits = [
            Wait::Timer { op: 0, until: crate::Timestamp::from_micros(5) },
            Wait::Hook { op: 1, name: "go".into(), until: None, token: None },
        ];
        let limit = HOOK_BUFFER_MAX as u64;
        let (status, is_cancel_requested) = (Status::Waiting, false);
        let full = Receiver { status, unread: 3, kept: limit, waits: &waits, is_cancel_requested };
        assert_eq!(check_send(RUN, full, &payload_for("go")), Ok(()));
        let refused = check_send(RUN, full, &payload_for("ga")).unwrap_err().to_string();
        assert!(refused.contains("`ga` is none of them"), "{refused}");
        let with_room = Receiver { kept: limit - 4, ..full };
        assert_eq!(check_send(RUN, with_room, &payload_for("ga")), Ok(()));
        let unread = Receiver { unread: INBOX_MESSAGES_MAX, kept: 0, ..full };
        assert!(matches!(check_send(RUN, unread, &payload_for("go")), Err(WorldError::Limit(_))));
    }
}
