//! The version of the durable format that a reader of a run needs: `runs.format` is the highest format of its events
//! and messages.
//!
//! Fields and kinds that only newer builds know are listed here and nowhere else. Every world calls this at each
//! commit and send, and raises the format of the run.

use crate::event::{Event, Judgement, Outcome, format_of_rules};
use crate::failure::{Failure, FailureKind};
use crate::message::MessageBody;

/// The format that every build can read.
pub const FIRST_FORMAT: u32 = 1;

/// The lowest format that can describe all these events.
pub fn format_of_events(events: &[Event]) -> u32 {
    events.iter().map(Event::format).max().unwrap_or(FIRST_FORMAT)
}

/// The highest rules of new runs that a session can execute: it must know them, and be able to read the format that
/// belongs to them.
pub fn readable_rules(rules: u32, format: u32) -> u32 {
    (1..=rules).rev().find(|rules| format_of_rules(*rules) <= format).unwrap_or(1)
}

impl Event {
    /// The lowest format that can represent the event.
    pub fn format(&self) -> u32 {
        match self {
            Self::RunStarted(started) => started.format(),
            Self::CompensationRegistered(_)
            | Self::CompensationsKept { .. }
            | Self::CompensationStarted { .. }
            | Self::RunCompensating { .. }
            | Self::RunRetrying(_)
            | Self::LoopStarted { .. }
            | Self::IterationEnded(_)
            | Self::RunRetried(_)
            | Self::RunForked(_)
            | Self::TokenRequested(_)
            | Self::TokenTaken { .. }
            | Self::TokenRefused { .. }
            | Self::TokenClosed { .. }
            | Self::ReplySent { .. }
            | Self::ReplyDropped { .. }
            | Self::HookOpened { of: Some(_), .. }
            | Self::RunContinued(_) => 3,
            Self::StepStarted { is_transactional: true, .. } => 3,
            Self::HookReceived { to, .. } if !to.is_plain() => 3,
            Self::OperationCancelled { .. } | Self::HookTaken { .. } | Self::HookRejected { .. } => 2,
            Self::HookReceived { headers, at, judgement, .. } => {
                let is_first = headers.is_empty() && at.is_none() && *judgement == Judgement::Kept;
                if is_first { FIRST_FORMAT } else { 2 }
            }
            Self::CancelRequested { ends, maybe_attempted, .. } => {
                if ends.is_empty() && maybe_attempted.is_empty() { FIRST_FORMAT } else { 2 }
            }
            Self::RunFailed { failure }
            | Self::RunCancelled { failure }
            | Self::RunTerminated { failure, .. }
            | Self::StepFailed { failure, .. }
            | Self::StepRetried { failure, .. }
            | Self::ChildFailed { failure, .. }
            | Self::ChildCancelled { failure, .. }
            | Self::ValueRecorded { value: Err(failure), .. } => failure.format(),
            _ => FIRST_FORMAT,
        }
    }
}

impl MessageBody {
    /// The lowest format that can represent the message.
    pub fn format(&self) -> u32 {
        match self {
            Self::ChildEnded { outcome: Outcome::Failed(failure) | Outcome::Cancelled(failure), .. }
            | Self::Refused { failure, .. } => failure.format(),
            Self::Attempted { events } => format_of_events(events),
            Self::Pause { .. } | Self::Resume | Self::Retry(_) => 3,
            Self::Compensate { .. } | Self::TokenTaken { .. } => 3,
            Self::Hook { to, .. } if !to.is_plain() => 3,
            _ => FIRST_FORMAT,
        }
    }
}

impl Failure {
    /// The lowest format that can represent the failure.
    pub fn format(&self) -> u32 {
        match self.kind {
            _ if !self.failed_compensations.is_empty() => 3,
            FailureKind::MaybeAttempted => 2,
            _ => FIRST_FORMAT,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::event::{FORMAT, RULES};

    /// The lines of the golden files of a format: one event each.
    fn golden(format: u32) -> Vec<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("golden/v{format}"));
        // A format that only added kinds of messages has no files.
        let files = std::fs::read_dir(folder).into_iter().flatten();
        let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
        let lines = lines.map(|line| line.trim_end_matches(',').to_owned());
        lines.filter(|line| line.starts_with('{')).collect()
    }

    #[test]
    fn an_event_needs_the_first_format_that_has_it() {
        let mut known = Vec::new();
        for format in FIRST_FORMAT..=FORMAT {
            let lines = golden(format);
            for line in lines.iter().filter(|line| !known.contains(*line)) {
                let events = Event::read_all(&format!("[{line}]")).unwrap();
                assert_eq!(format_of_events(&events), format, "{line}");
            }
            known.extend(lines);
        }
        assert!(known.len() > 50, "{}", known.len());
    }

    #[test]
    fn a_message_needs_what_it_tells() {
        let failure = Failure::new(FailureKind::MaybeAttempted, "m");
        let op = crate::event::OpNumber(1);
        let outcome = Outcome::Failed(failure.clone());
        assert_eq!(MessageBody::ChildEnded { op, outcome }.format(), 2);
        let events = vec![Event::StepDropped { op }, Event::StepFailed { op, failure }];
        assert_eq!(MessageBody::Attempted { events }.format(), 2);
        assert_eq!(MessageBody::Compensate { reason: "r".into() }.format(), 3);
        assert_eq!(MessageBody::Cancel { reason: "r".into() }.format(), FIRST_FORMAT);
        assert_eq!(MessageBody::Pause { reason: "r".into() }.format(), 3);
        assert_eq!(MessageBody::Resume.format(), 3);
    }

    #[test]
    fn a_session_that_cannot_read_a_format_gets_no_rules_that_need_it() {
        assert_eq!(readable_rules(RULES, FORMAT), RULES);
        assert_eq!(readable_rules(2, 1), 1);
        assert_eq!(readable_rules(1, FORMAT), 1);
    }
}
