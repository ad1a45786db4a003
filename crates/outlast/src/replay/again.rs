//! Replay of an exported history, without a world or a worker.

use std::sync::Arc;

use outlast_core::{Codec, Event, History, PlainJson, TurnRecord};

use super::Machine;
use crate::error::Error;
use crate::registry::{Register, Registry};

/// Replays the whole history of a run with this code, and returns how many events that were.
///
/// The code is what `.register(…)` takes; steps need not be in it, since a replay attempts none. So a
/// change of a workflow can be tried on the histories of runs that are under way: see
/// `Client::export`, and `assert_replays` in `outlast-testkit`.
///
/// # Errors
///
/// The report of the divergence when the code does not match the history; why the run would be stuck
/// otherwise.
pub fn replay<R: Register<(), M>, M>(code: R, history: History) -> Result<usize, Error> {
    let codec: Arc<dyn Codec> = Arc::new(PlainJson);
    let mut registry = Registry::new(Arc::new(()), codec.clone());
    code.register(&mut registry);
    let code = registry.finish()?;
    let events = history.turns.iter().map(|turn| turn.events.len()).sum();
    if !was_polled(&history.turns) {
        return Ok(events);
    }
    match Machine::replay(history.run, history.turns, &code, &codec) {
        Ok(_) => Ok(events),
        Err(stuck) => Err(Error::msg(stuck.message)),
    }
}

/// Whether the run had a turn. One that is still to begin, or was cancelled before, asked for nothing.
pub(crate) fn was_polled(turns: &[TurnRecord]) -> bool {
    let mut events = turns.iter().flat_map(|turn| &turn.events);
    !matches!(events.find(|event| event.is_decision()), None | Some(Event::RunCancelled { .. }))
}
