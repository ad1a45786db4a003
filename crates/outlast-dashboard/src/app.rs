//! What all handlers share.

use std::sync::Arc;

use outlast_api::Service;

use crate::assets::Assets;
use crate::config::DashboardConfig;
use crate::form_token::FormSecret;
use crate::live::hub::Hub;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct AppState {
    pub(crate) service: Service,
    pub(crate) config: DashboardConfig,
    pub(crate) assets: Assets,
    pub(crate) secret: FormSecret,
    pub(crate) hub: Hub,
}

/// The shared state, as handlers extract it.
pub(crate) type App = Arc<AppState>;

impl AppState {
    pub(crate) fn new(service: Service, config: DashboardConfig) -> Self {
        Self { service, config, assets: Assets::new(), secret: FormSecret::new(), hub: Hub::default() }
    }
}
