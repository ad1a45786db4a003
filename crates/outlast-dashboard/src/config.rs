//! The configuration of the dashboard.

use std::sync::Arc;

use outlast_api::Role;

use crate::login::{LoginKeys, SharedKeys};

/// Who may see the dashboard, and what it says about itself.
#[derive(Clone, Debug)]
#[must_use]
pub struct DashboardConfig {
    pub(crate) admission: Admission,
    pub(crate) environment: Option<String>,
    pub(crate) is_read_only: bool,
    pub(crate) payload_role: Role,
    pub(crate) is_https: bool,
    pub(crate) secret: Option<[u8; 32]>,
    pub(crate) allowed_hosts: Vec<String>,
}

/// Who may see the dashboard.
#[derive(Clone, Debug)]
pub(crate) enum Admission {
    /// Requests for a loopback host that no proxy has passed on. They may do everything.
    Local,
    /// Requests with a [`Caller`](outlast_api::Caller) in their extensions.
    Callers,
    /// People who have logged in with an access key.
    Keys(SharedKeys),
}

impl DashboardConfig {
    /// Only this machine may see the dashboard, and may do everything. Requests from another address are refused, and so
    /// are those for another host than a loopback name, and those that a proxy has passed on. Serve the router with
    /// `into_make_service_with_connect_info::<SocketAddr>()`, so that the address of the peer is known.
    pub fn local() -> Self {
        Self::new(Admission::Local)
    }

    /// The application in front decides: a layer inserts a [`Caller`](outlast_api::Caller) into the extensions of each
    /// request. A request without one is refused. The host is checked as soon as [one is given](Self::allow_host).
    pub fn callers() -> Self {
        Self::new(Admission::Callers)
    }

    /// People log in with an access key, and get a cookie for 12 hours. The role of the key decides what they may do. The
    /// application in front is responsible for checking the host.
    pub fn keys(keys: impl LoginKeys) -> Self {
        Self::new(Admission::Keys(SharedKeys(Arc::new(keys))))
    }

    fn new(admission: Admission) -> Self {
        Self {
            admission,
            environment: None,
            is_read_only: false,
            payload_role: Role::Read,
            is_https: false,
            secret: None,
            allowed_hosts: Vec::new(),
        }
    }

    /// Also answers requests that name this host, without a port: `outlast.example.com`. With
    /// [access keys](Self::keys), the host is checked as soon as one is given.
    pub fn allow_host(mut self, host: impl Into<String>) -> Self {
        self.allowed_hosts.push(host.into().to_ascii_lowercase());
        self
    }

    /// Browsers reach the dashboard over HTTPS: its cookies are only sent over HTTPS then.
    pub fn https(mut self) -> Self {
        self.is_https = true;
        self
    }

    /// The secret with which cookies and forms are signed. Without one, it is made once and stored in the world, so that
    /// sessions survive a restart, and all servers of the world know them.
    pub fn secret(mut self, secret: [u8; 32]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The name of the environment, such as `production`; every page shows it. Names that begin with `prod` are shown in
    /// red and those that begin with `stag` in amber, so that nobody takes one for the other.
    pub fn environment(mut self, name: impl Into<String>) -> Self {
        self.environment = Some(name.into());
        self
    }

    /// Only people with this role, or a higher one, see payloads: inputs, outputs, states, streams and what is sent to hooks.
    /// Others see their sizes, and cannot export histories. Unless set, whoever may read sees payloads.
    pub fn payload_role(mut self, role: Role) -> Self {
        self.payload_role = role;
        self
    }

    /// Nothing can be changed: pages have no controls, and actions are refused.
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }
}
