//! Waiting for other processes, which tell nobody when they are done.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
const GLANCE: Duration = Duration::from_millis(5);

/// Looks again and again until there is an answer, or patience is at its end.
#[allow(clippy::disallowed_methods, reason = "a process outside lives in real time")]
pub(crate) fn wait_for<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        if let Some(answer) = look() {
            return Some(answer);
        }
        if begin.elapsed() >= patience {
            return None;
        }
        std::thread::sleep(GLANCE);
    }
}
