//! Iterations of a loop: events that let a replay skip the past of `ctx.iterate`.
//!
//! `loop_started` records that a loop began, `iteration_ended` that one of its iterations has ended with a state. If
//! nothing outside of the loop happened during the iteration, its end is a *cut*: a replay continues after it with the
//! recorded state. The skipped ranges are given by operation numbers, because numbers of operations are never used
//! twice, and by the turns that contain them, so that a reader knows which turns it needs.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::cut::{CarriedChild, EventPlace, op_as_number};
use crate::event::OpNumber;
use crate::failure::Failure;
use crate::payload::Payload;
use crate::run::Tags;

/// The end of an iteration of a loop, after which the loop continues.
#[derive(Clone, Debug, PartialEq)]
pub struct IterationEnded {
    /// The operation.
    pub op: OpNumber,
    /// The operation that began the loop.
    pub of: OpNumber,
    /// The number of the iteration that has ended, from 1.
    pub iteration: u64,
    /// The state with which the next iteration begins, or why it cannot be stored: then the loop has failed.
    pub state: Result<Payload, Failure>,
    /// What outlives the skipped iterations; `None` when a replay does not skip this iteration.
    pub cut: Option<IterationCut>,
}

/// What outlives the iterations that a replay skips.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IterationCut {
    /// The number of the first event of the turn with which the generation begins.
    pub begin: u64,
    /// All ranges of the generation that a replay skips, in order. The last one ends with this event.
    pub skips: Vec<SkippedRange>,
    /// The tags of the run.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub tags: Tags,
    /// The patches whose new branch the run has taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Box<str>>,
    /// The children that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<CarriedChild>,
    /// Where the payloads are that no hook has taken, in the order of their arrival.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<EventPlace>,
}

/// A range of events that a replay skips: those between two events of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRange {
    /// The operation of the last event before the range: `loop_started`, or an `iteration_ended` that is no cut.
    #[serde(with = "op_as_number")]
    pub after: OpNumber,
    /// The first event of the turn that contains it.
    pub after_turn: u64,
    /// The operation of the cut with which the range ends.
    #[serde(with = "op_as_number")]
    pub until: OpNumber,
    /// The first event of the turn that contains it.
    pub until_turn: u64,
}

impl IterationCut {
    /// The turns that a replay needs, by the numbers of their first events: those before, between and after the skipped
    /// ranges. The last range has no end.
    pub fn needed_turns(&self) -> Vec<RangeInclusive<u64>> {
        let mut from = self.begin;
        let mut needed = Vec::new();
        for skip in &self.skips {
            // A first turn that is committed in parts begins with the start alone, as a turn of its own.
            needed.push(from..=skip.after_turn.max(1));
            from = skip.until_turn;
        }
        needed.push(from..=u64::MAX);
        needed
    }

    /// The last skipped range.
    pub fn last_skip(&self) -> Option<&SkippedRange> {
        self.skips.last()
    }
}
