//! Waiting until a worker is idle: it holds no run, and the world has none that is ready for it.

use outlast_core::{Timestamp, Work};
use tokio::sync::{Notify, watch};

use super::Session;

/// The claims that waiters for an idle worker request, and the results of all claims.
#[derive(Debug, Default)]
pub(in crate::worker) struct IdleChecks {
    requested: Notify,
    last: watch::Sender<ClaimSummary>,
}

/// The result of a claim.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::worker) struct ClaimSummary {
    /// The number of the claim in its session, from 1.
    number: u64,
    /// The number of runs that were claimed.
    claimed: usize,
    /// When the next run is due.
    next_due: Option<Timestamp>,
}

impl ClaimSummary {
    /// A claim with this number that has not returned.
    pub(in crate::worker) fn of_claim(number: u64) -> Self {
        Self { number, ..Self::default() }
    }

    /// The same claim with its result.
    pub(in crate::worker) fn with_result(self, work: &Work) -> Self {
        Self { claimed: work.claimed.len(), next_due: work.next_due, ..self }
    }
}

impl IdleChecks {
    /// Completes when a claim is requested.
    pub(in crate::worker) async fn claim_requested(&self) {
        self.requested.notified().await;
    }

    /// Publishes the result of a claim, after everything that it was to deliver.
    pub(in crate::worker) fn claim_ended(&self, summary: ClaimSummary) {
        self.last.send_replace(summary);
    }
}

impl Session {
    /// Waits until the worker is idle. Returns the time at which the next run is due.
    pub(in crate::worker) async fn idle(&self) -> Option<Timestamp> {
        loop {
            // Counted before: an earlier claim may still deliver runs, and they may be released before this claim returns
            // but after it was executed.
            let added = self.added_count();
            self.drained().await;
            let Some(claim) = self.claim_now().await else { return std::future::pending().await };
            // A world that delivers outboxes later may have made a run ready after the claim; its hint causes another.
            if claim.claimed > 0 || self.live_count() > 0 || self.added_count() > added {
                continue;
            }
            if !self.has_deferred_effects {
                return claim.next_due;
            }
            match self.claim_now().await {
                Some(again)
                    if again.claimed == 0 && self.live_count() == 0 && self.added_count() == added =>
                {
                    return again.next_due;
                }
                _ => {}
            }
        }
    }

    /// Requests a claim, and waits for the result of one that began since. `None` if the session has ended.
    async fn claim_now(&self) -> Option<ClaimSummary> {
        let mut last = self.idle_checks.last.subscribe();
        let begun = self.claims.begun();
        self.idle_checks.requested.notify_one();
        last.wait_for(|claim| claim.number > begun).await.ok().map(|claim| *claim)
    }
}
