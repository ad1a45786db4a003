//! Replay without a worker, for the benchmark program.

use outlast_core::{History, RunId, TurnRecord};

use crate::error::Error;
use crate::registry::Register;

/// Replays the whole history of a run with this code, and returns how many events that were.
///
/// # Errors
///
/// When the code does not match the history.
pub fn replay<R: Register<(), M>, M>(code: R, run: RunId, history: Vec<TurnRecord>) -> Result<usize, Error> {
    super::again::replay(code, History { run, turns: history })
}
