//! What all handlers share.

use std::sync::Arc;

use outlast::Client;
use outlast_api::Service;

use crate::config::Config;
use crate::live::LiveHub;
use crate::metrics::HttpMetrics;

/// What all handlers share.
pub(crate) type AppState = Arc<ServerState>;

/// The service, the settings, and what is in progress.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) service: Service,
    pub(crate) config: Config,
    pub(crate) live: LiveHub,
    pub(crate) metrics: HttpMetrics,
}

impl ServerState {
    pub(crate) fn new(client: Client, config: Config) -> AppState {
        let (live, metrics) = (LiveHub::default(), HttpMetrics::default());
        Arc::new(Self { service: Service::new(client), config, live, metrics })
    }
}
