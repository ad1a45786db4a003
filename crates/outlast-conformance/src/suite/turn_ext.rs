//! Builder methods for turns.

use std::sync::Arc;

use outlast_core::{
    Event, Failure, FailureKind, HolderColumns, NewChild, NewMessage, OpNumber, RunContinued, RunStarted,
    Start, Status, Stuck, StuckReason, Then, Timestamp, Turn, Wait,
};

use super::case::{BUILD, text};

/// Builder methods for turns.
pub(crate) trait TurnExt: Sized {
    /// The turn also starts this many steps.
    #[must_use]
    fn steps(self, count: u32) -> Self;
    /// The turn has consumed this many messages in total.
    #[must_use]
    fn consuming(self, consumed: u64) -> Self;
    /// The turn ends like this.
    #[must_use]
    fn then(self, then: Then) -> Self;
    /// The turn ends the run with an output.
    #[must_use]
    fn completing(self, output: &str) -> Self;
    /// The turn ends the run with a failure.
    #[must_use]
    fn failing(self) -> Self;
    /// The turn ends the run as cancelled.
    #[must_use]
    fn cancelling(self) -> Self;
    /// The turn ends the run without its code.
    #[must_use]
    fn terminating(self) -> Self;
    /// The turn also starts this child.
    #[must_use]
    fn child(self, child: NewChild) -> Self;
    /// The turn also sends this message.
    #[must_use]
    fn sending(self, message: NewMessage) -> Self;
    /// The turn also sets this tag.
    #[must_use]
    fn tagged(self, name: &str, value: &str) -> Self;
    /// The turn changes the holder's columns.
    #[must_use]
    fn with_columns(self, change: impl FnOnce(&mut HolderColumns)) -> Self;
    /// The turn resets the crash counter.
    #[must_use]
    fn clearing_crashes(self) -> Self;
    /// The run keeps this many payloads after the turn.
    #[must_use]
    fn keeping(self, kept: u64) -> Self;
    /// The turn removes the deadline.
    #[must_use]
    fn clearing_deadline(self) -> Self;
    /// The turn records a request to cancel.
    #[must_use]
    fn with_cancel_requested(self) -> Self;
    /// The turn fires timers up to this time.
    #[must_use]
    fn firing(self, until: Timestamp) -> Self;
    /// The turn continues the run as a new generation, with this version of its workflow.
    #[must_use]
    fn continuing(self, start: &Start, version: u32) -> Self;
}

impl TurnExt for Turn {
    fn steps(mut self, count: u32) -> Self {
        let first = self.seq + self.events.len() as u64;
        self.events.extend((first..first + u64::from(count)).map(|number| Event::StepStarted {
            op: OpNumber(number),
            name: "step".into(),
            input: text("in"),
            queued: None,
            is_once: false,
            is_transactional: false,
        }));
        self
    }

    fn consuming(self, consumed: u64) -> Self {
        Self { consumed, ..self }
    }

    fn then(self, then: Then) -> Self {
        Self { then, ..self }
    }

    fn completing(mut self, output: &str) -> Self {
        self.events.push(Event::RunCompleted { output: text(output) });
        self.then(Then::End(Status::Completed))
    }

    fn failing(mut self) -> Self {
        self.events.push(Event::RunFailed { failure: failure() });
        self.then(Then::End(Status::Failed))
    }

    fn cancelling(mut self) -> Self {
        self.events.push(Event::RunCancelled { failure: failure() });
        self.then(Then::End(Status::Cancelled))
    }

    fn terminating(mut self) -> Self {
        self.events.push(Event::RunTerminated { failure: failure(), actor: None });
        self.then(Then::End(Status::Cancelled))
    }

    fn child(mut self, child: NewChild) -> Self {
        self.outbox.get_or_insert_default().children.push(child);
        self
    }

    fn sending(mut self, message: NewMessage) -> Self {
        self.outbox.get_or_insert_default().messages.push(message);
        self
    }

    fn tagged(mut self, name: &str, value: &str) -> Self {
        self.outbox.get_or_insert_default().tags.insert(name.into(), value.into());
        self
    }

    fn with_columns(mut self, change: impl FnOnce(&mut HolderColumns)) -> Self {
        change(Arc::make_mut(&mut self.columns.after));
        self
    }

    fn clearing_crashes(self) -> Self {
        self.with_columns(|columns| columns.crashes = 0)
    }

    fn keeping(self, kept: u64) -> Self {
        self.with_columns(|columns| columns.kept = kept)
    }

    fn clearing_deadline(self) -> Self {
        self.with_columns(|columns| columns.deadline = None)
    }

    fn with_cancel_requested(mut self) -> Self {
        self.events.push(Event::CancelRequested {
            message: None,
            reason: "it took too long".into(),
            actor: None,
            pauses: Vec::new(),
            ends: Vec::new(),
            maybe_attempted: Vec::new(),
        });
        self
    }

    fn firing(self, until: Timestamp) -> Self {
        Self { fired_until: Some(until), ..self }
    }

    fn continuing(mut self, start: &Start, version: u32) -> Self {
        let Event::RunStarted(started) = start.event() else { unreachable!("a start begins a run") };
        let begin = RunContinued::of_start(RunStarted { version, ..*started });
        let generation = self.columns.after.continued + 2;
        self.events.push(Event::RunContinued(Box::new(RunContinued { generation, ..begin })));
        let seq = self.seq;
        self.with_columns(|columns| {
            columns.replay_from = seq;
            columns.continued += 1;
        })
    }
}

/// The failure with which [`TurnExt::failing`] and [`TurnExt::cancelling`] end a run.
pub(crate) fn failure() -> Failure {
    Failure::new(FailureKind::Error, "it did not work")
}

/// Waits for a message.
pub(crate) fn wait() -> Then {
    Then::Wait {
        wake_at: None,
        waits: vec![Wait::Hook { op: 0, name: "h".into(), until: None, token: None }],
    }
}

/// Waits until a moment, or for a message.
pub(crate) fn wait_until(at: Timestamp) -> Then {
    Then::Wait { wake_at: Some(at), waits: vec![Wait::Timer { op: 0, until: at }] }
}

/// Waits until the next attempt of a step, or for a message.
pub(crate) fn wait_for_retry(at: Timestamp) -> Then {
    let retry = Wait::Retry { op: 0, name: "charge".into(), until: at };
    Then::Wait { wake_at: Some(at), waits: vec![retry] }
}

/// Stuck, as the usual build leaves it.
pub(crate) fn stuck() -> Then {
    stuck_by(BUILD)
}

/// Stuck, as this build leaves it.
pub(crate) fn stuck_by(build: &str) -> Then {
    let message = "history has a timer, code asked for a step";
    Then::Stuck(Stuck::new(StuckReason::Diverged, message).in_build(build))
}
