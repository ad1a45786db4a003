//! What all handlers share.

use std::sync::Arc;

use outlast_api::Service;

use crate::assets::Assets;
use crate::config::DashboardConfig;
use crate::form_token::FormSecret;
use crate::live::hub::Hub;
use crate::login::limiter::LoginLimiter;

/// What all handlers share.
#[derive(Debug)]
pub(crate) struct AppState {
    pub(crate) service: Service,
    pub(crate) config: DashboardConfig,
    pub(crate) assets: Assets,
    pub(crate) secret: FormSecret,
    pub(crate) hub: Hub,
    pub(crate) logins: LoginLimiter,
}

/// The shared state, as handlers extract it.
pub(crate) type App = Arc<AppState>;

impl AppState {
    pub(crate) fn new(service: Service, config: DashboardConfig) -> Self {
        let secret = config.secret.map_or_else(FormSecret::new, FormSecret::of);
        let (assets, hub, logins) = (Assets::new(), Hub::default(), LoginLimiter::default());
        Self { service, config, assets, secret, hub, logins }
    }
}
