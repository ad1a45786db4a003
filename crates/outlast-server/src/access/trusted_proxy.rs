//! Identity from a proxy: it authenticates people, and names them in a header.

use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use axum::extract::ConnectInfo;
use axum::http::HeaderName;
use axum::http::request::Parts;
use outlast::Error;
use outlast_api::{Caller, Role};

use super::{Access, AccessError};

/// The longest name of a person.
const NAME_BYTES_MAX: usize = 256;

/// Identity from a header that a proxy sets, such as oauth2-proxy or an ingress with single sign-on.
///
/// Anybody who reaches the server could set the header too, so it counts only in requests whose connection comes from one of
/// the given addresses; others are refused. The proxy must remove the header from the requests of its clients.
///
/// ```
/// use outlast_api::Role;
/// use outlast_server::{Config, TrustedProxy};
///
/// # fn main() -> Result<(), outlast::Error> {
/// let proxy = TrustedProxy::new("X-Forwarded-Email", ["10.0.0.7".parse().unwrap()])?.role(Role::Operate);
/// let config = Config::access(proxy);
/// # drop(config); Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TrustedProxy {
    header: HeaderName,
    proxies: Vec<IpAddr>,
    role: Role,
}

impl TrustedProxy {
    /// The header with the name of the person, and the addresses from which it is believed. People may read.
    ///
    /// # Errors
    ///
    /// If the header has no valid name, or there is no address.
    pub fn new(header: &str, proxies: impl IntoIterator<Item = IpAddr>) -> Result<Self, Error> {
        let invalid = |message: String| Error::of_kind(outlast::ErrorKind::Invalid, message);
        let name = header.parse().map_err(|_| invalid(format!("`{header}` is not the name of a header")))?;
        let proxies: Vec<IpAddr> = proxies.into_iter().map(|address| address.to_canonical()).collect();
        if proxies.is_empty() {
            return Err(invalid(format!("name the address of the proxy that sets the header `{header}`")));
        }
        Ok(Self { header: name, proxies, role: Role::Read })
    }

    /// Sets what the people that the proxy names may do.
    #[must_use]
    pub fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    /// The person that a request names.
    ///
    /// # Errors
    ///
    /// If the request does not come from the proxy, or names nobody.
    pub fn caller_of(&self, request: &Parts) -> Result<Caller, AccessError> {
        let peer = request.extensions.get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip().to_canonical());
        if !peer.is_some_and(|peer| self.proxies.contains(&peer)) {
            return Err(AccessError::Forbidden);
        }
        let mut values = request.headers.get_all(&self.header).iter();
        // Two values: the proxy has added its own to that of the client.
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err(AccessError::Unauthenticated);
        };
        let name = value.to_str().unwrap_or_default().trim();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(AccessError::Unauthenticated);
        }
        Ok(Caller { actor: name.to_owned(), scope: format!("proxy:{name}"), role: self.role })
    }
}

#[async_trait]
impl Access for TrustedProxy {
    async fn caller(&self, request: &Parts) -> Result<Caller, AccessError> {
        self.caller_of(request)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn proxy() -> TrustedProxy {
        TrustedProxy::new("X-User", ["10.0.0.7".parse().unwrap()]).unwrap().role(Role::Operate)
    }

    fn caller(peer: Option<&str>, users: &[&str]) -> Result<Caller, AccessError> {
        let mut request = Request::get("/runs");
        for user in users {
            request = request.header("x-user", *user);
        }
        if let Some(peer) = peer {
            let peer: SocketAddr = format!("{peer}:4000").parse().unwrap();
            request = request.extension(ConnectInfo(peer));
        }
        proxy().caller_of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn only_the_proxy_names_people() {
        let ada = caller(Some("10.0.0.7"), &["ada@example.com"]).unwrap();
        assert_eq!((ada.actor.as_str(), ada.role), ("ada@example.com", Role::Operate));
        assert_eq!(caller(Some("[::ffff:10.0.0.7]"), &["ada"]).unwrap().actor, "ada");
        for peer in [Some("10.0.0.8"), Some("127.0.0.1"), None] {
            assert_eq!(caller(peer, &["ada"]).unwrap_err(), AccessError::Forbidden, "{peer:?}");
        }
    }

    #[test]
    fn a_request_without_one_name_is_refused() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for users in [&[][..], &[""], &[" "], &["ada", "eve"], &[&long]] {
            assert_eq!(caller(Some("10.0.0.7"), users).unwrap_err(), AccessError::Unauthenticated);
        }
    }

    #[test]
    fn a_proxy_needs_a_header_and_an_address() {
        assert!(TrustedProxy::new("not a header", ["10.0.0.7".parse().unwrap()]).is_err());
        let refused = TrustedProxy::new("X-User", []).unwrap_err();
        assert!(refused.to_string().contains("address of the proxy"), "{refused}");
    }
}
