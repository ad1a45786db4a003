//! Why a run failed, as lists show it.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::id::RunId;
use crate::limits::RUN_FAILURE_MESSAGE_BYTES;
use crate::run::RunView;
use crate::time::Timestamp;

/// A summary of the failure with which a run ended. The history has the whole of it.
///
/// It is stored in the row of the run, so that lists show it without reading histories.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunFailure {
    /// Its kind.
    pub kind: FailureKind,
    /// The durable code of the error, such as `card_declined`.
    pub code: Option<Box<str>>,
    /// The step that failed, when a step did.
    pub step: Option<Box<str>>,
    /// The first [`RUN_FAILURE_MESSAGE_BYTES`] bytes of the message.
    pub message: Box<str>,
    /// The same number for failures of the same kind, code and step whose messages differ only in words that contain
    /// digits: numbers, ids, times. Runs of one workflow with the same fingerprint probably failed for the same reason.
    pub fingerprint: u64,
}

/// Which failed runs to list, those that ended last first.
///
/// ```
/// use outlast_core::FailureQuery;
///
/// let query = FailureQuery { limit: 100, ..FailureQuery::default() };
/// # assert!(query.fingerprint.is_none());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureQuery {
    /// Only failures with this [fingerprint](RunFailure::fingerprint).
    pub fingerprint: Option<u64>,
    /// Only runs that ended at this time or later.
    pub ended_from: Option<Timestamp>,
    /// Only runs that ended before this time; or, if a run is given, also those that ended at that time and have a
    /// lower id. Give the end and the id of the last run of a page to get the next page.
    pub ended_before: Option<(Timestamp, Option<RunId>)>,
    /// The maximum number of runs; at most [`PAGE_RUNS_MAX`](crate::limits::PAGE_RUNS_MAX).
    pub limit: usize,
}

impl FailureQuery {
    /// The bounds of the list as pairs of time and id: the lowest that is listed, and the lowest that is not listed
    /// any more.
    pub fn bounds(&self) -> [(Timestamp, RunId); 2] {
        let lowest = RunId::from_bits(0);
        let from = self.ended_from.unwrap_or(Timestamp::from_micros(i64::MIN));
        let (before, run) = self.ended_before.unwrap_or((Timestamp::NEVER, None));
        [(from, lowest), (before, run.unwrap_or(lowest))]
    }

    /// Whether a run is listed.
    pub fn wants(&self, run: &RunView) -> bool {
        let [from, before] = self.bounds();
        let (Some(failure), Some(ended_at)) = (&run.failure, run.ended_at) else { return false };
        let place = (ended_at, run.id);
        self.fingerprint.is_none_or(|wanted| failure.fingerprint == wanted) && from <= place && place < before
    }
}

/// The stored form; the fingerprint has a column of its own.
#[derive(Serialize, Deserialize)]
struct StoredRunFailure {
    kind: FailureKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<Box<str>>,
    message: Box<str>,
}

impl RunFailure {
    /// The summary of a failure.
    ///
    /// ```
    /// use outlast_core::{Failure, FailureKind, RunFailure};
    ///
    /// let failed = |message| RunFailure::of(&Failure::new(FailureKind::Error, message));
    /// assert_eq!(failed("order 41 is gone").fingerprint, failed("order 1077 is gone").fingerprint);
    /// assert_ne!(failed("order 41 is gone").fingerprint, failed("order 41 is late").fingerprint);
    /// ```
    pub fn of(failure: &Failure) -> Self {
        let message = first_bytes(&failure.message, RUN_FAILURE_MESSAGE_BYTES).into();
        let fingerprint = fingerprint(failure);
        Self {
            kind: failure.kind,
            code: failure.code.clone(),
            step: failure.step.clone(),
            message,
            fingerprint,
        }
    }

    /// The summary of the failure with which a run ends; `None` if the event is not the end of a failed run.
    pub fn of_final(event: &Event) -> Option<Self> {
        match event {
            Event::RunFailed { failure } => Some(Self::of(failure)),
            _ => None,
        }
    }

    /// The text that a world stores, without the fingerprint.
    pub fn to_stored(&self) -> String {
        let Self { kind, code, step, message, fingerprint: _ } = self.clone();
        serde_json::to_string(&StoredRunFailure { kind, code, step, message }).unwrap_or_default()
    }

    /// The summary with this text and this fingerprint.
    ///
    /// # Errors
    ///
    /// The error of the JSON parser.
    pub fn from_stored(text: &str, fingerprint: u64) -> Result<Self, serde_json::Error> {
        let StoredRunFailure { kind, code, step, message } = serde_json::from_str(text)?;
        Ok(Self { kind, code, step, message, fingerprint })
    }
}

/// The beginning of a text, at most this long, without a broken character.
fn first_bytes(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// FNV-1a over kind, code, step and message, with a mark between them. Stored numbers must never change.
fn fingerprint(failure: &Failure) -> u64 {
    let kind = serde_json::to_string(&failure.kind).unwrap_or_default();
    let message = without_numbers(&failure.message);
    let parts = [
        kind.trim_matches('"'),
        failure.code.as_deref().unwrap_or_default(),
        failure.step.as_deref().unwrap_or_default(),
        first_bytes(&message, RUN_FAILURE_MESSAGE_BYTES),
    ];
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The text with `#` for every word that contains a digit.
fn without_numbers(text: &str) -> String {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = is_of_word(first);
        let end = rest.find(|c| is_of_word(c) != is_word).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        result.push_str(if is_word && part.contains(char::is_numeric) { "#" } else { part });
        rest = after;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(message: &str) -> RunFailure {
        RunFailure::of(&Failure::new(FailureKind::Error, message))
    }

    #[test]
    fn the_message_is_cut_at_a_character() {
        let failure = summary(&"ü".repeat(150));
        assert_eq!(failure.message.len(), RUN_FAILURE_MESSAGE_BYTES);
        assert_eq!(summary(&format!("a{}", "ü".repeat(150))).message.len(), RUN_FAILURE_MESSAGE_BYTES - 1);
        assert_eq!(&*summary("short").message, "short");
    }

    #[test]
    fn numbers_and_ids_of_any_length_do_not_change_the_fingerprint() {
        let long = "and so on ".repeat(40);
        let texts = [
            format!("order 9 of run_01J8Z0 failed after 30s: {long}"),
            format!("order 1077 of run_01J9A7QK failed after 2m: {long}"),
        ];
        let [one, other] = texts.map(|text| summary(&text));
        assert_eq!(one.fingerprint, other.fingerprint);
        assert_eq!(without_numbers("a 12-ab3, ok_4: (é5) no"), "a #-#, #: (#) no");
    }

    #[test]
    fn kind_code_and_step_are_part_of_the_fingerprint() {
        let plain = Failure::new(FailureKind::Error, "gone");
        let mut of_step = plain.clone();
        of_step.step = Some("charge".into());
        let others = [
            Failure::new(FailureKind::Timeout, "gone"),
            plain.clone().with_code("declined"),
            plain.clone().with_code("charge"),
            of_step,
        ];
        let mut all: Vec<u64> =
            others.iter().chain([&plain]).map(|failure| RunFailure::of(failure).fingerprint).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn a_stored_fingerprint_never_changes() {
        let failure = Failure::new(FailureKind::Error, "card 4711 declined").with_code("declined");
        assert_eq!(RunFailure::of(&failure).fingerprint, 14_718_886_827_354_777_654);
    }

    #[test]
    fn the_stored_form_is_read_back() {
        let mut failure = Failure::new(FailureKind::Fatal, "a \"quoted\"\0text").with_code("x");
        failure.step = Some("charge".into());
        let summary = RunFailure::of(&failure);
        assert_eq!(RunFailure::from_stored(&summary.to_stored(), summary.fingerprint).unwrap(), summary);
        assert!(RunFailure::from_stored("{}", 1).is_err());
    }
}
