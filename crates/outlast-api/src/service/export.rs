//! Exported histories.

use outlast_core::{Event, History, RunId};

use super::Service;
use super::problems::of_error;
use crate::problem::Problem;

impl Service {
    /// `GET /api/runs/{id}/export`: the history as a file, which `replay` of the library reads. Tokens of hooks are hidden.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn export(&self, run: RunId) -> Result<String, Problem> {
        let mut turns = self.client.history(run).await.map_err(of_error)?;
        for turn in &mut turns {
            turn.events = std::mem::take(&mut turn.events).into_iter().map(Event::without_tokens).collect();
        }
        Ok(History { run, turns }.to_json())
    }
}
