//! The layer of each route: who may call it, and for how long it may work.

use std::time::Duration;

use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use outlast::SystemClock;
use outlast::core::Clock;
use outlast_api::{Caller, Problem, ProblemCode};

use crate::access::origin::{check_host, check_origin};
use crate::access::{AccessMode, bearer, local, refuse_key_in_address};
use crate::extract::By;
use crate::reply::ProblemReply;
use crate::routes::{RequiredRole, RouteInfo, TimeLimit};
use crate::state::{AppState, ServerState};

/// The time of an ordinary request.
const ORDINARY_TIME: Duration = Duration::from_secs(30);

/// The time of a request that waits for the end of a run: a minute, and the time to answer.
const WAIT_TIME: Duration = Duration::from_secs(70);

/// Answers a request of a route if its caller may make it.
pub(crate) async fn enforce(state: AppState, route: RouteInfo, request: Request, next: Next) -> Response {
    let began_at = SystemClock.now();
    let method = request.method().to_string();
    let response = answer(&state, &route, request, next).await;
    let (status, time) = (response.status().as_u16(), SystemClock.now().since(began_at));
    state.metrics.request(&method, route.path, status, time);
    tracing::debug!(method, route = route.path, status, ?time, "a request was answered");
    response
}

async fn answer(state: &AppState, route: &RouteInfo, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match state.admit(&parts, route).await {
        Ok(Some(caller)) => {
            parts.extensions.insert(By(caller));
        }
        Ok(None) => {}
        Err(problem) => {
            state.metrics.refused(&problem.code);
            return ProblemReply::from(problem).into_response();
        }
    }
    let answer = next.run(Request::from_parts(parts, body));
    let time = match route.time {
        TimeLimit::Ordinary => ORDINARY_TIME,
        TimeLimit::Wait => WAIT_TIME,
        TimeLimit::Stream => return answer.await,
    };
    match tokio::time::timeout(time, answer).await {
        Ok(response) => response,
        Err(_) => {
            let detail = "the request took too long; whether it took effect is not known";
            ProblemReply::new(ProblemCode::Unavailable, detail).into_response()
        }
    }
}

impl ServerState {
    /// The caller of a request, if it may be made. Public routes need none.
    async fn admit(&self, request: &Parts, route: &RouteInfo) -> Result<Option<Caller>, Problem> {
        refuse_key_in_address(request)?;
        if route.required == RequiredRole::Public {
            return Ok(None);
        }
        let caller = self.identify(request).await?;
        if let RequiredRole::Role(required) = route.required
            && !caller.role.includes(required)
        {
            let detail = format!("this needs the role {required}; {} has {}", caller.actor, caller.role);
            let forbidden = Problem::new(ProblemCode::Forbidden, detail);
            return Err(forbidden.with(|problem| problem.required_role = Some(required)));
        }
        if self.config.is_read_only && !request.method.is_safe() {
            return Err(Problem::new(ProblemCode::ReadOnly, "this server only reads; use another one"));
        }
        Ok(Some(caller))
    }

    async fn identify(&self, request: &Parts) -> Result<Caller, Problem> {
        match &self.config.access {
            AccessMode::Local => {
                let caller = local::caller(request)?;
                check_host(request, &self.config.allowed_hosts)?;
                check_origin(request)?;
                Ok(caller)
            }
            AccessMode::Keys(keys) => {
                // A page of another site cannot have a key, so its host and origin do not matter.
                if let Some(caller) = bearer(request).and_then(|key| keys.caller(key)) {
                    return Ok(caller);
                }
                if !self.config.allowed_hosts.is_empty() {
                    check_host(request, &self.config.allowed_hosts)?;
                }
                let detail = match bearer(request) {
                    Some(_) => "the access key is not valid, was revoked or has expired",
                    None => "send an access key in the header `Authorization: Bearer olk_…`",
                };
                Err(Problem::new(ProblemCode::Unauthenticated, detail))
            }
            AccessMode::Custom(access) => {
                if !self.config.allowed_hosts.is_empty() {
                    check_host(request, &self.config.allowed_hosts)?;
                }
                if !request.method.is_safe() {
                    check_origin(request)?;
                }
                Ok(access.caller(request).await?)
            }
        }
    }
}
