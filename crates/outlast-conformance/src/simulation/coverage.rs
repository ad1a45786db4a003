//! Coverage: how often a simulation reached the situations that it must reach.
//!
//! A seed whose programs never cancel a running step proves nothing about cancels. So each situation is counted
//! where it occurs, `cargo xtask sim` prints the counts, and a test asserts that none of them is zero.

use std::fmt;

/// A situation that the simulation must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// A shielded attempt began after the run was cancelled.
    ShieldedAfterCancel,
    /// A cancel arrived during an attempt, which continued.
    CancelDuringStep,
    /// A deadline passed while a step was being attempted.
    DeadlineDuringStep,
    /// A cancel ended a step that a lost worker may have attempted.
    MaybeAttempted,
    /// A shielded operation was open when a cancel arrived, and continued.
    ShieldedDuringCancel,
    /// A payload was rejected when it arrived.
    RejectedOnArrival,
    /// A payload was kept, and rejected when a hook opened.
    RejectedWhenKept,
    /// A payload was kept, and taken by a hook that opened later.
    TakenWhenKept,
    /// An open hook could not decode a payload, and a later one took it.
    PassedOver,
    /// A payload was rejected by several open hooks of different types.
    RejectedByDifferentHooks,
    /// A dropped hook returned its payload.
    GivenBack,
    /// The older build rejected a payload that the newer one could decode.
    RejectedByOlderBuild,
    /// A run with rules 1 received a payload that no hook can decode.
    UnreadableUnderRules1,
    /// A payload was refused because the run kept too many.
    RefusedAtLimit,
    /// A build could not decode the input of a workflow.
    UndecodableInput,
    /// A build could not decode the input of a step.
    UndecodableStepInput,
    /// A build could not decode the output of a step.
    UndecodableStepOutput,
    /// A build could not decode the output of a child.
    UndecodableChildOutput,
    /// A build could not decode a payload that another build had accepted.
    UndecodablePayload,
    /// A build could not decode a recorded value.
    UndecodableValue,
    /// A build lacked a step.
    StepNotRegistered,
    /// A run that one build left stuck was continued by the other.
    ContinuedByOtherBuild,
    /// An attempt got the details of a failed attempt.
    DetailsOfFailure,
    /// An attempt got the details of an attempt whose worker was lost.
    DetailsOfLoss,
    /// A run continued as a new generation.
    Continued,
    /// A payload that a generation received was kept for the next.
    KeptForNextGeneration,
    /// A child outlived the generation that started it.
    ChildOfEarlierGeneration,
    /// A run had rules 1.
    Rules1,
    /// A run had the newest rules.
    Rules2,
    /// A worker that knows only rules 1 made a turn.
    TurnOfOldRules,
    /// The effects of a turn on other runs were applied after its commit.
    LateEffect,
    /// A queued step was attempted.
    QueuedStep,
    /// A workflow cancelled a step that was being attempted: its real outcome was awaited.
    CancelledDuringAttempt,
    /// A workflow cancelled a step that nobody attempted.
    CancelledBetweenAttempts,
    /// A run compensated before its end.
    Compensated,
    /// A saga compensated, and its run continued.
    SagaCompensated,
    /// A run that failed was to begin again.
    Retried,
    /// The compensations of a failed try ran before the next one.
    CompensatedBeforeRetry,
    /// A step followed the end of a run.
    StepAfterEnd,
    /// A run was cancelled because its child failed.
    Cascaded,
    /// An iteration of a loop ended, and replays skip it.
    SkippedIteration,
    /// A reader saw the chunks of an attempt that counts.
    ChunksRead,
    /// Chunks were superseded by those of a newer attempt.
    ChunksSuperseded,
    /// A schedule started a run.
    Fired,
    /// A run got a chosen token.
    TokenTaken,
    /// A run was refused a token that another one holds.
    TokenRefused,
    /// A run took over a token that it held already.
    TokenTakenOver,
    /// A run handed a token to its next generation.
    TokenCarried,
    /// A payload was accepted that was sent to a token.
    SentToToken,
    /// A hook took a payload that was sent to its token.
    TakenByToken,
    /// A payload was sent to a token whose run had closed it, or had ended.
    TokenClosed,
    /// A payload was sent to a token twice with one key.
    TokenSendRepeated,
    /// A client got the reply to its ask.
    AskAnswered,
    /// A client learned that the run cannot read what it asked.
    AskRejected,
    /// A client learned that nobody replies.
    AskNotAnswered,
    /// A client asked again with the same key.
    AskRepeated,
    /// A run got the reply of another one.
    AskedByRun,
    /// A client had a run continued that had failed.
    RetriedByClient,
    /// A retry recorded outcomes or payloads again.
    RecordedAgain,
    /// A client restarted a run.
    Restarted,
    /// A client forked a run at an event.
    ForkedAtEvent,
    /// A client forked a run with another outcome of an operation.
    ForkedWithOutput,
    /// Steps were open where a run was forked.
    ForkWithOpenSteps,
}

impl Situation {
    /// All of them.
    pub const ALL: [Self; 63] = [
        Self::ShieldedAfterCancel,
        Self::CancelDuringStep,
        Self::DeadlineDuringStep,
        Self::MaybeAttempted,
        Self::ShieldedDuringCancel,
        Self::RejectedOnArrival,
        Self::RejectedWhenKept,
        Self::TakenWhenKept,
        Self::PassedOver,
        Self::RejectedByDifferentHooks,
        Self::GivenBack,
        Self::RejectedByOlderBuild,
        Self::UnreadableUnderRules1,
        Self::RefusedAtLimit,
        Self::UndecodableInput,
        Self::UndecodableStepInput,
        Self::UndecodableStepOutput,
        Self::UndecodableChildOutput,
        Self::UndecodablePayload,
        Self::UndecodableValue,
        Self::StepNotRegistered,
        Self::ContinuedByOtherBuild,
        Self::DetailsOfFailure,
        Self::DetailsOfLoss,
        Self::Continued,
        Self::KeptForNextGeneration,
        Self::ChildOfEarlierGeneration,
        Self::Rules1,
        Self::Rules2,
        Self::TurnOfOldRules,
        Self::LateEffect,
        Self::QueuedStep,
        Self::CancelledDuringAttempt,
        Self::CancelledBetweenAttempts,
        Self::Compensated,
        Self::SagaCompensated,
        Self::Retried,
        Self::CompensatedBeforeRetry,
        Self::StepAfterEnd,
        Self::Cascaded,
        Self::SkippedIteration,
        Self::ChunksRead,
        Self::ChunksSuperseded,
        Self::Fired,
        Self::TokenTaken,
        Self::TokenRefused,
        Self::TokenTakenOver,
        Self::TokenCarried,
        Self::SentToToken,
        Self::TakenByToken,
        Self::TokenClosed,
        Self::TokenSendRepeated,
        Self::AskAnswered,
        Self::AskRejected,
        Self::AskNotAnswered,
        Self::AskRepeated,
        Self::AskedByRun,
        Self::RetriedByClient,
        Self::RecordedAgain,
        Self::Restarted,
        Self::ForkedAtEvent,
        Self::ForkedWithOutput,
        Self::ForkWithOpenSteps,
    ];

    /// Whether only seeds from [`ORCHESTRATED_SEEDS`](super::ORCHESTRATED_SEEDS) on reach it.
    pub fn needs_orchestrated_seeds(self) -> bool {
        (Self::Compensated as usize..=Self::Fired as usize).contains(&(self as usize))
    }

    /// Whether only seeds from [`CONTROLLED_SEEDS`](super::CONTROLLED_SEEDS) on reach it.
    pub fn needs_controlled_seeds(self) -> bool {
        self as usize > Self::Fired as usize
    }

    /// Whether only seeds from [`DEFERRED_SEEDS`](super::DEFERRED_SEEDS) on reach it.
    pub fn needs_deferred_seeds(self) -> bool {
        matches!(self, Self::TurnOfOldRules | Self::LateEffect)
    }

    /// Whether only seeds before [`DEFERRED_SEEDS`](super::DEFERRED_SEEDS) reach it: from there on, the older build
    /// gets no run that it could not read.
    pub fn needs_earlier_seeds(self) -> bool {
        matches!(
            self,
            Self::RejectedByOlderBuild
                | Self::UndecodableInput
                | Self::UndecodableStepInput
                | Self::UndecodableStepOutput
                | Self::UndecodableChildOutput
                | Self::UndecodablePayload
                | Self::UndecodableValue
        )
    }

    /// Whether only seeds from [`QUEUED_SEEDS`](super::QUEUED_SEEDS) on reach it.
    pub fn needs_queued_seeds(self) -> bool {
        matches!(self, Self::QueuedStep)
    }
}

/// How often each situation was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage([u64; Situation::ALL.len()]);

impl Default for Coverage {
    fn default() -> Self {
        Self([0; Situation::ALL.len()])
    }
}

impl Coverage {
    /// How often the situation was reached.
    pub fn count(&self, situation: Situation) -> u64 {
        self.0[situation as usize]
    }

    pub(super) fn record(&mut self, situation: Situation) {
        self.0[situation as usize] += 1;
    }

    /// Adds the counts of another simulation.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for situation in Situation::ALL {
            let name = format!("{situation:?}");
            writeln!(f, "  {name:<26} {:>9}", self.count(situation))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_situation_is_counted_by_itself() {
        for (place, situation) in Situation::ALL.into_iter().enumerate() {
            assert_eq!(situation as usize, place);
        }
        let mut coverage = Coverage::default();
        coverage.record(Situation::GivenBack);
        coverage.add(&coverage.clone());
        assert_eq!(coverage.count(Situation::GivenBack), 2);
        assert_eq!(coverage.count(Situation::QueuedStep), 0);
    }
}
