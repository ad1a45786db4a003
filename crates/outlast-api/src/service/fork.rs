//! Forking runs.

use outlast::core::ForkPlan;
use outlast::{ForkCall, OpNumber};
use outlast_core::{Payload, RunId};
use serde_json::Value;

use super::problems::{of_error, of_payload};
use super::retry::planned;
use super::start::StartedJson;
use super::{Caller, Service};
use crate::fork::{ForkPlanJson, ForkRequest, PlannedOutputJson};
use crate::problem::Problem;

impl Service {
    /// `POST /api/runs/{id}/fork`.
    ///
    /// # Errors
    ///
    /// `not_found`, `conflict` with the reason if it cannot be forked there, `invalid_request`, `input_invalid`.
    pub async fn fork(
        &self,
        caller: &Caller,
        run: RunId,
        request: &ForkRequest,
    ) -> Result<StartedJson, Problem> {
        let client = self.acting_as(caller);
        let forked = with_request(client.fork::<Value>(run), request)?.await;
        let forked = forked.map_err(|error| of_error(error).of_run(run))?;
        Ok(StartedJson { run: self.run(forked.id()).await?, is_new: true })
    }

    /// The same with `dry_run`: what the fork would do.
    ///
    /// # Errors
    ///
    /// As [`fork`](Self::fork).
    pub async fn fork_plan(
        &self,
        caller: &Caller,
        run: RunId,
        request: &ForkRequest,
    ) -> Result<ForkPlanJson, Problem> {
        let client = self.acting_as(caller);
        let plan = with_request(client.fork::<Value>(run), request)?.dry_run().await;
        Ok(plan_json(&plan.map_err(|error| of_error(error).of_run(run))?))
    }
}

fn with_request<'a>(
    mut call: ForkCall<'a, Value>,
    request: &ForkRequest,
) -> Result<ForkCall<'a, Value>, Problem> {
    if let Some(event) = request.event {
        call = call.at(event);
    }
    for (op, output) in &request.outputs {
        Payload::json(output).map_err(|error| of_payload(&format!("/outputs/{op}"), &error))?;
        call = call.with_output(OpNumber(*op), output);
    }
    Ok(if request.force { call.force() } else { call })
}

fn plan_json(plan: &ForkPlan) -> ForkPlanJson {
    let outputs = plan.outputs.iter().map(|output| PlannedOutputJson {
        op: output.op.0,
        kind: output.kind.map_or("value", |kind| kind.as_str()).into(),
        name: output.name.to_string(),
    });
    ForkPlanJson {
        event: plan.at,
        dropped_events: plan.dropped(),
        open: plan.open.iter().map(planned).collect(),
        later: plan.later.iter().map(planned).collect(),
        outputs: outputs.collect(),
    }
}
