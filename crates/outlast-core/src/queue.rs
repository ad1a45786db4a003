//! Queues: their names, and the order in which due runs are claimed.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::limits::{NAME_BYTES_MAX, PRIORITY_AGE, PRIORITY_MAX, QUEUE_COUNT_MAX, QUEUE_DEFAULT};
use crate::time::Timestamp;

/// The prefix of the workflow's name of a queued step; the name of the step follows. Workflows of programs must not
/// have this prefix.
pub const STEP_PREFIX: &str = "step:";

/// The prefix of the names of workflows that belong to the engine.
pub const BUILT_IN_PREFIX: &str = "outlast:";

/// The queue of workflows of the engine that no worker of a program has to serve. Only they can be in it.
pub const BUILT_IN_QUEUE: &str = BUILT_IN_PREFIX;

/// The runs of a queue, as clients see them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueView {
    /// The name of the queue.
    pub name: Arc<str>,
    /// The runs that a worker with their code can claim now: new ones, and those that a message, a time or a child has
    /// woken. Counted up to [`QUEUE_COUNT_MAX`].
    pub ready: u64,
    /// When the one of them that has been ready for the longest became ready.
    pub oldest_ready_at: Option<Timestamp>,
    /// The runs that builds failed to continue, and that another build can claim now. Counted up to
    /// [`QUEUE_COUNT_MAX`].
    pub stuck: u64,
    /// The runs that sessions hold. At most [`QUEUE_HELD_READ_MAX`](crate::limits::QUEUE_HELD_READ_MAX) are counted, in
    /// all queues together.
    pub running: u64,
}

impl QueueView {
    /// A queue without runs.
    pub fn empty(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ready: 0, oldest_ready_at: None, stuck: 0, running: 0 }
    }

    /// Adds ready runs, of which the oldest became ready at `oldest`.
    pub fn add_ready(&mut self, runs: u64, oldest: Option<Timestamp>) {
        self.ready = capped(self.ready.saturating_add(runs));
        self.oldest_ready_at = self.oldest_ready_at.into_iter().chain(oldest).min();
    }

    /// Adds runs that builds failed to continue.
    pub fn add_stuck(&mut self, runs: u64) {
        self.stuck = capped(self.stuck.saturating_add(runs));
    }
}

fn capped(runs: u64) -> u64 {
    runs.min(QUEUE_COUNT_MAX as u64)
}

static DEFAULT: LazyLock<Arc<str>> = LazyLock::new(|| QUEUE_DEFAULT.into());

/// The default queue.
pub fn default_queue() -> Arc<str> {
    DEFAULT.clone()
}

/// A list with only the default queue.
pub fn default_queues() -> Arc<[Arc<str>]> {
    static ONLY: LazyLock<Arc<[Arc<str>]>> = LazyLock::new(|| Arc::new([default_queue()]));
    ONLY.clone()
}

/// The rank of a due run: the run with the lowest rank is claimed first. Each level of priority is worth
/// [`PRIORITY_AGE`] of waiting.
///
/// Only `ready_at` decides whether a run is due; its rank may be an earlier time.
pub fn rank(ready_at: Timestamp, priority: u8) -> Timestamp {
    ready_at.minus(ahead(priority))
}

/// By how much the priority makes the rank earlier.
pub fn ahead(priority: u8) -> Duration {
    PRIORITY_AGE * u32::from(priority)
}

/// The workflow name of the runs that execute this step from a queue.
pub fn workflow_of_step(step: &str) -> Arc<str> {
    format!("{STEP_PREFIX}{step}").into()
}

/// The name of the step, if this is the workflow name of queued steps.
pub fn step_of_workflow(workflow: &str) -> Option<&str> {
    workflow.strip_prefix(STEP_PREFIX)
}

/// Checks that a workflow of a program does not use a name that is reserved: for queued steps, or for the engine.
///
/// # Errors
///
/// The problem and the remedy.
pub fn check_workflow_name(name: &str) -> Result<(), String> {
    match step_of_workflow(name) {
        None => check_name("workflow", name),
        Some(_) => Err(format!(
            "workflow `{name}` has a name that begins with `{STEP_PREFIX}`, as those of queued steps do; \
             choose another one"
        )),
    }
}

/// Checks that a name of a program, such as a key or the name of a hook, does not begin with a reserved prefix.
///
/// # Errors
///
/// The problem and the remedy.
pub fn check_name(what: &str, name: &str) -> Result<(), String> {
    match [BUILT_IN_PREFIX, STEP_PREFIX].into_iter().find(|prefix| name.starts_with(prefix)) {
        None => Ok(()),
        Some(prefix) => Err(format!(
            "{what} `{name}` has a name that begins with `{prefix}`, which is reserved for the engine; choose another one"
        )),
    }
}

/// Checks the name of a queue.
///
/// # Errors
///
/// The problem and the remedy.
pub fn check_queue(name: &str) -> Result<(), String> {
    let bytes = name.len();
    if name.is_empty() {
        return Err("a queue needs a name; give it at least one character".into());
    }
    if bytes > NAME_BYTES_MAX {
        let cut: String = name.chars().take(20).collect();
        return Err(format!(
            "the name of queue `{cut}…` has {bytes} bytes, the limit is {NAME_BYTES_MAX}; shorten it"
        ));
    }
    check_name("queue", name)
}

/// Checks a priority.
///
/// # Errors
///
/// The problem and the remedy.
pub fn check_priority(priority: u8) -> Result<(), String> {
    if priority <= PRIORITY_MAX {
        return Ok(());
    }
    Err(format!("there is no priority {priority}; use one from 0, the usual, to {PRIORITY_MAX}, the soonest"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_of_priority_is_worth_ten_seconds_of_waiting() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(rank(at(100), 0), at(100));
        assert_eq!(rank(at(100), 3), at(70));
        assert!(rank(at(100), 1) < rank(at(91), 0) && rank(at(100), 1) > rank(at(89), 0));
        assert_eq!(rank(Timestamp::from_micros(i64::MIN), 9), Timestamp::from_micros(i64::MIN));
    }

    #[test]
    fn a_queued_step_is_known_by_its_workflow() {
        assert_eq!(step_of_workflow(&workflow_of_step("resize")), Some("resize"));
        assert_eq!(step_of_workflow("resize"), None);
    }

    #[test]
    fn names_and_priorities_have_limits() {
        assert!(check_queue(&"q".repeat(NAME_BYTES_MAX)).is_ok());
        let long = check_queue(&"é".repeat(NAME_BYTES_MAX)).unwrap_err();
        assert!(long.contains("256 bytes, the limit is 128; shorten it"), "{long}");
        assert!(check_queue("").unwrap_err().contains("needs a name"));
        let reserved = check_queue("outlast:q").unwrap_err();
        assert!(reserved.contains("begins with `outlast:`, which is reserved for the engine"), "{reserved}");
        assert!(check_priority(PRIORITY_MAX).is_ok());
        assert!(check_priority(PRIORITY_MAX + 1).unwrap_err().contains("there is no priority 10"));
    }
}
