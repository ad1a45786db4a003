//! Probes: workers that hold a single run that crashed workers before, and claim no other run for a while.

use outlast_core::limits::{CRASH_TRIAL, PAGE_RUNS_MAX};
use outlast_core::takeover::{CRASH_CLASS_MAX, crash_class};
use outlast_core::{ListOrder, QueuedSteps, RunId, RunQuery, SessionId, Status, Timestamp};
use serde::Serialize;

use super::JoinedWorker;
use crate::client::Client;
use crate::error::Error;

/// The number of pages of running runs that are searched for probed runs. A run that crashed workers is old, and the
/// oldest runs are listed first.
const PROBED_PAGES: usize = 5;

/// A worker that claims no other run, because it probes a run that crashed workers before.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    /// The worker's session.
    pub worker: SessionId,
    /// The run that it probes.
    pub run: RunId,
    /// How many crashes count against that run.
    pub crashes: u32,
    /// When the worker claims other runs again at the latest. It does so earlier if the run commits a turn.
    pub until: Timestamp,
}

impl Client {
    /// Those of the workers that hold a single run that crashed workers before. They claim no other run until it has
    /// committed a turn, or a minute has passed.
    pub(super) async fn probes(&self, workers: &[JoinedWorker], now: Timestamp) -> Result<Vec<Probe>, Error> {
        let mut probes = Vec::new();
        let mut searched: Vec<SessionId> =
            workers.iter().filter(|worker| worker.held == 1).map(|worker| worker.session).collect();
        let mut query = RunQuery {
            statuses: vec![Status::Running],
            queued_steps: QueuedSteps::Listed,
            order: ListOrder::OldestFirst,
            limit: PAGE_RUNS_MAX,
            ..RunQuery::default()
        };
        for _ in 0..PROBED_PAGES {
            if searched.is_empty() {
                break;
            }
            let page = self.world.runs(query.clone()).await?;
            for run in page.runs {
                let Some(worker) = run.owner.filter(|owner| searched.contains(owner)) else { continue };
                searched.retain(|session| *session != worker);
                // The probe begins with the claim, which updates the row.
                let until = run.updated_at.plus(CRASH_TRIAL);
                if crash_class(run.crashes) == CRASH_CLASS_MAX && until > now {
                    probes.push(Probe { worker, run: run.id, crashes: run.crashes, until });
                }
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        Ok(probes)
    }
}
