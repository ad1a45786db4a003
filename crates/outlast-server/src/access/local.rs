//! The local mode: only this machine, without keys.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use outlast_api::{Caller, Problem, ProblemCode};

/// Headers that proxies add.
const PROXY_HEADERS: [&str; 6] =
    ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via"];

/// The caller of a request that comes from this machine, and not through a proxy: behind one, everybody would be local.
pub(crate) fn caller(request: &Parts) -> Result<Caller, Problem> {
    let forbidden = |detail: &str| Err(Problem::new(ProblemCode::Forbidden, detail));
    let Some(ConnectInfo(peer)) = request.extensions.get::<ConnectInfo<SocketAddr>>() else {
        return forbidden(
            "the server does not know the address of the caller, so it cannot tell whether it is local; serve the \
             router with `into_make_service_with_connect_info::<SocketAddr>()`, or use access keys",
        );
    };
    if !is_loopback(peer.ip()) {
        return forbidden(
            "without access keys, only callers on the same machine are answered; use access keys",
        );
    }
    if PROXY_HEADERS.iter().any(|name| request.headers.contains_key(*name)) || is_forwarded(request) {
        return forbidden(
            "the request came through a proxy, so it may come from anywhere; use access keys behind a proxy",
        );
    }
    Ok(Caller::local())
}

fn is_forwarded(request: &Parts) -> bool {
    request.headers.keys().any(|name| name.as_str().starts_with("x-forwarded-"))
}

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|mapped| mapped.is_loopback())
        }
    }
}
