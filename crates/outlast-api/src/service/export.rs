//! Exported histories.

use outlast_core::RunId;

use super::Service;
use super::problems::of_error;
use crate::problem::Problem;

impl Service {
    /// `GET /api/runs/{id}/export`: the history as a file, which `replay` of the library reads.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn export(&self, run: RunId) -> Result<String, Problem> {
        self.client.export(run).await.map_err(of_error)
    }
}
