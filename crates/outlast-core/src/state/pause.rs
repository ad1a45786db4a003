//! Paused runs.
//!
//! A run is paused by a message, and continues after another one. The mark on its row says whether it is paused now:
//! the change that accepts the message sets or clears it. A run that was asked to stop is never paused, so that its
//! workflow learns of the cancel and can clean up; neither is one that compensates.
//!
//! While a run is paused, its holder consumes no messages, so the message that paused it stays in its inbox. The holder
//! therefore knows from the unread messages alone whether the run is paused ([`is_paused_by`]).

use crate::marks::Marks;
use crate::message::MessageBody;
use crate::time::Timestamp;

/// The marks of a run after it has accepted a message. `is_cancel_requested` includes this message.
pub fn marks_after_send(marks: Marks, body: &MessageBody, is_cancel_requested: bool) -> Marks {
    match body {
        _ if is_cancel_requested || marks.is_compensating() => marks.without(Marks::PAUSED),
        MessageBody::Pause { .. } => marks.with(Marks::PAUSED),
        MessageBody::Resume => marks.without(Marks::PAUSED),
        _ => marks,
    }
}

/// Whether a run is paused according to the last of its unread messages that decides it; `None` if no message does.
pub fn is_paused_by(body: &MessageBody) -> Option<bool> {
    match body {
        MessageBody::Pause { .. } => Some(true),
        MessageBody::Resume
        | MessageBody::Cancel { .. }
        | MessageBody::Terminate { .. }
        | MessageBody::Compensate { .. } => Some(false),
        _ => None,
    }
}

/// Whether a run is paused after a message, and was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseEffect {
    /// It is not paused, and was not.
    NotPaused,
    /// It is paused: of all its timers only the deadline makes it ready.
    Paused {
        /// The deadline of the run.
        deadline: Option<Timestamp>,
    },
    /// The message has ended its pause.
    Ended {
        /// When the run may begin, if it was started with a delay and has not begun.
        begins_at: Option<Timestamp>,
    },
}

impl PauseEffect {
    /// The effect of a change of marks.
    pub fn of(
        before: Marks,
        after: Marks,
        deadline: Option<Timestamp>,
        begins_at: Option<Timestamp>,
    ) -> Self {
        match (before.is_paused(), after.is_paused()) {
            (_, true) => Self::Paused { deadline },
            (true, false) => Self::Ended { begins_at },
            (false, false) => Self::NotPaused,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_asked_to_stop_is_not_paused() {
        let pause = MessageBody::Pause { reason: String::new() };
        assert_eq!(marks_after_send(Marks::NONE, &pause, false), Marks::PAUSED);
        assert_eq!(marks_after_send(Marks::NONE, &pause, true), Marks::NONE);
        let cancel = MessageBody::Cancel { reason: String::new() };
        let both = Marks::PAUSED.with(Marks::QUARANTINED);
        assert_eq!(marks_after_send(both, &cancel, true), Marks::QUARANTINED);
        assert_eq!(marks_after_send(both, &MessageBody::Resume, false), Marks::QUARANTINED);
        assert_eq!(marks_after_send(both, &MessageBody::Wake { op: None }, false), both);
    }
}
