//! Replay without a worker, for the benchmark program.

use outlast_core::{History, RunId, TurnRecord};

use crate::authoring::register::Register;
use crate::error::Error;

/// Replays the whole history of a run with this code, and returns the number of its events.
///
/// # Errors
///
/// When the code does not match the history.
pub fn replay<R: Register<(), M>, M>(code: R, run: RunId, history: Vec<TurnRecord>) -> Result<usize, Error> {
    super::history::replay(code, History { run, turns: history })
}
