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
