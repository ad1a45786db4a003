//! Retries outside workflows.

use std::future::Future;

use outlast_core::{Clock, Retry};

use crate::clock::SystemClock;
use crate::error::{NextAttempt, StepError};
use crate::ids::chance;

/// Calls `work` until it succeeds, according to a retry policy.
///
/// Use it for code outside workflows, such as the startup of a program; nothing is recorded. In a workflow, steps are
/// retried automatically, and their pauses survive a crash. Errors are treated as those of steps:
/// [`StepError::fatal`], [`StepError::retry_after`] and classes have the same effect.
///
/// ```
/// # use outlast::prelude::*;
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let mut calls = 0;
/// let port = outlast::retry(Retry::constant().initial("1ms"), || {
///     calls += 1;
///     let text = if calls < 3 { "soon" } else { "8080" };
///     async move { text.parse::<u16>() }
/// });
/// assert_eq!(port.await.unwrap(), 8080);
/// # }
/// ```
///
/// # Errors
///
/// The last error, if no attempt is left or if the error must not be retried.
pub async fn retry<T, E, F, Fut>(retry: Retry, work: F) -> Result<T, StepError>
where
    E: Into<StepError>,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    retry_with_clock(&SystemClock, retry, work).await
}

/// Like [`retry`], but with the pauses of a given clock, such as the virtual clock of a test.
///
/// # Errors
///
/// The last error, if no attempt is left or if the error must not be retried.
pub async fn retry_with_clock<T, E, F, Fut>(
    clock: &dyn Clock,
    retry: Retry,
    mut work: F,
) -> Result<T, StepError>
where
    E: Into<StepError>,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut attempt = 0;
    loop {
        attempt += 1;
        let (mut failure, next) = match work().await {
            Ok(output) => return Ok(output),
            Err(error) => error.into().into_parts(),
        };
        let Some(pause) = retry.pause_after(attempt, &failure, chance()) else {
            failure.attempts = attempt;
            failure.is_exhausted = failure.kind.is_retryable() && retry.is_exhausted(attempt);
            return Err(StepError::of_failure(failure));
        };
        let at = next.unwrap_or(NextAttempt::After(pause)).moment(clock.now());
        drop(clock.sleep_until(at).await);
    }
}
