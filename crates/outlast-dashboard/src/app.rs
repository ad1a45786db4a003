//! What all handlers share.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use outlast_api::{Caller, Service};
use tokio::sync::OnceCell;

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
    /// Set when the secret of the world is known, or another one is configured.
    secret_loaded: OnceCell<()>,
}

/// The shared state, as handlers extract it.
pub(crate) type App = Arc<AppState>;

impl AppState {
    pub(crate) fn new(service: Service, config: DashboardConfig) -> Self {
        let secret = config.secret.map_or_else(FormSecret::new, FormSecret::of);
        let (assets, hub, logins) = (Assets::new(), Hub::default(), LoginLimiter::default());
        let secret_loaded = OnceCell::new_with(config.secret.map(|_| ()));
        Self { service, config, assets, secret, hub, logins, secret_loaded }
    }

    /// The service as a caller may use it: without payloads for those below the role that sees them.
    pub(crate) fn service_for(&self, caller: &Caller) -> Service {
        match caller.role.includes(self.config.payload_role) {
            true => self.service.clone(),
            false => self.service.without_payloads(),
        }
    }
}

/// The time between the first two samples of the numbers of runs, so that the chart of a new process begins soon.
const FIRST_SAMPLES: Duration = Duration::from_secs(5);

/// Samples the numbers of runs for the chart of the list, until the pages are dropped. Pages that are made outside of a
/// runtime have no chart.
pub(crate) fn sample_stats(app: &App) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let app = Arc::downgrade(app);
    runtime.spawn(async move {
        let mut pause = FIRST_SAMPLES;
        // The state is not kept while the task sleeps.
        while let Some(app) = app.upgrade() {
            if let Err(problem) = app.service.sample().await {
                tracing::debug!(problem = problem.detail, "the runs cannot be counted");
            }
            let clock = app.service.client().world().clock();
            drop(app);
            let _ = clock.sleep_until(clock.now().plus(pause)).await;
            pause = Service::SAMPLE_EVERY;
        }
    });
}

/// A layer: before the first request is answered, the secret of the world is read. While the world does not respond, this
/// process uses a secret of its own.
pub(crate) async fn load_secret(State(app): State<App>, request: Request, next: Next) -> Response {
    let load = || async {
        let may_write = !app.config.is_read_only;
        app.secret.load(&**app.service.client().world(), may_write).await
    };
    if let Err(error) = app.secret_loaded.get_or_try_init(load).await {
        tracing::warn!(%error, "the secret of the dashboard's sessions cannot be read");
    }
    next.run(request).await
}
