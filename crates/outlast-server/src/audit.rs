//! The audit of requests: who made a change, or was refused one.
//!
//! Starts and sends are not stored when they are allowed: the histories of their runs name the actor. A server that only
//! reads writes nothing.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::{ConnectInfo, RawPathParams};
use axum::http::request::Parts;
use axum::response::Response;
use outlast::RunId;
use outlast_api::{Action, AuditJson, AuditOutcome, Caller, NewAudit, Problem, ProblemCode};

use crate::reply::ProblemReply;
use crate::request_id::RequestId;
use crate::routes::RouteInfo;
use crate::state::ServerState;

/// The reason that the body of a request gives; whoever reads the body sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivenReason(Arc<OnceLock<String>>);

impl GivenReason {
    /// Remembers the reason of a JSON body, if it has one.
    pub(crate) fn read(&self, body: &[u8]) {
        #[derive(serde::Deserialize)]
        struct WithReason {
            reason: Option<String>,
        }
        if let Ok(WithReason { reason: Some(reason) }) = serde_json::from_slice(body) {
            let _ = self.0.set(reason);
        }
    }
}

/// A request whose intention is stored, until its outcome is.
pub(crate) struct AuditedRequest {
    record: AuditJson,
    reason: GivenReason,
}

impl AuditedRequest {
    /// The record with what became of the request.
    pub(crate) fn answered_with(self, response: &Response) -> AuditJson {
        let Self { mut record, reason } = self;
        let problem = response.extensions().get::<ProblemReply>().map(|ProblemReply(problem)| problem);
        let status = problem.map_or(response.status().as_u16(), |problem| problem.status);
        record.status = Some(status);
        record.code = problem.map(|problem| problem.code.clone());
        record.reason = reason.0.get().cloned();
        record.outcome = match status {
            200..=399 if response.extensions().get::<NothingChanged>().is_some() => AuditOutcome::Unchanged,
            200..=399 => AuditOutcome::Done,
            403 => AuditOutcome::Refused,
            // Whether it took effect is not known.
            500..=599 => AuditOutcome::Intended,
            _ => AuditOutcome::Failed,
        };
        record
    }
}

/// Says, as an extension of a response, that the request has changed nothing: it was so already, or it only asked what
/// would be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NothingChanged;

impl ServerState {
    /// Stores that a caller is about to do something. `None` for requests that are not audited.
    pub(crate) async fn audit_intent(
        &self,
        parts: &mut Parts,
        route: &RouteInfo,
        caller: &Caller,
    ) -> Result<Option<AuditedRequest>, Problem> {
        let is_in_history =
            |action: &Action| matches!(action, Action::Start | Action::StartBatch | Action::Send);
        if route.action.is_none_or(|action| is_in_history(&action)) {
            return Ok(None);
        }
        let record = self.audit_record(parts, route, caller).await;
        let record = self.service.audit_intent(record).await?;
        let reason = GivenReason::default();
        parts.extensions.insert(reason.clone());
        Ok(Some(AuditedRequest { record, reason }))
    }

    /// Stores that a known caller was refused because of its role.
    pub(crate) async fn audit_refusal(
        &self,
        parts: &mut Parts,
        route: &RouteInfo,
        caller: &Caller,
        problem: &Problem,
    ) {
        if self.config.is_read_only || parts.method.is_safe() || !problem.is(ProblemCode::Forbidden) {
            return;
        }
        let mut record = self.audit_record(parts, route, caller).await;
        (record.status, record.code) = (Some(problem.status), Some(problem.code.clone()));
        record.outcome = AuditOutcome::Refused;
        // A failure is logged. The request is refused in any case.
        let _ = self.service.audit_unchanged(record).await;
    }

    /// The record of a request. It has the template of the path and the names in it, except for tokens.
    async fn audit_record(&self, parts: &mut Parts, route: &RouteInfo, caller: &Caller) -> NewAudit {
        let action = route.action.map_or_else(|| route.summary.to_owned(), |action| action.to_string());
        let mut record = self.service.new_audit(caller, &action, route.path);
        let params =
            <RawPathParams as axum::extract::FromRequestParts<()>>::from_request_parts(parts, &()).await;
        for (_, value) in params.iter().flatten().filter(|(name, _)| *name != "token") {
            match value.parse::<RunId>() {
                Ok(run) if record.run.is_none() => record.run = Some(run),
                _ => record.target = Some(value.to_owned()),
            }
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        record.address = peer.map(|ConnectInfo(peer)| peer.ip().to_string());
        record.request = parts.extensions.get::<RequestId>().map(|id| id.as_str().to_owned());
        record
    }
}
