//! The audit of forms: who made a change on a page, or was refused one, and who logged in.
//!
//! Starts and sends are not stored when they are allowed: the histories of their runs name the actor. A dashboard that is
//! read-only writes nothing.

use std::net::SocketAddr;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::Method;
use axum::http::header::LOCATION;
use axum::middleware::Next;
use axum::response::Response;
use outlast_api::{
    Action, AuditJson, AuditOutcome, Caller, DidWhat, NewAudit, Problem, ProblemCode, QueryReader,
};
use outlast_core::RunId;
use outlast_core::limits::PAYLOAD_BYTES_MAX;

use crate::actions::{CONTROLS, SCHEDULE_CONTROLS, word_of};
use crate::app::App;
use crate::pages::problem::problem_response;
use crate::site::Site;

/// The largest form: a payload in which every byte is encoded, and what surrounds it.
const FORM_BYTES_MAX: usize = 3 * PAYLOAD_BYTES_MAX + 64 * 1024;

/// What the path of a form says about it.
#[derive(Debug, PartialEq)]
struct FormTarget {
    action: String,
    route: String,
    run: Option<RunId>,
    target: Option<String>,
    /// Whether a page, and not a redirect, is the answer to a change.
    answers_with_page: bool,
}

impl FormTarget {
    fn of_path(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let of = |action: Action, route: &str| Self {
            action: action.to_string(),
            route: route.to_owned(),
            run: None,
            target: None,
            answers_with_page: false,
        };
        let control =
            |name: &str| CONTROLS.iter().find(|control| control.path == name).map(|control| control.action);
        let of_schedule = |name: &str| {
            SCHEDULE_CONTROLS.iter().find(|control| control.path == name).map(|control| control.action)
        };
        match parts.as_slice() {
            ["runs", "new"] => of(Action::Start, "/runs/new"),
            ["runs", "bulk"] => of(Action::Bulk, "/runs/bulk"),
            ["runs", "selected"] => Self { answers_with_page: true, ..of(Action::Bulk, "/runs/selected") },
            ["settings", "prune"] => Self { answers_with_page: true, ..of(Action::Prune, "/settings/prune") },
            ["schedules", "new"] => of(Action::CreateSchedule, "/schedules/new"),
            ["bulk", run, "stop"] => {
                Self { run: run.parse().ok(), ..of(Action::StopBulk, "/bulk/{id}/stop") }
            }
            ["runs", run, verb] => {
                let action = match *verb {
                    "send" => Some(Action::Send),
                    "fork" => Some(Action::Fork),
                    verb => control(verb),
                };
                let known = action.map(|action| of(action, &format!("/runs/{{id}}/{verb}")));
                Self { run: run.parse().ok(), ..known.unwrap_or_else(Self::unknown) }
            }
            ["schedules", id, verb] => {
                let action = of_schedule(verb).map(|action| of(action, &format!("/schedules/{{id}}/{verb}")));
                Self { target: Some((*id).to_owned()), ..action.unwrap_or_else(Self::unknown) }
            }
            _ => Self::unknown(),
        }
    }

    /// A form that does not exist.
    fn unknown() -> Self {
        let (action, route) = ("unknown".to_owned(), "unknown".to_owned());
        Self { action, route, run: None, target: None, answers_with_page: false }
    }

    /// Whether the histories of runs name the actor.
    fn is_in_history(&self) -> bool {
        [Action::Start, Action::Send].iter().any(|action| action.as_str() == self.action)
    }

    fn record(&self, app: &App, caller: &Caller, request: &Request) -> NewAudit {
        let mut record = app.service.new_audit(caller, &self.action, &self.route);
        (record.run, record.target) = (self.run, self.target.clone());
        record.address = address(request);
        record
    }
}

/// The address of the other side of the connection, if it is known.
pub(crate) fn address(request: &Request) -> Option<String> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map(|ConnectInfo(peer)| peer.ip().to_string())
}

/// Whether a request sends a form that is audited. The theme is a setting of the browser.
fn is_audited(app: &App, request: &Request) -> bool {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    !is_safe && !app.config.is_read_only && !request.uri().path().ends_with("/settings/theme")
}

/// Answers a request of a caller. A change is stored before it is made, and what became of it afterwards.
pub(crate) async fn run(app: &App, request: Request, next: Next) -> Response {
    let caller = request.extensions().get::<Caller>().cloned();
    let Some(caller) = caller.filter(|_| is_audited(app, &request)) else { return next.run(request).await };
    let target = FormTarget::of_path(request.uri().path());
    if target.is_in_history() {
        return next.run(request).await;
    }
    let site = Site::of_stranger(app, &request);
    let record = target.record(app, &caller, &request);
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, FORM_BYTES_MAX).await else {
        return problem_response(&site, &Problem::new(ProblemCode::TooLarge, "the form is too large"));
    };
    let reason = reason(&body);
    let stored = match app.service.audit_intent(AuditJson { reason, ..record }).await {
        Ok(stored) => stored,
        Err(problem) => return problem_response(&site, &problem),
    };
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let status = response.status().as_u16();
    let outcome = match status {
        300..=399 if has_changed_nothing(&response) => AuditOutcome::Unchanged,
        300..=399 => AuditOutcome::Done,
        200..=299 if target.answers_with_page => AuditOutcome::Done,
        403 => AuditOutcome::Refused,
        // Whether it took effect is not known.
        500..=599 => AuditOutcome::Intended,
        // The form is shown again.
        _ => AuditOutcome::Failed,
    };
    app.service.audit_outcome(AuditJson { outcome, status: Some(status), ..stored }).await;
    response
}

/// Whether the page that a form leads to says that there was nothing to do.
fn has_changed_nothing(response: &Response) -> bool {
    let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok()).unwrap_or_default();
    let nothing = [DidWhat::Already, DidWhat::Nothing].map(word_of);
    target.rsplit_once("?did=").is_some_and(|(_, did)| nothing.contains(&did))
}

/// The record of a known caller who was refused; `None` if it is not stored.
pub(crate) fn refusal(app: &App, caller: &Caller, request: &Request, problem: &Problem) -> Option<NewAudit> {
    if !is_audited(app, request) || !problem.is(ProblemCode::Forbidden) {
        return None;
    }
    let mut record = FormTarget::of_path(request.uri().path()).record(app, caller, request);
    record.outcome = AuditOutcome::Refused;
    (record.status, record.code) = (Some(problem.status), Some(problem.code.clone()));
    Some(record)
}

/// Stores that somebody logs in or out, unless the same person did it very often. Nobody logs in if this fails.
pub(crate) async fn session(
    app: &App,
    caller: &Caller,
    action: &str,
    address: Option<String>,
) -> Result<(), Problem> {
    if app.config.is_read_only {
        return Ok(());
    }
    let mut record =
        app.service.new_audit(caller, action, if action == "log_in" { "/login" } else { "/logout" });
    (record.outcome, record.address) = (AuditOutcome::Done, address);
    app.service.audit_unchanged(record).await
}

fn reason(form: &[u8]) -> Option<String> {
    let mut reader = QueryReader::new(std::str::from_utf8(form).ok()?).ok()?;
    reader.text("reason").ok().flatten().filter(|reason| !reason.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_forms_name_actions() {
        let run = RunId::from_bits(7);
        let action = |path: &str| FormTarget::of_path(path).action;
        for (path, expected) in [
            (format!("/runs/{run}/cancel"), "cancel"),
            (format!("/runs/{run}/send"), "send"),
            (format!("/runs/{run}/fork"), "fork"),
            ("/runs/new".to_owned(), "start"),
            ("/runs/bulk".to_owned(), "bulk"),
            ("/runs/selected".to_owned(), "bulk"),
            (format!("/bulk/{run}/stop"), "stop_bulk"),
            ("/schedules/nightly/pause".to_owned(), "pause_schedule"),
            ("/schedules/new".to_owned(), "create_schedule"),
            ("/settings/prune".to_owned(), "prune"),
            ("/what/else".to_owned(), "unknown"),
        ] {
            assert_eq!(action(&path), expected, "{path}");
        }
        assert_eq!(FormTarget::of_path(&format!("/runs/{run}/cancel")).run, Some(run));
        assert_eq!(FormTarget::of_path("/schedules/nightly/pause").target.as_deref(), Some("nightly"));
        for control in &SCHEDULE_CONTROLS {
            assert_eq!(action(&format!("/schedules/x/{}", control.path)), control.action.as_str());
        }
    }

    #[test]
    fn the_reason_of_a_form_is_read() {
        assert_eq!(reason(b"token=x&reason=not+needed"), Some("not needed".into()));
        assert_eq!(reason(b"token=x&reason="), None);
        assert_eq!(reason(b"\xff"), None);
    }
}
