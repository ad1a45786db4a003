//! Runs and operations for tests of what is printed.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast::{RunId, Timestamp};
use outlast_api::{AttemptJson, FailureJson, InboxJson, OperationJson, RunJson};

/// The time of the tests.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(1_794_543_991_000_000)
}

/// A number of seconds before now.
pub(crate) fn before(seconds: u64) -> Timestamp {
    now().minus(Duration::from_secs(seconds))
}

/// A run that was started three minutes ago.
pub(crate) fn run(status: &str) -> RunJson {
    RunJson {
        id: RunId::from_bits(0x0199_9999_9999_9999_0000_0000_1234_5678),
        workflow: "checkout".into(),
        version: 1,
        queue: "default".into(),
        priority: 0,
        key: None,
        status: status.into(),
        marks: Vec::new(),
        flags: Vec::new(),
        created_at: before(182).into(),
        updated_at: now().into(),
        ended_at: None,
        wake_at: None,
        deadline: None,
        waits: Vec::new(),
        stuck: None,
        failure: None,
        parent: None,
        restarted_from: None,
        forked_from: None,
        tags: BTreeMap::new(),
        owner: None,
        inbox: InboxJson::default(),
        crashes: 0,
        failed_builds: Vec::new(),
        generation: 1,
        is_queued_step: false,
    }
}

/// An operation from one time to another, or still open.
pub(crate) fn operation(
    op: u64,
    kind: &str,
    name: &str,
    from: Timestamp,
    to: Option<Timestamp>,
) -> OperationJson {
    OperationJson {
        op,
        kind: kind.into(),
        name: name.into(),
        status: if to.is_some() { "completed".into() } else { "open".into() },
        started_at: from.into(),
        changed_at: from.into(),
        cancelled_at: None,
        ended_at: to.map(Into::into),
        attempts: Vec::new(),
        attempt_count: u32::from(kind == "step"),
        crashed: 0,
        retry_at: None,
        until: None,
        run: None,
        queue: None,
        input: None,
        output: None,
        failure: None,
        tags: BTreeMap::new(),
        undoes: None,
        rejected: Vec::new(),
        webhook: None,
        skipped: false,
    }
}

/// An attempt that failed.
pub(crate) fn failed_attempt(number: u32, from: Timestamp, to: Timestamp) -> AttemptJson {
    AttemptJson {
        number,
        due_at: from.into(),
        ended_at: Some(to.into()),
        failure: Some(failure("bank does not answer")),
        build: None,
    }
}

/// A failure.
pub(crate) fn failure(message: &str) -> FailureJson {
    FailureJson {
        kind: "error".into(),
        message: message.into(),
        code: None,
        class: None,
        step: None,
        attempts: 1,
        exhausted: false,
        details: None,
        causes: Vec::new(),
        failed_compensations: Vec::new(),
    }
}
