//! Retrying runs.

use outlast::{PlannedOperation, RetryPlan};
use outlast_core::{OpNumber, RunId};

use super::control::did;
use super::problems::{check_reason, of_error};
use super::{Caller, Service};
use crate::control::{ControlledJson, DidWhat};
use crate::problem::Problem;
use crate::retry::{PlannedOperationJson, RetryPlanJson, RetryRunRequest};
use crate::start::TimeOrDuration;

impl Service {
    /// `POST /api/runs/{id}/retry`.
    ///
    /// # Errors
    ///
    /// `not_found`, `conflict` with the reason if it cannot be retried, `invalid_request` if its deadline has passed,
    /// `too_long`.
    pub async fn retry(
        &self,
        caller: &Caller,
        run: RunId,
        request: &RetryRunRequest,
    ) -> Result<ControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let client = self.acting_as(caller);
        let mut call = client.retry(run).reason(request.reason.clone().unwrap_or_default());
        if let Some(op) = request.from {
            call = call.from(OpNumber(op));
        }
        if request.force {
            call = call.force();
        }
        call = match request.deadline {
            Some(TimeOrDuration::At(time)) => call.deadline(time.0),
            Some(TimeOrDuration::In(duration)) => {
                call.deadline(self.client.world().clock().now().plus(duration))
            }
            None => call,
        };
        // The run has ended: that alone is no reason for a refusal here.
        let refused = |error| of_error(error).of_run(run);
        if !request.dry_run {
            let answer = call.await.map_err(refused)?;
            return self.controlled(run, Ok(did(answer))).await;
        }
        let plan = Some(plan_json(&call.dry_run().await.map_err(refused)?));
        Ok(ControlledJson { did: DidWhat::Nothing, run: self.run(run).await?, plan })
    }
}

fn plan_json(plan: &RetryPlan) -> RetryPlanJson {
    let open = plan.open.iter().map(planned);
    RetryPlanJson {
        reopens: plan.reopens.0,
        from_event: plan.from,
        skipped_events: plan.events - plan.from,
        recorded_again: plan.recorded_again as u64,
        open: open.collect(),
    }
}

/// An operation of the plan of a retry or fork.
pub(super) fn planned(open: &PlannedOperation) -> PlannedOperationJson {
    PlannedOperationJson {
        op: open.op.0,
        kind: open.kind.as_str().into(),
        name: open.name.to_string(),
        queue: open.queue.as_ref().map(ToString::to_string),
        at_most_once: open.is_once,
        run: open.run,
    }
}
