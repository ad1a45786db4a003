//! Exported histories.

use outlast_core::{Event, History, RunId, without_secrets};

use super::Service;
use super::problems::of_error;
use crate::problem::{Problem, ProblemCode};

impl Service {
    /// `GET /api/runs/{id}/export`: the history as a file, which `replay` of the library reads. Tokens of hooks and secrets in
    /// payloads are hidden, so a history with secrets cannot be replayed.
    ///
    /// # Errors
    ///
    /// `not_found`; `forbidden` for callers who may not see payloads.
    pub async fn export(&self, run: RunId) -> Result<String, Problem> {
        if self.hides_payloads {
            let detail = "a history contains payloads, which this role may not see";
            return Err(Problem::new(ProblemCode::Forbidden, detail));
        }
        let mut turns = self.client.history(run).await.map_err(of_error)?;
        for turn in &mut turns {
            turn.events = std::mem::take(&mut turn.events).into_iter().map(Event::without_tokens).collect();
        }
        Ok(without_secrets(&History { run, turns }.to_json()).into_owned())
    }
}
