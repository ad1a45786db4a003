//! What all handlers share.

use std::sync::Arc;

use outlast::Client;
use outlast_api::Service;

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
}

impl ServerState {
    pub(crate) fn new(client: Client, config: Config) -> AppState {
        let (live, metrics, rates) = (LiveHub::default(), HttpMetrics::default(), RateLimits::default());
        Arc::new(Self { service: Service::new(client), config, live, metrics, rates })
    }
}
