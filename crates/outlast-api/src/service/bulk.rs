//! Bulk actions, and the runs that they select.

use std::collections::BTreeMap;

use outlast::BulkState;
use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::queue::BUILT_IN_PREFIX;
use outlast_core::{ListOrder, RunId, RunQuery, RunView, Status};

use super::control::reason;
use super::list::{OPEN, query};
use super::problems::{check_reason, of_error};
use super::{Caller, Service, convert};
use crate::bulk::{
    BulkAction, BulkJson, BulkPreview, BulkProblemJson, BulkRequest, BulkStopJson, BulkStopRequest,
};
use crate::problem::{Problem, ProblemCode};
use crate::runs::RunFilter;

/// The largest number of runs that are counted.
pub(super) const COUNTED_MAX: u64 = 10_000;

/// The number of runs that are shown.
const SAMPLE: usize = 10;

/// The statuses of runs that have ended.
const ENDED: [Status; 3] = [Status::Completed, Status::Failed, Status::Cancelled];

impl Service {
    /// `POST /api/bulk` with `dry_run`: the runs that the request selects.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `forbidden` if the action needs another role.
    pub async fn preview_bulk(&self, caller: &Caller, request: &BulkRequest) -> Result<BulkPreview, Problem> {
        check_request(caller, request)?;
        let mut query = RunQuery {
            order: ListOrder::OldestFirst,
            after: Some(RunId::from_bits(0)),
            limit: PAGE_RUNS_MAX,
            ..query(&RunFilter::from(request.query.clone()))?
        };
        if query.statuses.is_empty() {
            query.statuses = statuses_for(request.action);
        }
        let mut preview =
            BulkPreview { matched: 0, more: false, by_status: BTreeMap::new(), sample: Vec::new() };
        loop {
            let page = self.client.runs(query.clone()).await.map_err(of_error)?;
            for run in page.runs.iter().filter(|run| is_selected(run)) {
                if preview.matched == COUNTED_MAX {
                    preview.more = true;
                    return Ok(preview);
                }
                preview.matched += 1;
                *preview.by_status.entry(run.status.as_str().into()).or_default() += 1;
                if preview.sample.len() < SAMPLE {
                    preview.sample.push(convert::run(run));
                }
            }
            if page.next.is_none() {
                return Ok(preview);
            }
            query.after = page.next;
        }
    }
}

impl Service {
    /// `POST /api/bulk` without `dry_run`: a run makes the calls.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `forbidden`, `stale` if more runs match than expected.
    pub async fn start_bulk(&self, caller: &Caller, request: &BulkRequest) -> Result<BulkJson, Problem> {
        check_request(caller, request)?;
        let query = query(&RunFilter::from(request.query.clone()))?;
        let client = self.acting_as(caller);
        let call = match request.rate {
            Some(rate) => client.bulk(query).rate(rate).durably(),
            None => client.bulk(query).durably(),
        };
        let call = match request.expect_at_most {
            Some(limit) => call.at_most(limit),
            None => call,
        };
        let reason = reason(caller, request.reason.as_deref());
        let started = match request.action {
            BulkAction::Cancel => call.cancel(&reason).await,
            BulkAction::Terminate if request.compensating => call.compensate(&reason).await,
            BulkAction::Terminate => call.terminate(&reason).await,
            BulkAction::Pause => call.pause(&reason).await,
            BulkAction::Resume => call.resume().await,
            BulkAction::Retry => call.retry(&reason).await,
            BulkAction::Restart => call.restart().await,
            BulkAction::Delete => call.delete().await,
        };
        match started {
            Ok(bulk) => self.bulk(bulk.run()).await,
            Err(error) if error.kind() == outlast::ErrorKind::Conflict => {
                let matched = self.preview_bulk(caller, request).await?.matched;
                let stale = Problem::new(ProblemCode::Stale, error.to_string());
                Err(stale.with(|problem| problem.matched = Some(matched)))
            }
            Err(error) => Err(of_error(error)),
        }
    }

    /// `GET /api/bulk/{id}`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn bulk(&self, run: RunId) -> Result<BulkJson, Problem> {
        let view = self.client.run(run).await.map_err(of_error)?;
        let progress = self.client.bulk_handle(run).progress().await.map_err(of_error)?;
        let left = (!progress.more).then(|| progress.matched.saturating_sub(progress.called()));
        let without_effect = progress.already + progress.nothing;
        Ok(BulkJson {
            id: run,
            state: match progress.state {
                BulkState::Completed => "completed",
                BulkState::Stopped => "stopped",
                _ if view.status.is_final() => "failed",
                _ => "running",
            }
            .into(),
            action: progress.action,
            created_at: view.created_at.into(),
            ended_at: view.ended_at.map(Into::into),
            actor: progress.actor,
            matched: progress.matched,
            more: progress.more,
            done: progress.requested + without_effect,
            without_effect,
            failed: progress.refused,
            left,
            problems: progress
                .problems
                .into_iter()
                .map(|problem| BulkProblemJson { run: problem.run, message: problem.message })
                .collect(),
            stopped: progress.stop.map(|stop| BulkStopJson { reason: stop.reason, actor: stop.actor }),
        })
    }

    /// `POST /api/bulk/{id}/stop`.
    ///
    /// # Errors
    ///
    /// `not_found`, `too_long`.
    pub async fn stop_bulk(
        &self,
        caller: &Caller,
        run: RunId,
        request: &BulkStopRequest,
    ) -> Result<BulkJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let reason = reason(caller, request.reason.as_deref());
        match self.acting_as(caller).bulk_handle(run).stop(&reason).await {
            Ok(()) => self.bulk(run).await,
            Err(error) => Err(self.refused_by(run, error).await),
        }
    }
}

/// Checks what does not depend on the world.
fn check_request(caller: &Caller, request: &BulkRequest) -> Result<(), Problem> {
    let required = request.action.role();
    if !caller.role.includes(required) {
        let detail = format!("this action on many runs needs the role {required}");
        let forbidden = Problem::new(ProblemCode::Forbidden, detail);
        return Err(forbidden.with(|problem| problem.required_role = Some(required)));
    }
    check_reason(request.reason.as_deref())?;
    if request.compensating && request.action != BulkAction::Terminate {
        return Err(Problem::field("/compensating", "only `terminate` can run compensations first"));
    }
    if request.rate == Some(0) {
        return Err(Problem::field("/rate", "expected 1 or more calls per second"));
    }
    Ok(())
}

/// The statuses that an action fits.
fn statuses_for(action: BulkAction) -> Vec<Status> {
    match action {
        BulkAction::Delete => ENDED.into(),
        BulkAction::Restart => Vec::new(),
        BulkAction::Retry => vec![Status::Failed],
        _ => OPEN.into(),
    }
}

/// Whether a bulk action applies to a run.
fn is_selected(run: &RunView) -> bool {
    !run.is_queued_step() && !run.workflow.starts_with(BUILT_IN_PREFIX) && !run.marks.is_quarantined()
}
