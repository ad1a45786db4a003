//! Replay without a worker, for the benchmark program.

use std::sync::Arc;

use outlast_core::{Codec, PlainJson, RunId, TurnRecord};

use super::Machine;
use crate::error::Error;
use crate::registry::{Register, Registry};

/// Replays the whole history of a run with this code, and returns how many events that were.
///
/// # Errors
///
/// When the code does not match the history.
pub fn replay<R: Register<(), M>, M>(code: R, run: RunId, history: Vec<TurnRecord>) -> Result<usize, Error> {
    let codec: Arc<dyn Codec> = Arc::new(PlainJson);
    let mut registry = Registry::new(Arc::new(()), codec.clone());
    code.register(&mut registry);
    let events = history.iter().map(|turn| turn.events.len()).sum();
    match Machine::replay(run, history, &registry.finish()?, &codec) {
        Ok(_) => Ok(events),
        Err(stuck) => Err(Error::msg(stuck.message)),
    }
}
