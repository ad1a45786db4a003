//! Waiting for conditions of other processes, by polling.

use std::time::{Duration, Instant};

/// The interval at which a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Polls `check` until it returns a value, or the time limit is reached.
#[allow(clippy::disallowed_methods, reason = "a process outside lives in real time")]
pub(crate) fn wait_for<T>(timeout: Duration, mut check: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = check() {
            return Some(answer);
        }
        if begin.elapsed() >= timeout {
            return None;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// How long [`wait_until`] waits.
const WAIT_UNTIL_TIMEOUT: Duration = Duration::from_secs(60);

/// For tests: polls `check` until it returns a value, and returns it.
///
/// # Panics
///
/// When that takes more than a minute; the message contains `what`.
#[track_caller]
pub fn wait_until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    match wait_for(WAIT_UNTIL_TIMEOUT, check) {
        Some(value) => value,
        None => panic!("timeout while waiting for {what}"),
    }
}

/// Like [`wait_until`]; the message also contains what `describe` returns then.
///
/// # Panics
///
/// When that takes more than a minute.
#[track_caller]
pub fn wait_until_or<T>(
    what: &str,
    check: impl FnMut() -> Option<T>,
    describe: impl FnOnce() -> String,
) -> T {
    match wait_for(WAIT_UNTIL_TIMEOUT, check) {
        Some(value) => value,
        None => panic!("timeout while waiting for {what}\n{}", describe()),
    }
}
