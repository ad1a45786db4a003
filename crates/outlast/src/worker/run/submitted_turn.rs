//! Turns that were submitted: passed to the committer.
//!
//! A live run waits for a commit most of the time, and thousands of runs do. So what it must know after the commit is
//! in a box, and does not contain the turn: the futures of the live runs stay small.

use outlast_core::turn::BasedOn;
use outlast_core::{Event, OpNumber, Start, Then, Timestamp, Turn, WorldError};

use super::compensate::begins_compensating;
use super::exit::Exit;
use super::fact::{Fact, attempt_of};
use super::live_run::LiveRun;
use super::position::RunPosition;
use super::skipped_turns::{self, SkippedTurns};
use super::turn::{BuiltTurn, Draft, refused};
use super::turn_log::TurnLog;
use super::turn_metrics::TurnMetrics;
use crate::ids;
use crate::worker::attempts::attempt_end::FailedAttempt;
use crate::worker::attempts::{cancelled_operations, dropped_steps};
use crate::worker::committer::PendingCommit;
use crate::worker::settings::Settings;

/// A turn, or a part of one, that was submitted.
pub(super) struct SubmittedTurn {
    pub(super) commit: PendingCommit,
    /// The position of the run after the commit.
    pub(super) position: RunPosition,
    pub(super) counted: Option<Box<TurnMetrics>>,
    at: Timestamp,
    /// The outcomes of attempts. If the turn is refused, they must not be lost; messages and timers can be read again.
    outcomes: Vec<Event>,
    /// The number of operations that the run had requested before.
    ops_before: u64,
    dropped: Vec<OpNumber>,
    cancelled: Vec<OpNumber>,
    log: Option<Box<TurnLog>>,
}

/// A draft whose turn, or its first part, was submitted.
pub(in crate::worker) struct SubmittedDraft {
    pub(super) first: SubmittedTurn,
    /// The other parts of the turn.
    pub(super) rest: Vec<Turn>,
    /// What happens to the run after the last part.
    pub(super) then: Then,
    /// Whether the attempts are asked to stop after the commit.
    pub(super) stops_attempts: bool,
    /// The turns to delete after the commit.
    pub(super) skipped: Option<SkippedTurns>,
}

impl SubmittedTurn {
    /// Writes the log lines of the turn, which is committed.
    pub(super) fn write_log(&self, settings: &Settings) {
        if let Some(log) = &self.log {
            log.write(settings);
        }
    }
}

impl LiveRun<'_> {
    /// Submits the turn of a draft. `None` if there is nothing to commit.
    pub(super) fn submit_draft(&mut self, draft: Draft) -> Option<Box<SubmittedDraft>> {
        let wakes_step = draft.wakes_step;
        let built = self.build_turn(draft, ids::turn(), BasedOn::Turn(self.position.turn));
        let BuiltTurn { turn, then, .. } = &built;
        // A turn without events may still have tags to write, after a replay. It is also committed if it has read a wake
        // of a step that waits for its next attempt: read again after a crash, the wake would skip another pause.
        let is_empty = turn.events.is_empty() && turn.outbox.is_none() && *then == Then::Hold && !wakes_step;
        (!is_empty).then(|| self.submit_built(built))
    }

    /// Submits the start with the first turn.
    pub(in crate::worker) fn submit_start(&mut self, start: Box<Start>, draft: Draft) -> Box<SubmittedDraft> {
        let built = self.build_turn(draft, self.position.turn, BasedOn::Start(start));
        self.submit_built(built)
    }

    fn submit_built(&self, built: BuiltTurn) -> Box<SubmittedDraft> {
        let BuiltTurn { turn, rest, then, is_cancel, failed, ops_before } = built;
        // The attempts of a terminated run are not awaited. A queued step ends like this when it is dropped.
        let is_terminated = matches!(turn.events.last(), Some(Event::RunTerminated { .. }));
        let stops_attempts = is_cancel && !is_terminated || begins_compensating(&turn.events);
        let skipped = skipped_turns::of(&turn);
        let first = self.submit(turn, &failed, ops_before);
        Box::new(SubmittedDraft { first, rest, then, stops_attempts, skipped })
    }

    /// Submits a turn, or a part of one. The answer must be awaited at once, because this run's task may be the one
    /// that commits the waiting turns. `failed` are the failed attempts that the turn was computed from.
    pub(super) fn submit(&self, turn: Turn, failed: &[FailedAttempt], ops_before: u64) -> SubmittedTurn {
        let workflow = self.machine.run_state().workflow();
        let mut submitted = SubmittedTurn {
            position: RunPosition::after(&turn),
            counted: TurnMetrics::of(&turn, workflow, &self.ended_compensations),
            at: turn.at,
            outcomes: outcomes_among(&turn.events),
            ops_before,
            dropped: dropped_steps(&turn.events),
            cancelled: cancelled_operations(&turn.events),
            log: TurnLog::of(&turn, self.machine.requested_by(), failed),
            commit: self.task.session.committer.submit(turn),
        };
        if self.attempts.has_inline() {
            submitted.commit.lead_elsewhere();
        }
        submitted
    }

    /// Waits for the commit of a turn, or of a part of one. If the world refuses it because the run has changed,
    /// returns the facts from which the turn is to be computed again.
    pub(super) async fn finish_commit(
        &mut self,
        submitted: &mut SubmittedTurn,
    ) -> Result<Option<Vec<Fact>>, Exit> {
        match self.await_commit(&mut submitted.commit).await {
            Ok(_) => {}
            Err(WorldError::Conflict(_)) => {
                let outcomes = std::mem::take(&mut submitted.outcomes);
                return Box::pin(self.facts_after_replay(outcomes, submitted.at, submitted.ops_before))
                    .await
                    .map(Some);
            }
            Err(error @ (WorldError::Fenced(_) | WorldError::Gone(_))) => return Err(Exit::Lost(error)),
            Err(error) => {
                self.keep_unrecorded(std::mem::take(&mut submitted.outcomes), submitted.ops_before, None);
                return Err(Exit::Stuck(refused(&error)));
            }
        }
        self.count_turn(submitted.counted.take());
        self.apply_commit(submitted.position.clone(), &submitted.outcomes, &submitted.dropped);
        self.pending_retry = None;
        self.outcomes_in_inbox.clear();
        submitted.write_log(&self.task.session.settings);
        submitted.cancelled.iter().for_each(|op| self.attempts.cancel_step(*op));
        submitted.dropped.iter().for_each(|op| self.attempts.drop_step(*op));
        Ok(None)
    }

    /// Commits the other parts of a turn. If the world refuses one because the run has changed, returns the facts from
    /// which the next turn is to be computed.
    pub(super) async fn commit_rest(&mut self, rest: &mut Vec<Turn>) -> Result<Option<Vec<Fact>>, Exit> {
        let mut rest = std::mem::take(rest).into_iter();
        while let Some(mut part) = rest.next().map(|part| Box::new(self.submit(part, &[], 0))) {
            // Boxed because it is rare and large, and would enlarge the state of every run.
            if let Some(facts) = Box::pin(self.finish_commit(&mut part)).await? {
                return Ok(Some(facts));
            }
        }
        Ok(None)
    }
}

/// The outcomes of attempts among these events.
fn outcomes_among(events: &[Event]) -> Vec<Event> {
    let outcomes = events.iter().filter(|event| attempt_of(event).is_some());
    // Most turns have one. A vector that grows would have room for four.
    let mut cloned = Vec::with_capacity(outcomes.clone().count());
    cloned.extend(outcomes.cloned());
    cloned
}
