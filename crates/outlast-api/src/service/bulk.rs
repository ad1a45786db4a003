//! The runs that a bulk request selects.

use std::collections::BTreeMap;

use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::queue::BUILT_IN_PREFIX;
use outlast_core::{ListOrder, RunId, RunQuery, RunView, Status};

use super::list::{OPEN, query};
use super::problems::{check_reason, of_error};
use super::{Caller, Service, convert};
use crate::bulk::{BulkAction, BulkPreview, BulkRequest};
use crate::problem::{Problem, ProblemCode};
use crate::runs::RunFilter;

/// The largest number of runs that are counted.
const COUNTED_MAX: u64 = 10_000;

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
        let required = request.action.role();
        if !caller.role.includes(required) {
            let detail = format!("this action on many runs needs the role {required}");
            let forbidden = Problem::new(ProblemCode::Forbidden, detail);
            return Err(forbidden.with(|problem| problem.required_role = Some(required)));
        }
        check_reason(request.reason.as_deref())?;
        if !request.dry_run {
            return Err(Problem::field(
                "/dry_run",
                "only `true` is supported: the selected runs are counted",
            ));
        }
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

/// The statuses that an action fits.
fn statuses_for(action: BulkAction) -> Vec<Status> {
    match action {
        BulkAction::Delete => ENDED.into(),
        BulkAction::Restart => Vec::new(),
        _ => OPEN.into(),
    }
}

/// Whether a bulk action applies to a run.
fn is_selected(run: &RunView) -> bool {
    !run.is_queued_step() && !run.workflow.starts_with(BUILT_IN_PREFIX) && !run.marks.is_quarantined()
}
