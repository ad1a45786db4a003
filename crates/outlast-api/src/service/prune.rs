//! Deleting the runs that ended before a time.

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{BuiltInRuns, ListOrder, QueuedSteps, RunId, RunQuery, Status};

use super::Service;
use super::bulk::COUNTED_MAX;
use super::problems::of_error;
use crate::control::{PruneRequest, PrunedJson};
use crate::problem::Problem;

impl Service {
    /// `POST /api/world/prune`.
    ///
    /// # Errors
    ///
    /// `unavailable`. Runs that were deleted before stay deleted.
    pub async fn prune(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        if request.dry_run {
            return self.prunable(request).await;
        }
        let deleted = self.client.prune(request.ended_before.0).await.map_err(of_error)?;
        Ok(PrunedJson { deleted, more: false })
    }

    /// How many runs a prune would delete.
    async fn prunable(&self, request: &PruneRequest) -> Result<PrunedJson, Problem> {
        let mut query = RunQuery {
            statuses: vec![Status::Completed, Status::Failed, Status::Cancelled],
            ended_before: Some(request.ended_before.0),
            queued_steps: QueuedSteps::Listed,
            built_in: BuiltInRuns::Listed,
            order: ListOrder::OldestFirst,
            after: Some(RunId::from_bits(0)),
            limit: PAGE_RUNS_MAX,
            ..RunQuery::default()
        };
        let mut counted = PrunedJson { deleted: 0, more: false };
        loop {
            let page = self.client.runs(query.clone()).await.map_err(of_error)?;
            let deletable = page.runs.iter().filter(|run| !run.marks.is_quarantined()).count();
            counted.deleted += deletable as u64;
            counted.more = counted.deleted > COUNTED_MAX;
            if counted.more || page.next.is_none() {
                counted.deleted = counted.deleted.min(COUNTED_MAX);
                return Ok(counted);
            }
            query.after = page.next;
        }
    }
}
