//! Layers: who may see the pages, and the headers of every response.

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use outlast_api::{Caller, Problem, ProblemCode, Role, body_without_tokens};

use crate::app::App;
use crate::audit;
use crate::config::Admission;
use crate::login::{LoginSession, session_of, set_cookie};
use crate::pages::problem::problem_response;
use crate::site::Site;

/// What pages may load and do. Positions are attributes of SVG, so no inline style is needed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types outlast";

/// The headers that a proxy adds to the requests that it passes on, beside those that begin with `x-forwarded-`.
const FORWARDED: [&str; 3] = ["forwarded", "x-real-ip", "via"];

/// Refuses requests that may not see the pages, and puts a [`Caller`] into the extensions of the others.
pub(crate) async fn admit(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let mut session = None;
    let caller = match &app.config.admission {
        Admission::Local => {
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
            let allowed = &app.config.allowed_hosts;
            let checked = check_peer(peer).and_then(|()| check_not_forwarded(request.headers()));
            checked.and_then(|()| check_host(request.headers(), allowed)).map(|()| Caller::local())
        }
        Admission::Callers => caller_of_application(&app, &request),
        Admission::Keys(keys) => {
            let site = Site::of_stranger(&app, &request);
            if !app.config.allowed_hosts.is_empty()
                && let Err(problem) = check_host(request.headers(), &app.config.allowed_hosts)
            {
                return problem_response(&site, &problem);
            }
            let found = session_of(&app, request.headers(), &site.prefix);
            let caller = found.as_ref().and_then(|session| keys.0.caller_of_id(&session.key));
            let Some(caller) = caller else { return to_login(&site, &request) };
            session = found;
            Ok(caller)
        }
    };
    let known = caller.as_ref().ok().cloned();
    let admitted = caller.and_then(|caller| {
        check_role(&caller)?;
        check_change(&app, &caller, &request)?;
        Ok(caller)
    });
    match admitted {
        Ok(caller) => {
            let hides_tokens = !caller.role.includes(Role::Operate);
            request.extensions_mut().insert(caller);
            let response = match session {
                None => audit::run(&app, request, next).await,
                Some(session) => {
                    request.extensions_mut().insert(session.clone());
                    with_session(&app, session, request, next).await
                }
            };
            // Those who may not send to hooks do not see tokens.
            if hides_tokens { response.map(|body| Body::new(body_without_tokens(body))) } else { response }
        }
        Err(problem) => {
            let site = Site::of_stranger(&app, &request);
            let record = known.and_then(|caller| audit::refusal(&app, &caller, &request, &problem));
            if let Some(record) = record {
                // A failure is logged. The request is refused in any case.
                let _ = app.service.audit_unchanged(record).await;
            }
            problem_response(&site, &problem)
        }
    }
}

/// The caller that the application in front has inserted. The host is checked as soon as one is given.
fn caller_of_application(app: &App, request: &Request) -> Result<Caller, Problem> {
    if !app.config.allowed_hosts.is_empty() {
        check_host(request.headers(), &app.config.allowed_hosts)?;
    }
    request.extensions().get::<Caller>().cloned().ok_or_else(|| {
        Problem::new(ProblemCode::Unauthenticated, "the application has not let this request through")
    })
}

/// Answers a request of a session, and keeps the session's cookie fresh. Streams do not count as use.
async fn with_session(app: &App, session: LoginSession, request: Request, next: Next) -> Response {
    let (headers, is_stream) = (request.headers().clone(), request.uri().path().ends_with("/live"));
    let prefix = Site::of_stranger(app, &request).prefix;
    let mut response = audit::run(app, request, next).await;
    let fresh = session.refreshed(app.service.now().0).filter(|_| !is_stream);
    let has_cookie = response.headers().contains_key(header::SET_COOKIE);
    let cookie =
        fresh.filter(|_| !has_cookie).and_then(|fresh| set_cookie(app, &headers, &prefix, Some(&fresh)));
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// The answer to a request without a session: the login, which leads back to the page.
fn to_login(site: &Site, request: &Request) -> Response {
    if request.method() != Method::GET || request.uri().path().ends_with("/live") {
        let problem = Problem::new(ProblemCode::Unauthenticated, "log in, and try again");
        return problem_response(site, &problem);
    }
    let mut writer = outlast_api::QueryWriter::default();
    let query = if site.query.is_empty() { String::new() } else { format!("?{}", site.query) };
    writer.set("next", Some(format!("{}{query}", site.path)));
    Redirect::to(&site.href(&format!("/login?{}", writer.finish()))).into_response()
}

/// The peer must be this machine. If its address is not known, the request is refused: a router that is served in the
/// wrong way is closed, not open.
fn check_peer(peer: Option<IpAddr>) -> Result<(), Problem> {
    let detail = match peer.map(|peer| peer.to_canonical()) {
        Some(peer) if peer.is_loopback() => return Ok(()),
        Some(_) => "only callers on the same machine are answered here",
        None => {
            "the dashboard does not know the address of the caller; serve the router with \
             `into_make_service_with_connect_info::<SocketAddr>()`, or use `DashboardConfig::callers`"
        }
    };
    Err(Problem::new(ProblemCode::Forbidden, detail))
}

/// A proxy must not make the dashboard public by accident.
fn check_not_forwarded(headers: &HeaderMap) -> Result<(), Problem> {
    let is_added = |name: &str| FORWARDED.contains(&name) || name.starts_with("x-forwarded-");
    let Some(name) = headers.keys().map(HeaderName::as_str).find(|name| is_added(name)) else {
        return Ok(());
    };
    let detail = format!(
        "the request has the header `{name}`: a proxy has passed it on, but this dashboard admits only this machine; let \
         the application decide who may see it (`DashboardConfig::callers`)"
    );
    Err(Problem::new(ProblemCode::Forbidden, detail))
}

/// A request for this machine or an allowed host: a page of another site cannot reach the dashboard through a name that
/// it controls.
fn check_host(headers: &HeaderMap, allowed: &[String]) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_local = matches!(name, "localhost" | "127.0.0.1" | "::1");
    if is_local || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let detail = format!("the request was made for host `{host}`; use http://127.0.0.1 and the port");
    Err(Problem::new(ProblemCode::WrongHost, detail))
}

fn check_role(caller: &Caller) -> Result<(), Problem> {
    if caller.role.includes(Role::Read) {
        return Ok(());
    }
    let detail = format!("the role {} does not include reading", caller.role);
    Err(forbidden(Role::Read, detail))
}

/// A refusal that names the role that suffices.
pub(crate) fn forbidden(required: Role, detail: String) -> Problem {
    let mut problem = Problem::new(ProblemCode::Forbidden, detail);
    problem.required_role = Some(required);
    problem
}

/// Refuses forms that a page of another origin sends.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let is_foreign = value("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let origin = value("origin").map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    if is_foreign || origin.is_some_and(|origin| Some(origin) != value("host")) {
        let detail = "the form was not sent by a page of this dashboard";
        return Err(Problem::new(ProblemCode::CrossOrigin, detail));
    }
    Ok(())
}

/// A layer for the login, which has no caller yet: forms must come from a page of this origin.
pub(crate) async fn admit_login(State(app): State<App>, request: Request, next: Next) -> Response {
    match check_origin(request.headers()) {
        _ if request.method() == Method::GET => next.run(request).await,
        Ok(()) => next.run(request).await,
        Err(problem) => problem_response(&Site::of_stranger(&app, &request), &problem),
    }
}

/// A change must come from a page of this origin, and from a caller who may make changes.
fn check_change(app: &App, caller: &Caller, request: &Request) -> Result<(), Problem> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    check_origin(request.headers())?;
    if app.config.is_read_only {
        return Err(Problem::new(ProblemCode::ReadOnly, "this dashboard is read-only"));
    }
    if !caller.role.includes(Role::Operate) {
        let detail = format!("the role {} does not include changes", caller.role);
        return Err(forbidden(Role::Operate, detail));
    }
    Ok(())
}

/// Sets the headers that every response has.
pub(crate) async fn set_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let fields = response.headers_mut();
    let set = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in set {
        fields.insert(name, HeaderValue::from_static(value));
    }
    let cache = fields.entry(header::CACHE_CONTROL);
    cache.or_insert(HeaderValue::from_static("private, no-cache"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(&'static str, &'static str)]) -> Result<(), String> {
        let headers = fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers = headers.collect();
        let checked =
            check_not_forwarded(&headers).and_then(|()| check_host(&headers, &["ops.example".into()]));
        checked.map_err(|problem| problem.code.clone())
    }

    #[test]
    fn only_loopback_peers_are_local() {
        for peer in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(check_peer(Some(peer.parse().unwrap())).is_ok(), "{peer}");
        }
        for peer in [Some("10.0.0.1"), Some("::ffff:10.0.0.1"), None] {
            assert!(check_peer(peer.map(|peer| peer.parse().unwrap())).is_err(), "{peer:?}");
        }
    }

    #[test]
    fn only_loopback_hosts_without_a_proxy_are_local() {
        for host in ["127.0.0.1:4700", "localhost", "[::1]:4700", "Ops.example:80"] {
            assert_eq!(check(&[("host", host)]), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:4700", "", "192.168.0.7"] {
            assert_eq!(check(&[("host", host)]), Err("wrong_host".into()), "{host}");
        }
        for header in ["x-forwarded-for", "x-forwarded-anything", "forwarded", "via", "x-real-ip"] {
            let passed_on = check(&[("host", "127.0.0.1"), (header, "10.0.0.1")]);
            assert_eq!(passed_on, Err("forbidden".into()), "{header}");
        }
    }
}
