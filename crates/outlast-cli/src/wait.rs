//! Waiting for runs, and pauses between polls.

use std::time::Duration;

use outlast::core::Clock;
use outlast::{RunId, SystemClock};
use outlast_api::OutputJson;

use crate::exit::CommandError;
use crate::surface::Surface;

/// How long one call waits. Servers wait at most a minute.
const WAIT_CALL: Duration = Duration::from_secs(50);

/// Waits for the end of a run, at most this long.
pub(crate) async fn wait_for_end(
    surface: &dyn Surface,
    run: RunId,
    limit: Option<Duration>,
) -> Result<OutputJson, CommandError> {
    let end = limit.map(|limit| SystemClock.now().plus(limit));
    loop {
        let left = end.map_or(WAIT_CALL, |end| end.since(SystemClock.now()).min(WAIT_CALL));
        let output = surface.output(run, left.max(Duration::from_millis(1))).await?;
        if output.ended {
            return Ok(output);
        }
        if end.is_some_and(|end| SystemClock.now() >= end) {
            let detail = format!(
                "run {run} has not ended in time: it is {}; see `outlast explain {run}`",
                output.status
            );
            return Err(CommandError::timed_out(detail));
        }
    }
}

/// Pauses between two polls.
pub(crate) async fn pause(time: Duration) {
    SystemClock.sleep_until(SystemClock.now().plus(time)).await;
}
