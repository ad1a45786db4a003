//! What all handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outlast::core::Clock;
use outlast::core::limits::WEBHOOK_WAITING_MAX;
use outlast::{Client, SystemClock};
use outlast_api::{Caller, Service};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::live::LiveHub;
use crate::metrics::HttpMetrics;
use crate::rate::RateLimits;

/// What all handlers share.
pub(crate) type AppState = Arc<ServerState>;

/// The service, the settings, and what is in progress.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) service: Service,
    pub(crate) config: Config,
    pub(crate) live: LiveHub,
    pub(crate) metrics: HttpMetrics,
    pub(crate) rates: RateLimits,
    /// Requests to webhooks that wait for the response of a workflow.
    pub(crate) held_webhooks: Semaphore,
    /// Whether the task that samples the numbers of runs was started.
    is_sampling: AtomicBool,
}

impl ServerState {
    pub(crate) fn new(client: Client, config: Config) -> AppState {
        let (live, metrics, rates) = (LiveHub::default(), HttpMetrics::default(), RateLimits::default());
        let (service, is_sampling) = (Service::new(client), AtomicBool::new(false));
        let held_webhooks = Semaphore::new(WEBHOOK_WAITING_MAX);
        let state = Arc::new(Self { service, config, live, metrics, rates, held_webhooks, is_sampling });
        state.sample_stats();
        state
    }

    /// The service as a caller may use it: without payloads for those below the role that sees them.
    pub(crate) fn service_for(&self, caller: &Caller) -> Service {
        match caller.role.includes(self.config.payload_role) {
            true => self.service.clone(),
            false => self.service.without_payloads(),
        }
    }

    /// Starts to sample the numbers of runs once a minute, until the server is stopped or dropped. A router that is made
    /// outside of a runtime begins with the first request for them.
    pub(crate) fn sample_stats(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.is_sampling.swap(true, Ordering::AcqRel) {
            return;
        }
        let (state, shutdown) = (Arc::downgrade(self), self.config.shutdown.clone());
        runtime.spawn(async move {
            // The state is not kept while the task sleeps.
            while let Some(state) = state.upgrade() {
                if let Err(problem) = state.service.sample().await {
                    tracing::debug!(problem = problem.detail, "the runs cannot be counted");
                }
                drop(state);
                let next = SystemClock.now().plus(Service::SAMPLE_EVERY);
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    _ = SystemClock.sleep_until(next) => {}
                }
            }
        });
    }
}
