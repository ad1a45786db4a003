//! What all handlers share.

use std::sync::Arc;

use outlast::Client;
use outlast::core::limits::WEBHOOK_WAITING_MAX;
use outlast_api::Service;
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
}

impl ServerState {
    pub(crate) fn new(client: Client, config: Config) -> AppState {
        let (live, metrics, rates) = (LiveHub::default(), HttpMetrics::default(), RateLimits::default());
        let (service, held_webhooks) = (Service::new(client), Semaphore::new(WEBHOOK_WAITING_MAX));
        Arc::new(Self { service, config, live, metrics, rates, held_webhooks })
    }
}
