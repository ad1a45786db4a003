//! The output and the published state of a run.

use std::time::Duration;

use outlast::ErrorKind;
use outlast_core::{IntoDuration, Outcome, RunId, Timestamp};
use serde_json::value::RawValue;

use super::Service;
use super::problems::{of_error, of_world};
use crate::output::{OutputJson, OutputQuery, StateJson};
use crate::payload::PayloadAmount;
use crate::problem::Problem;

/// The longest time that a request waits for the end of a run.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl Service {
    /// `GET /api/runs/{id}/output`. Waits for the end of the run if the query says so, but not for that of a stuck run.
    ///
    /// # Errors
    ///
    /// `not_found`, `invalid_request`.
    pub async fn output(&self, run: RunId, query: &OutputQuery) -> Result<OutputJson, Problem> {
        let wait = match &query.wait {
            Some(text) => text.as_str().into_duration(),
            None => Ok(Duration::ZERO),
        };
        let wait = wait.map_err(|error| Problem::field("?wait", error.to_string()))?.min(WAIT_MAX);
        if !wait.is_zero() {
            let waited = self.client.handle::<Box<RawValue>>(run).output_within(wait).await;
            if let Err(error) = waited
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable)
            {
                return Err(of_error(error));
            }
        }
        let view = self.client.run(run).await.map_err(of_error)?;
        let status = view.status.as_str().to_owned();
        if !view.status.is_final() {
            return Ok(OutputJson { ended: false, status, output: None, failure: None });
        }
        let now = Timestamp::from_micros(0);
        let outcome = self.client.world().ended(run, now).await.map_err(of_world)?.map(|ended| ended.outcome);
        let (output, failure) = match outcome {
            Some(Outcome::Completed(output)) => (Some(self.payload(&output, PayloadAmount::Full)), None),
            Some(Outcome::Failed(failure) | Outcome::Cancelled(failure)) => (None, Some((&failure).into())),
            None => (None, None),
        };
        Ok(OutputJson { ended: true, status, output, failure })
    }

    /// `GET /api/runs/{id}/state`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn state(&self, run: RunId) -> Result<StateJson, Problem> {
        let view = self.client.world().published(run).await.map_err(of_world)?;
        let payload = view.state.as_ref().and_then(|state| state.payload.as_ref());
        Ok(StateJson {
            state: payload.map(|payload| self.payload(payload, PayloadAmount::Full)),
            at: view.state.as_ref().map(|state| state.at.into()),
            version: view.state.as_ref().map_or(0, |state| state.version),
            dropped: view.state.as_ref().map_or(0, |state| state.dropped),
            ended: view.has_ended,
        })
    }
}
