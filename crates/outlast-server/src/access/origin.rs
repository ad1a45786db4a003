//! The host that a request names, and the page that it comes from.
//!
//! A page of any site can send requests to this machine. Its browser says where the page comes from (`Origin`,
//! `Sec-Fetch-Site`), which prevents changes. It may also have resolved a name of its own to this machine (DNS
//! rebinding), and would then read responses; the header `Host` shows that name.

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;
use outlast_api::{Problem, ProblemCode};

use super::local::is_loopback;

/// The host that a request names, without its port, in lower case.
pub(crate) fn host_name(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

/// Refuses a request that names a host which is neither loopback nor allowed.
pub(crate) fn check_host(request: &Parts, allowed: &[String]) -> Result<(), Problem> {
    let host = host_of(request).unwrap_or_default();
    let name = host_name(host);
    let is_local = name == "localhost" || name.parse().is_ok_and(is_loopback);
    if is_local || allowed.contains(&name) {
        return Ok(());
    }
    let detail = format!(
        "the request names the host `{host}`, which this server does not serve; allow it in its settings"
    );
    Err(Problem::new(ProblemCode::WrongHost, detail))
}

/// Refuses a request from a page of another origin.
pub(crate) fn check_origin(request: &Parts) -> Result<(), Problem> {
    let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap_or("null"));
    let is_unsafe = !request.method.is_safe();
    let site = header("sec-fetch-site").unwrap_or("none");
    if is_unsafe && matches!(site, "cross-site" | "same-site") {
        return Err(cross_origin(site));
    }
    let Some(origin) = header(ORIGIN.as_str()) else { return Ok(()) };
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    if authority.is_some_and(|authority| host_of(request) == Some(authority)) {
        return Ok(());
    }
    Err(cross_origin(origin))
}

fn cross_origin(origin: &str) -> Problem {
    let detail = format!(
        "the request comes from a page of another origin (`{origin}`); open the server's own address"
    );
    Problem::new(ProblemCode::CrossOrigin, detail)
}

/// The host with its port: the header, or the authority of HTTP/2.
fn host_of(request: &Parts) -> Option<&str> {
    let header = request.headers.get(HOST).and_then(|host| host.to_str().ok());
    header.or_else(|| request.uri.authority().map(|authority| authority.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_host_has_no_port() {
        for (host, name) in [
            ("localhost:4700", "localhost"),
            ("LOCALHOST", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[::1]", "::1"),
            ("evil.example.", "evil.example"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), name, "{host}");
        }
    }
}
