//! Answers of a schedule to commands whose sender waits for one.
//!
//! A command with the header [`ANSWER_HEADER`] is answered in the state that the schedule publishes: under the id of its
//! message, with the revision that the schedule has then. A command with the header [`EXPECTED_HEADER`] is executed only if
//! the schedule has that revision.

use outlast_core::limits::SCHEDULE_ANSWERS_MAX;
use outlast_core::{Headers, MessageId};
use serde::{Deserialize, Serialize};

use super::state::Progress;

/// The header of a command whose sender waits for the answer.
pub(crate) const ANSWER_HEADER: &str = "outlast:answer";

/// The header of a command with the revision that it expects.
pub(crate) const EXPECTED_HEADER: &str = "outlast:expected_revision";

/// What a schedule did with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ScheduleAnswer {
    /// It was made.
    Done,
    /// The schedule was in that state before.
    Already,
    /// There was nothing to do: a schedule that is not paused cannot be resumed, and the overlap rule can skip a trigger.
    Nothing,
    /// It was not made, because the schedule has another revision than the one expected.
    Stale,
    /// It was not made, because too many ranges wait to be backfilled.
    Full,
}

/// The answer to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandAnswer {
    pub(crate) message: MessageId,
    pub(crate) answer: ScheduleAnswer,
    /// The revision after the command.
    pub(crate) revision: u64,
}

impl Progress {
    /// Whether a command with these headers was made for another revision.
    pub(super) fn is_stale(&self, headers: &Headers) -> bool {
        let expected = headers.get(EXPECTED_HEADER).map(|text| text.parse::<u64>());
        expected.is_some_and(|expected| expected != Ok(self.revision))
    }

    /// Keeps the answer to a command, if its sender waits for it.
    pub(super) fn answer(&mut self, message: MessageId, headers: &Headers, answer: ScheduleAnswer) {
        if !headers.contains_key(ANSWER_HEADER) {
            return;
        }
        if self.answers.len() >= SCHEDULE_ANSWERS_MAX {
            self.answers.remove(0);
        }
        self.answers.push(CommandAnswer { message, answer, revision: self.revision });
    }
}
