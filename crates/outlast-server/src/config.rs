//! Settings of the router.

use std::collections::BTreeSet;
use std::sync::Arc;

use outlast::webhook::WebhookSecrets;
use outlast_api::Role;
use tokio_util::sync::CancellationToken;

use crate::access::keys::AccessKeys;
use crate::access::{Access, AccessMode};
use crate::routes::RouteGroup;

/// Settings of the [router](crate::router). There is no default: say who may call it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) access: AccessMode,
    pub(crate) is_read_only: bool,
    pub(crate) payload_role: Role,
    pub(crate) allowed_hosts: Vec<String>,
    /// The routes that do not exist.
    pub(crate) off: BTreeSet<RouteGroup>,
    pub(crate) webhook_secrets: WebhookSecrets,
    pub(crate) shutdown: CancellationToken,
}

impl Config {
    /// Everyone on this machine may do everything, and nobody else anything.
    ///
    /// A request must come from a loopback address, name a loopback host, and not come through a proxy or from a page of
    /// another origin.
    pub fn local() -> Self {
        Self::new(AccessMode::Local)
    }

    /// Only requests with one of these access keys are answered. The host that requests name is not checked, unless
    /// [hosts](Self::allow_host) are given.
    pub fn keys(keys: AccessKeys) -> Self {
        Self::new(AccessMode::Keys(Arc::new(keys)))
    }

    /// The application decides who may do what. Requests that change something are refused if they come from a page of
    /// another origin.
    pub fn access(access: impl Access) -> Self {
        Self::new(AccessMode::Custom(Arc::new(access)))
    }

    fn new(access: AccessMode) -> Self {
        Self {
            access,
            is_read_only: false,
            payload_role: Role::Read,
            allowed_hosts: Vec::new(),
            off: BTreeSet::new(),
            webhook_secrets: WebhookSecrets::new(),
            shutdown: CancellationToken::new(),
        }
    }

    /// Refuses all requests that change something.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Only callers with this role, or a higher one, see payloads: inputs, outputs, states, streams and what is sent to hooks.
    /// Others get their sizes, and cannot export histories. Unless set, whoever may read sees payloads.
    #[must_use]
    pub fn payload_role(mut self, role: Role) -> Self {
        self.payload_role = role;
        self
    }

    /// Also answers requests that name this host, without a port: `outlast.example.com`.
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allowed_hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Gives the server a secret with which it checks the signatures of requests to webhooks, by the name that
    /// [`verify`](outlast::webhook::WebhookOperation::verify) uses. A name may have several secrets, while a sender replaces
    /// one. Secrets are never recorded or shown.
    #[must_use]
    pub fn webhook_secret(mut self, name: impl Into<String>, secret: impl Into<String>) -> Self {
        self.webhook_secrets = self.webhook_secrets.with(name, secret);
        self
    }

    /// Does not accept requests to webhooks: the routes below `/webhooks` do not exist.
    #[must_use]
    pub fn without_webhooks(mut self) -> Self {
        self.off.insert(RouteGroup::Webhooks);
        self
    }

    /// Does not answer requests of programs: the routes below `/api` and the description of the API do not exist. For a server
    /// that has only webhooks, probes or metrics, or whose people use only the dashboard.
    #[must_use]
    pub fn without_api(mut self) -> Self {
        self.off.insert(RouteGroup::Api);
        self
    }

    /// Does not serve `/metrics`.
    #[must_use]
    pub fn without_metrics(mut self) -> Self {
        self.off.insert(RouteGroup::Metrics);
        self
    }

    /// When this token is cancelled, the server is no longer ready, streams end with `bye`, and requests that wait for
    /// the end of a run, or for the response of a workflow to a webhook, are answered.
    #[must_use]
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }
}
