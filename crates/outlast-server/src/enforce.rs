//! The layer of each route: who may call it, and for how long it may work.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use outlast::core::Clock;
use outlast::{RunId, SystemClock, TraceContext};
use outlast_api::{Action, Caller, Problem, ProblemCode, Role, body_without_tokens};
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

use crate::access::origin::{check_host, check_origin};
use crate::access::{AccessMode, bearer, local, refuse_key_in_address};
use crate::audit::AuditedRequest;
use crate::extract::{By, PathOf};
use crate::reply::{ProblemReply, Reply};
use crate::routes::{RequiredRole, RouteInfo, TimeLimit};
use crate::state::{AppState, ServerState};

/// The time of an ordinary request.
const ORDINARY_TIME: Duration = Duration::from_secs(30);

/// The time of a request that waits for the end of a run: a minute, and the time to answer.
const WAIT_TIME: Duration = Duration::from_secs(70);

/// The time that an action has to complete after its caller has closed the connection.
const CALLER_GONE_TIME: Duration = Duration::from_secs(5);

/// The target of log lines about actions: who did what, and how it was answered.
const AUDIT: &str = "outlast_audit";

/// The run that an action concerned, as an extension of the response, if its route does not name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActedOn(pub(crate) RunId);

/// Answers a request of a route if its caller may make it.
pub(crate) async fn enforce(state: AppState, route: RouteInfo, request: Request, next: Next) -> Response {
    let began_at = SystemClock.now();
    let method = request.method().to_string();
    let span = request_span(&request, &route);
    let response = answer(&state, &route, request, next).instrument(span).await;
    let (status, time) = (response.status().as_u16(), SystemClock.now().since(began_at));
    state.metrics.request(&method, route.path, status, time);
    tracing::debug!(method, route = route.path, status, ?time, "a request was answered");
    response
}

async fn answer(state: &AppState, route: &RouteInfo, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let target = target_of(&mut parts, route).await;
    let mut hides_tokens = false;
    let mut action = None;
    match state.admit(&parts, route).await {
        Ok(Some(caller)) => {
            let stored = match state.audit_intent(&mut parts, route, &caller).await {
                Ok(intent) => intent,
                Err(problem) => return ProblemReply::from(problem).into_response(),
            };
            let actor = caller.actor.clone();
            action =
                route.action.map(|action| AdmittedAction { action, actor, target: target.clone(), stored });
            hides_tokens = !caller.role.includes(Role::Operate);
            parts.extensions.insert(By(caller));
        }
        Ok(None) => {}
        Err(Refusal { problem, caller }) => {
            state.metrics.refused(&problem.code);
            // Requests of unknown callers are counted and not logged: there may be any number of them.
            let is_known = caller.is_some();
            if let Some(caller) = caller {
                state.audit_refusal(&mut parts, route, &caller, &problem).await;
            }
            if let Some(action) = route.action.filter(|_| is_known && problem.is(ProblemCode::Forbidden)) {
                tracing::warn!(target: AUDIT, %action, route = route.path, on = target, why = problem.detail, "refused");
            }
            return ProblemReply::from(problem).into_response();
        }
    }
    let answer = next.run(Request::from_parts(parts, body));
    let time = match route.time {
        TimeLimit::Ordinary => ORDINARY_TIME,
        TimeLimit::Wait => WAIT_TIME,
        TimeLimit::Stream => return shown(answer.await, hides_tokens),
    };
    let answer = async move {
        let answered = tokio::time::timeout(time, answer).await;
        answered.map_err(|_| {
            let detail = "the request took too long; whether it took effect is not known";
            ProblemReply::new(ProblemCode::Unavailable, detail)
        })
    };
    let answered = match action {
        None => answer.await,
        Some(action) => action.perform(state.clone(), route.path, answer).await,
    };
    match answered {
        Ok(response) => shown(response, hides_tokens),
        Err(refused) => refused.into_response(),
    }
}

/// An action that its caller may do.
struct AdmittedAction {
    action: Action,
    actor: String,
    /// The run or schedule that the path names.
    target: Option<String>,
    /// The intention, if the action is audited.
    stored: Option<AuditedRequest>,
}

impl AdmittedAction {
    /// Does it, and stores what became of it, also if the caller closes the connection meanwhile: otherwise the audit would
    /// not have its outcome. What waits for a run, such as for a reply, then stops after [`CALLER_GONE_TIME`].
    async fn perform(
        self,
        state: AppState,
        route: &'static str,
        answer: impl Future<Output = Reply> + Send + 'static,
    ) -> Reply {
        // Dropped with the request.
        let (caller, caller_has_gone) = oneshot::channel::<()>();
        let performed = async move {
            let Self { action, actor, target, stored } = self;
            let response = tokio::select! {
                biased;
                answered = answer => answered?,
                () = some_time_after(caller_has_gone) => {
                    return Err(ProblemReply::new(ProblemCode::Unavailable, "the caller has gone"));
                }
            };
            if let Some(stored) = stored {
                state.service.audit_outcome(stored.answered_with(&response)).await;
            }
            let status = response.status().as_u16();
            let acted_on = response.extensions().get::<ActedOn>().map(|ActedOn(run)| run.to_string());
            let on = acted_on.or(target);
            tracing::info!(target: AUDIT, %action, actor, route, on, status, "an action was answered");
            Ok(response)
        };
        let answered = tokio::spawn(performed.in_current_span()).await;
        drop(caller);
        answered.unwrap_or_else(|error| {
            tracing::error!(%error, route, "an action has panicked");
            Err(ProblemReply::new(ProblemCode::Internal, "the action failed; the log of the server says why"))
        })
    }
}

/// Completes [`CALLER_GONE_TIME`] after the sender was dropped.
async fn some_time_after(caller_has_gone: oneshot::Receiver<()>) {
    let _ = caller_has_gone.await;
    let _ = tokio::time::timeout(CALLER_GONE_TIME, std::future::pending::<()>()).await;
}

/// The run or schedule that the path of an action names. The whole path is not for logs: it may contain a token.
async fn target_of(parts: &mut Parts, route: &RouteInfo) -> Option<String> {
    route.action?;
    let path = PathOf::from_request_parts(parts, &()).await.ok()?;
    path.text("id").ok().map(str::to_owned)
}

/// A response as its caller may see it: without generated tokens for those who may not send to hooks.
fn shown(response: Response, hides_tokens: bool) -> Response {
    if hides_tokens { response.map(|body| Body::new(body_without_tokens(body))) } else { response }
}

/// Why a request is not answered, and who made it, if that is known.
struct Refusal {
    problem: Problem,
    caller: Option<Caller>,
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { problem, caller: None }
    }
}

impl ServerState {
    /// The caller of a request, if it may be made. Public routes need none.
    async fn admit(&self, request: &Parts, route: &RouteInfo) -> Result<Option<Caller>, Refusal> {
        if route.is_webhook() {
            // Its address belongs to the sender.
            return Ok(None);
        }
        refuse_key_in_address(request)?;
        if route.required == RequiredRole::Public {
            return Ok(None);
        }
        let caller = self.identify(request).await?;
        if !matches!(self.config.access, AccessMode::Local) {
            self.rates.check_request(&caller.scope, SystemClock.now())?;
        }
        if let RequiredRole::Role(required) = route.required
            && !caller.role.includes(required)
        {
            let detail = format!("this needs the role {required}; {} has {}", caller.actor, caller.role);
            let forbidden = Problem::new(ProblemCode::Forbidden, detail);
            let problem = forbidden.with(|problem| problem.required_role = Some(required));
            return Err(Refusal { problem, caller: Some(caller) });
        }
        if self.config.is_read_only && route.action.is_some() {
            return Err(Problem::new(ProblemCode::ReadOnly, "this server only reads; use another one").into());
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
                if bearer(request).is_some() {
                    self.rates.count_failure(peer(request), SystemClock.now())?;
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

/// The span of a request, inside of the trace that its headers name. It has the template of the path, not the path: ids
/// and tokens are not for logs.
fn request_span(request: &Request, route: &RouteInfo) -> Span {
    let method = request.method().as_str();
    let span = tracing::info_span!("outlast.http", method, route = route.path, otel.kind = "server");
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    if let Some(parent) = header("traceparent") {
        let state = header("tracestate").map(str::to_owned);
        outlast::continue_trace(&span, &TraceContext::new(parent, state));
    }
    span
}

/// The address of the other side of the connection, if it is known.
fn peer(request: &Parts) -> Option<IpAddr> {
    request.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use outlast::Client;
    use outlast_api::{AuditFilter, AuditOutcome};
    use std::sync::Arc;
    use tokio::sync::Notify;
    use tower::ServiceExt;

    use super::*;
    use crate::config::Config;
    use crate::routes::route_table;

    async fn never(body: bytes::Bytes) -> &'static str {
        drop(body);
        std::future::pending().await
    }

    /// A router with one public route whose handler reads the body to its end, and then never answers.
    async fn slow_app(time: TimeLimit) -> Router {
        let client = Client::new(outlast::open("memory:").await.unwrap());
        let state = ServerState::new(client, Config::local());
        let mut route = route_table().into_iter().find(|route| route.path == "/livez").unwrap();
        route.time = time;
        let layer = from_fn(move |request, next| enforce(state.clone(), route.clone(), request, next));
        Router::new().route("/slow", post(never).layer(layer))
    }

    /// Otherwise a caller could hide what it did, and fill the audit with intentions.
    #[tokio::test]
    async fn an_action_is_completed_and_recorded_when_its_caller_has_gone() {
        let state = ServerState::new(Client::new(outlast::open("memory:").await.unwrap()), Config::local());
        let mut routes = route_table().into_iter();
        let route = routes.find(|route| route.action == Some(Action::Cancel)).unwrap();
        let (begun, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (begun, answered) = (begun.clone(), answered.clone());
            move || async move {
                begun.notify_one();
                answered.notified().await;
                "done"
            }
        };
        let with = state.clone();
        let layer = from_fn(move |request, next| enforce(with.clone(), route.clone(), request, next));
        let app = Router::new().route("/cancel", post(handler).layer(layer));
        let peer = ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 50_000)));
        let request = Request::post("/cancel").header("host", "localhost").extension(peer);
        let call = tokio::spawn(app.oneshot(request.body(Body::empty()).unwrap()));
        begun.notified().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        answered.notify_one();
        let record = async || state.service.audit(&AuditFilter::default()).await.unwrap().items.remove(0);
        while record().await.outcome == AuditOutcome::Intended {
            tokio::task::yield_now().await;
        }
        assert_eq!(record().await.outcome, AuditOutcome::Done);
    }

    /// In virtual time. Nobody can keep many requests waiting that are not connected any more.
    #[tokio::test(start_paused = true)]
    async fn an_action_that_waits_ends_soon_after_its_caller_has_gone() {
        let began = tokio::time::Instant::now();
        let (caller, caller_has_gone) = oneshot::channel::<()>();
        let ended = tokio::spawn(some_time_after(caller_has_gone));
        drop(caller);
        ended.await.unwrap();
        assert_eq!(began.elapsed().as_secs(), CALLER_GONE_TIME.as_secs());
    }

    /// In virtual time, which advances while everything waits.
    #[tokio::test(start_paused = true)]
    async fn a_request_that_takes_too_long_is_refused() {
        for (time, limit) in [(TimeLimit::Ordinary, ORDINARY_TIME), (TimeLimit::Wait, WAIT_TIME)] {
            let app = slow_app(time).await;
            let bodies = [
                Body::empty(),
                Body::from_stream(futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>()),
            ];
            for body in bodies {
                let began = tokio::time::Instant::now();
                let request = Request::builder().method("POST").uri("/slow").body(body).unwrap();
                let response = app.clone().oneshot(request).await.unwrap();
                assert_eq!(
                    response.extensions().get::<ProblemReply>().map(|reply| reply.0.status),
                    Some(503)
                );
                assert_eq!(began.elapsed().as_secs(), limit.as_secs(), "a slow body counts as well");
            }
        }
    }
}
