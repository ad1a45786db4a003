//! Forks: new runs with the events of another run before a cut.
//!
//! How a fork proceeds:
//!
//! 1. The client reads the history and computes a [`ForkPlan`]; a dry run shows it.
//! 2. [`World::fork`](crate::World::fork) stores the new run: its row, and the turns before the cut that a replay needs.
//!    Those that it skips stay behind, as if they were deleted: earlier generations and iterations, of which there may be
//!    many. Turns are copied as they are, except those that the client has [rewritten](ForkPlan::rewrite): the beginning names the
//!    [`ForkOrigin`] instead of a key, parent and deadline, and the last turn ends at the cut.
//! 3. The worker that claims the run replays the copied events. Its next turn begins with `run_forked`: from there on the
//!    run is on its own. Operations that are open are asked for again; what belongs to the other run is forgotten.
//!
//! Until that turn is committed, the history ends at the cut. If the worker is lost, the next one does the same again.

mod outputs;
mod plan;
mod refusal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cut::last_generation;
use crate::error::WorldError;
use crate::event::{Event, OpNumber, RunStarted, TurnRecord};
use crate::format::format_of_events;
use crate::id::RunId;
use crate::limits::FORK_OUTPUTS_MAX;
use crate::message::NewMessage;
use crate::payload::Payload;
use crate::refusal::check_start;
use crate::retried::{RenewedWait, RestartedRun};
use crate::run::{FORKED_FROM, RESTARTED_FROM, Start, Tags};
use crate::state::{HolderColumns, RowChange};
use crate::time::Timestamp;

pub use plan::{ForkPlan, ForkPoint, PlannedOutput};
pub use refusal::ForkRefusal;

/// Where the first events of a run come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkOrigin {
    /// The run whose events were copied.
    pub of: RunId,
    /// The number of the first event that is not a copy.
    pub at: u64,
    /// The run whose id is the seed of the random numbers.
    pub seed: RunId,
    /// The operations that got other outcomes, by messages in the inbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<u64>,
    /// The digest of the other outcomes before the codec, as hexadecimal digits, with those of recorded values. A
    /// repeated call is recognized by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Who asked for it, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
}

/// The copied part of a history ends here.
#[derive(Clone, Debug, PartialEq)]
pub struct RunForked {
    /// The run whose events were copied.
    pub of: RunId,
    /// Operations with lower numbers are copied.
    pub next_op: OpNumber,
    /// The runs that are started for open operations: queued steps, and children that had not begun.
    pub restarts: Vec<RestartedRun>,
    /// The waits that are open and have their full time again.
    pub renews: Vec<RenewedWait>,
}

/// The arguments of [`World::fork`](crate::World::fork).
#[derive(Clone, Debug, PartialEq)]
pub struct Fork {
    /// The new run, without a key, parent or deadline. Its input is not used: the copied history has it.
    pub start: Start,
    /// Where its events come from.
    pub origin: ForkOrigin,
    /// The turns that are not copied as they are, in order. The last one ends before event `at` of the origin.
    pub rewritten: Vec<TurnRecord>,
    /// The turns that are copied as they are, by the numbers of their first events: those that a replay needs, in order.
    pub ranges: Vec<RangeInclusive<u64>>,
    /// The number of the turns in these ranges.
    pub copied: u64,
    /// The number of the first event that a replay of the run needs.
    pub replay_from: u64,
    /// How often the other run had continued as a new generation.
    pub continued: u64,
    /// The first messages of the run: outcomes that replace recorded ones.
    pub messages: Vec<NewMessage>,
}

impl Fork {
    /// The holder's columns of the new run.
    fn columns(&self) -> HolderColumns {
        let (replay_from, continued) = (self.replay_from, self.continued);
        HolderColumns { replay_from, continued, ..HolderColumns::of_start(&self.start) }
    }

    /// The row of the new run.
    ///
    /// # Errors
    ///
    /// [`WorldError::Invalid`] when the fork contradicts itself, and what [`check_start`] refuses.
    pub fn row(&self, now: Timestamp) -> Result<RowChange<'static>, WorldError> {
        check_start(&self.start)?;
        let (id, at) = (self.start.run, self.origin.at);
        let invalid = |what: &str| Err(WorldError::invalid(format!("fork {id} {what}")));
        let Some(last) = self.rewritten.last() else { return invalid("has no turns") };
        let next_event = last.seq + last.events.len() as u64;
        if next_event != at || last.events.is_empty() {
            return invalid(&format!("ends at event {next_event}, and not at {at}"));
        }
        if self.start.key.is_some() || self.start.parent.is_some() || self.start.deadline.is_some() {
            return invalid("has a key, a parent or a deadline");
        }
        let is_rewritten = |range: &RangeInclusive<u64>| {
            *range.end() >= at || self.rewritten.iter().any(|turn| range.contains(&turn.seq))
        };
        if self.ranges.iter().any(is_rewritten) {
            return invalid("copies a turn that is rewritten, or behind its cut");
        }
        if self.messages.iter().any(|message| message.run != id) {
            return invalid("has a message to another run");
        }
        if self.messages.len() > FORK_OUTPUTS_MAX {
            return invalid(&format!(
                "has {} messages, the limit is {FORK_OUTPUTS_MAX}",
                self.messages.len()
            ));
        }
        let events = self.rewritten.iter().map(|turn| format_of_events(&turn.events));
        let format = events.chain([self.start.format()]).max();
        let started = RowChange::started(&self.start, now);
        Ok(RowChange {
            turn: last.id,
            next_event,
            turn_at: last.at,
            columns: Arc::new(self.columns()),
            format: format.unwrap_or(started.format),
            ..started
        })
    }
}

/// The origin of a run whose history is a fork that no worker has continued yet.
pub fn pending_fork(history: &[TurnRecord]) -> Option<&ForkOrigin> {
    let (started, ..) = last_generation(history)?;
    let is_unrecorded = |origin: &&ForkOrigin| {
        let events = history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        let mut own = events.filter(|(number, _)| *number >= origin.at);
        // A run can be terminated before its worker has recorded anything.
        own.all(|(_, event)| matches!(event, Event::RunTerminated { .. }))
    };
    started.forked.as_deref().filter(is_unrecorded)
}

/// The number of the event with which the copied part of a history ends, if it is recorded.
pub(crate) fn forked_at(history: &[TurnRecord]) -> Option<u64> {
    let mut events = history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
    let origin = last_generation(history)?.0.forked.as_deref()?;
    events.find_map(|(number, event)| {
        (number >= origin.at && matches!(event, Event::RunForked(_))).then_some(number)
    })
}

/// The start of a run as its fork begins with it.
fn forked_start(started: &RunStarted, origin: &ForkOrigin) -> RunStarted {
    RunStarted {
        key: None,
        parent: None,
        deadline: None,
        tags: forked_tags(&started.tags, origin.of),
        forked: Some(Box::new(origin.clone())),
        ..started.clone()
    }
}

/// The tags of a fork.
fn forked_tags(tags: &Tags, of: RunId) -> Tags {
    let mut tags = tags.clone();
    tags.remove(RESTARTED_FROM);
    tags.insert(FORKED_FROM.into(), of.to_string());
    tags
}

/// The events of a turn before a cut, as a fork records them. `values` replace recorded values.
fn rewritten_turn(turn: TurnRecord, origin: &ForkOrigin, values: &BTreeMap<OpNumber, Payload>) -> TurnRecord {
    let kept = usize::try_from(origin.at.saturating_sub(turn.seq)).unwrap_or(usize::MAX);
    let is_last = turn.seq + turn.events.len() as u64 >= origin.at;
    let events = turn.events.into_iter().take(kept).map(|event| match event {
        Event::RunStarted(started) => Event::from(forked_start(&started, origin)),
        Event::RunContinued(mut continued) => {
            continued.started = forked_start(&continued.started, origin);
            // They are not copied.
            continued.previous = Vec::new();
            Event::RunContinued(continued)
        }
        Event::ValueRecorded { op, name, value } => {
            let value = values.get(&op).cloned().map_or(value, Ok);
            Event::ValueRecorded { op, name, value }
        }
        other => other,
    });
    // Requests behind the cut are made again, and are not a divergence.
    let id = if is_last { turn.id.continued() } else { turn.id };
    TurnRecord { id, events: events.collect(), ..turn }
}
