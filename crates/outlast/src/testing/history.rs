//! Replay of an exported history, without a world or a worker.

use std::sync::Arc;

use outlast_core::{Codec, Event, History, PlainJson, TurnRecord};

use crate::authoring::register::Register;
use crate::authoring::registry::Registry;
use crate::error::Error;
use crate::replay::Machine;

/// Replays the whole history of a run with the given code, and returns the number of events.
///
/// The code is passed as to `.register(…)`; steps are not needed, because a replay attempts none. Use it to test a
/// change of a workflow on the histories of runs in progress: see [`Client::export`](crate::Client::export), and
/// `assert_replays` in `outlast-testkit`.
///
/// # Errors
///
/// The report of the divergence if the code does not match the history, or the reason why the run would be stuck.
pub fn replay<R: Register<(), M>, M>(code: R, history: History) -> Result<usize, Error> {
    let codec: Arc<dyn Codec> = Arc::new(PlainJson);
    let mut registry = Registry::new(Arc::new(()), codec.clone());
    code.register(&mut registry);
    let code = registry.finish()?;
    let events = history.turns.iter().map(|turn| turn.events.len()).sum();
    if !was_polled(&history.turns) {
        return Ok(events);
    }
    match Machine::replay(history.run, history.turns, code, &codec) {
        Ok(_) => Ok(events),
        Err(stuck) => Err(Error::msg(stuck.message)),
    }
}

/// Whether the workflow was polled. A run that has not begun, or was cancelled before it began, was not.
pub(crate) fn was_polled(turns: &[TurnRecord]) -> bool {
    let mut events = turns.iter().flat_map(|turn| &turn.events);
    let is_polled = |event: &&Event| event.is_decision() || event.is_cut();
    !matches!(events.find(is_polled), None | Some(Event::RunCancelled { .. }))
}
