//! Settings of the router.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::access::keys::AccessKeys;
use crate::access::{Access, AccessMode};

/// Settings of the [router](crate::router). There is no default: say who may call it.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) access: AccessMode,
    pub(crate) is_read_only: bool,
    pub(crate) allowed_hosts: Vec<String>,
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
        Self { access, is_read_only: false, allowed_hosts: Vec::new(), shutdown: CancellationToken::new() }
    }

    /// Refuses all requests that change something.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Also answers requests that name this host, without a port: `outlast.example.com`.
    #[must_use]
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allowed_hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// When this token is cancelled, the server is no longer ready, streams end with `bye`, and requests that wait for
    /// the end of a run are answered.
    #[must_use]
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }
}
