//! One address for the API and the dashboard.

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use outlast::Client;
use outlast_api::Role;
use outlast_dashboard::{DashboardConfig, LoginKeys, Service};
use outlast_server::{AccessError, AccessKeys, Caller, Config, TrustedProxy, router};
use tower::ServiceExt;

/// The paths of the API beside those that begin with `/api/`. All others are pages of the dashboard.
const API_PATHS: [&str; 5] = ["/api", "/livez", "/readyz", "/metrics", "/openapi.json"];

/// What a server says about itself on its pages.
#[derive(Clone, Debug)]
pub(crate) struct PageOptions {
    pub(crate) environment: Option<String>,
    pub(crate) is_read_only: bool,
    pub(crate) payload_role: Role,
    pub(crate) is_https: bool,
    pub(crate) allowed_hosts: Vec<String>,
}

impl Default for PageOptions {
    fn default() -> Self {
        Self {
            environment: None,
            is_read_only: false,
            payload_role: Role::Read,
            is_https: false,
            allowed_hosts: Vec::new(),
        }
    }
}

/// How callers are known.
#[derive(Clone, Debug)]
pub(crate) enum Callers {
    /// They are on this machine.
    Local,
    /// They have access keys.
    Keys(AccessKeys),
    /// A proxy names them.
    Proxy(TrustedProxy),
}

impl Callers {
    /// The configuration of the API.
    pub(crate) fn api_config(&self) -> Config {
        match self {
            Self::Local => Config::local(),
            Self::Keys(keys) => Config::keys(keys.clone()),
            Self::Proxy(proxy) => Config::access(proxy.clone()),
        }
    }
}

/// The API and the pages of a world, as one application.
pub(crate) fn site(client: Client, config: Config, callers: Callers, options: PageOptions) -> Router {
    let pages = pages(Service::new(client.clone()), callers, options);
    beside(router(client, config), pages)
}

/// An application that answers paths of the API with the API, and all others with the pages.
fn beside(api: Router, pages: Router) -> Router {
    Router::new().fallback(move |request: Request| {
        let path = request.uri().path();
        let is_api = API_PATHS.contains(&path) || path.starts_with("/api/") || path.starts_with("/webhooks/");
        let app = if is_api { api.clone() } else { pages.clone() };
        async move { app.oneshot(request).await.unwrap_or_else(|never| match never {}) }
    })
}

/// The pages for these callers.
fn pages(service: Service, callers: Callers, options: PageOptions) -> Router {
    let mut config = match &callers {
        Callers::Local => DashboardConfig::local(),
        Callers::Keys(keys) => DashboardConfig::keys(KeysOfPages(keys.clone())),
        Callers::Proxy(_) => DashboardConfig::callers(),
    };
    config = config.payload_role(options.payload_role);
    for host in options.allowed_hosts {
        config = config.allow_host(host);
    }
    if let Some(name) = options.environment {
        config = config.environment(name);
    }
    if options.is_read_only {
        config = config.read_only();
    }
    if options.is_https {
        config = config.https();
    }
    let pages = outlast_dashboard::router(service, config);
    match callers {
        Callers::Proxy(proxy) => {
            pages.layer(from_fn(move |request, next| name(proxy.clone(), request, next)))
        }
        Callers::Local | Callers::Keys(_) => pages,
    }
}

/// Adds the caller that the proxy names to a request for a page.
async fn name(proxy: TrustedProxy, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match proxy.caller_of(&parts) {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(AccessError::Unauthenticated) => {
            (StatusCode::UNAUTHORIZED, "the proxy has not named the person; check its header").into_response()
        }
        Err(_) => {
            (StatusCode::FORBIDDEN, "only the trusted proxy is answered; open its address").into_response()
        }
    }
}

/// The access keys of the API, with which people log in.
#[derive(Debug)]
struct KeysOfPages(AccessKeys);

impl LoginKeys for KeysOfPages {
    fn caller_of_key(&self, key: &str) -> Option<Caller> {
        self.0.caller(key)
    }

    fn caller_of_id(&self, id: &str) -> Option<Caller> {
        self.0.caller_of_id(id)
    }
}
