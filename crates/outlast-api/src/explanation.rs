//! Why a run is in its current state.

use outlast_core::RunId;
use serde::{Deserialize, Serialize};

use crate::action::Action;

/// Calls of the library that sentences recommend.
const CALLS: [(&str, Action); 3] = [
    ("`client.resume(run)`", Action::Resume),
    ("`client.terminate(run, reason)`", Action::Terminate),
    ("`client.release(run)`", Action::Release),
];

/// Why a run is in its current state, as data and as a sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExplanationJson {
    /// The run.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub run: RunId,
    /// Its status.
    pub status: String,
    /// The cause: an object with `kind` (`ended`, `delayed`, `held`, `worker_gone`, `waits`, `ready`, `no_code`,
    /// `not_served`, `no_worker`, `stuck`, `paused`, `builds_failed`, `past_deadline`) and what belongs to it.
    pub because: serde_json::Value,
    /// The request to stop, if there is one: `reason`, `at`, `is_told`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopping: Option<serde_json::Value>,
    /// Whether it is in quarantine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_quarantined: bool,
    /// The state of its compensations, while they run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensating: Option<serde_json::Value>,
    /// Who keeps its turn from being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<String>,
    /// Why its last turn could not be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_committed: Option<String>,
    /// What could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// All of it in a few sentences, with the remedy.
    pub sentence: String,
}

impl ExplanationJson {
    /// The sentence for people who do not write a program: `offer` says how they do what a call of the library does, such as
    /// `` `client.resume(run)` ``.
    pub fn sentence_with(&self, offer: impl Fn(Action) -> String) -> String {
        let sentence =
            self.sentence.replace("Call `client.", "Use `client.").replace(" call `client.", " use `client.");
        let offered = |sentence: String, (call, action): (&str, Action)| match sentence.contains(call) {
            true => sentence.replace(call, &offer(action)),
            false => sentence,
        };
        CALLS.into_iter().fold(sentence, offered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_recommends_what_a_surface_offers() {
        let sentence = "Stuck. Call `client.resume(run)` to retry, or `client.terminate(run, reason)` to end it; \
                        or call `client.other(run)`. It stays until `client.release(run)`.";
        let explanation = ExplanationJson {
            run: RunId::from_bits(7),
            status: "stuck".into(),
            because: serde_json::Value::Null,
            stopping: None,
            is_quarantined: true,
            compensating: None,
            blocked_by: None,
            not_committed: None,
            damage: None,
            sentence: sentence.into(),
        };
        assert_eq!(
            explanation.sentence_with(|action| format!("`outlast run {action} 7`")),
            "Stuck. Use `outlast run resume 7` to retry, or `outlast run terminate 7` to end it; or use `client.other(run)`. It \
             stays until `outlast run release 7`."
        );
    }
}
