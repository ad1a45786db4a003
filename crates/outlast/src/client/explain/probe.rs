//! Probes: workers that hold a single run that crashed workers before, and claim no other run for a while.

use outlast_core::limits::{CRASH_TRIAL, PAGE_RUNS_MAX};
use outlast_core::takeover::{CRASH_CLASS_MAX, crash_class};
use outlast_core::{BuiltInRuns, ListOrder, QueuedSteps, RunId, RunQuery, SessionId, Status, Timestamp};
use serde::Serialize;

use super::JoinedWorker;
use crate::client::Client;
use crate::error::Error;

/// How many pages of running runs are searched for those that workers probe. A run that crashed workers is an old one,
/// and the oldest come first.
const PROBED_PAGES: usize = 5;

/// A worker that takes no other run at the moment, because it tries one that has crashed workers; part of an
/// explanation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Probe {
    /// The worker's session.
    pub worker: SessionId,
    /// The run that it tries.
    pub run: RunId,
    /// The number of worker crashes that count against that run.
    pub crashes: u32,
    /// When the worker takes other runs at the latest; earlier if the run commits a turn.
    pub until: Timestamp,
}

impl Client {
    /// Which of the workers hold one run only, which crashed workers before: they take no other run until it has
    /// committed a turn, or a minute is over.
    pub(super) async fn probes(&self, workers: &[JoinedWorker], now: Timestamp) -> Result<Vec<Probe>, Error> {
        let mut probes = Vec::new();
        let mut searched: Vec<SessionId> =
            workers.iter().filter(|worker| worker.held == 1).map(|worker| worker.session).collect();
        let mut query = RunQuery {
            statuses: vec![Status::Running],
            queued_steps: QueuedSteps::Listed,
            built_in: BuiltInRuns::Listed,
            order: ListOrder::OldestFirst,
            limit: PAGE_RUNS_MAX,
            ..RunQuery::default()
        };
        for _ in 0..PROBED_PAGES {
            if searched.is_empty() {
                break;
            }
            let page = self.repeat(|| self.world.runs(query.clone())).await?;
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
