//! The table of routes, from which the router is built.

use std::collections::BTreeMap;

use axum::Router;
use axum::http::Method;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, any, delete, get, post, put};
use outlast_api::{Action, ProblemCode, Role};

use crate::enforce::enforce;
use crate::guard::guard;
use crate::handlers::{control, fleet, history, runs, schedules, start, streams, webhooks};
use crate::reply::ProblemReply;
use crate::state::AppState;
use crate::{health, live, metrics};

/// A route of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RouteInfo {
    /// The method.
    pub method: Method,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// Who may call it.
    pub required: RequiredRole,
    /// The action, if it is one.
    pub action: Option<Action>,
    /// One sentence.
    pub summary: &'static str,
    pub(crate) time: TimeLimit,
}

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredRole {
    /// Everybody.
    Public,
    /// Every known caller.
    Any,
    /// Callers with this role, or a higher one.
    Role(Role),
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeLimit {
    Ordinary,
    Wait,
    Stream,
}

/// The route of a webhook, and of what is below it.
pub(crate) const WEBHOOK: &str = "/webhooks/{token}";
const WEBHOOK_WITH_PATH: &str = "/webhooks/{token}/{*path}";

/// Routes that can be switched off together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteGroup {
    /// Requests of programs, and their description.
    Api,
    Metrics,
    Webhooks,
}

impl RouteInfo {
    /// The group that it belongs to; probes belong to none, and are always there.
    fn group(&self) -> Option<RouteGroup> {
        match self.path {
            _ if self.is_webhook() => Some(RouteGroup::Webhooks),
            "/metrics" => Some(RouteGroup::Metrics),
            path if path.starts_with("/api/") || path == "/openapi.json" => Some(RouteGroup::Api),
            _ => None,
        }
    }

    /// Whether it is a route of webhooks, which senders call that are not users of the API.
    pub(crate) fn is_webhook(&self) -> bool {
        self.path.starts_with(WEBHOOK)
    }
}

/// All routes.
pub fn route_table() -> Vec<RouteInfo> {
    rows().into_iter().map(|row| row.info).collect()
}

/// A route, and the handler behind it.
struct Row {
    info: RouteInfo,
    handler: fn() -> MethodRouter<AppState>,
}

impl Row {
    const fn new(
        method: Method,
        path: &'static str,
        required: RequiredRole,
        summary: &'static str,
        handler: fn() -> MethodRouter<AppState>,
    ) -> Self {
        let (action, time) = (None, TimeLimit::Ordinary);
        Self { info: RouteInfo { method, path, required, action, summary, time }, handler }
    }

    const fn read(
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<AppState>,
    ) -> Self {
        Self::new(Method::GET, path, RequiredRole::Role(Role::Read), summary, handler)
    }

    const fn stream(
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<AppState>,
    ) -> Self {
        Self::read(path, summary, handler).lasting(TimeLimit::Stream)
    }

    const fn act(
        action: Action,
        path: &'static str,
        summary: &'static str,
        handler: fn() -> MethodRouter<AppState>,
    ) -> Self {
        let mut row = Self::new(Method::POST, path, RequiredRole::Role(action.role()), summary, handler);
        row.info.action = Some(action);
        row
    }

    fn by(mut self, method: Method) -> Self {
        self.info.method = method;
        self
    }

    const fn lasting(mut self, time: TimeLimit) -> Self {
        self.info.time = time;
        self
    }
}

fn rows() -> Vec<Row> {
    let mut rows = read_rows();
    #[cfg(feature = "openapi")]
    rows.push(Row::new(
        Method::GET,
        "/openapi.json",
        RequiredRole::Public,
        "The description of the API",
        || get(crate::openapi::handler),
    ));
    rows.extend(action_rows());
    rows.extend(schedule_rows());
    rows.extend(webhook_rows());
    rows
}

/// The routes of webhooks. They have every method, because each webhook says which it allows.
fn webhook_rows() -> Vec<Row> {
    let row = |path, summary| {
        let row = Row::new(Method::POST, path, RequiredRole::Public, summary, || any(webhooks::accept));
        row.lasting(TimeLimit::Wait)
    };
    vec![
        row(WEBHOOK, "A request to a webhook"),
        row(WEBHOOK_WITH_PATH, "A request to a path below a webhook"),
    ]
}

fn read_rows() -> Vec<Row> {
    let public = RequiredRole::Public;
    vec![
        Row::new(Method::GET, "/livez", public, "Whether the process answers", || get(health::livez)),
        Row::new(Method::GET, "/readyz", public, "Whether the world answers", || get(health::readyz)),
        Row::new(
            Method::GET,
            "/metrics",
            RequiredRole::Role(Role::Metrics),
            "Metrics for Prometheus",
            || get(metrics::handler),
        ),
        Row::new(Method::GET, "/api/me", RequiredRole::Any, "Who the caller is", || get(fleet::me)),
        Row::read("/api/runs", "Runs, by filters", || get(runs::list)),
        Row::read("/api/counts", "The number of runs in each status", || get(runs::counts)),
        Row::read("/api/resolve", "Runs by a part of their id, or by key", || get(runs::resolve)),
        Row::read("/api/runs/{id}", "A run", || get(runs::run)),
        Row::read("/api/runs/{id}/operations", "Its operations", || get(history::operations)),
        Row::read("/api/runs/{id}/operations/{op}", "One operation", || get(history::operation)),
        Row::read("/api/runs/{id}/events", "Its history", || get(history::events)),
        Row::read("/api/runs/{id}/export", "Its history, as a file", || get(history::export)),
        Row::read("/api/runs/{id}/output", "Its output, or that it has not ended", || get(runs::output))
            .lasting(TimeLimit::Wait),
        Row::read("/api/runs/{id}/state", "What it published last", || get(runs::state)),
        Row::read("/api/runs/{id}/explain", "Why it is in its state", || get(runs::explain)),
        Row::read("/api/runs/{id}/children", "Its children", || get(runs::children)),
        Row::read("/api/runs/{id}/streams", "Its streams", || get(streams::list)),
        Row::read("/api/runs/{id}/streams/{name}", "A page of a stream", || get(streams::chunks)),
        Row::stream("/api/runs/{id}/live", "Its events, as they happen", || get(live::run::handler)),
        Row::stream("/api/runs/{id}/streams/{name}/live", "A stream, as it is written", || {
            get(live::stream::handler)
        }),
        Row::stream("/api/live", "Counts, runs, workers and queues, as they change", || {
            get(live::list::handler)
        }),
        Row::read("/api/hooks", "The hooks that runs wait for", || get(runs::hooks)),
        Row::read("/api/failures", "Failed runs of the last day, in groups", || get(runs::failures)),
        Row::read("/api/failures/{fingerprint}", "One group, with its runs", || get(runs::failure)),
        Row::read("/api/stats", "The numbers of runs over the last hours", || get(fleet::stats)),
        Row::read("/api/workers", "The joined workers", || get(fleet::workers)),
        Row::read("/api/workers/{session}", "A joined worker", || get(fleet::worker)),
        Row::new(
            Method::GET,
            "/api/audit",
            RequiredRole::Role(Role::Admin),
            "Who did what, and who was refused",
            || get(fleet::audit),
        ),
        Row::read("/api/queues", "The queues, with the numbers of their runs", || get(fleet::queues)),
        Row::read("/api/queues/{name}", "A queue, with the workers that serve it", || get(fleet::queue)),
        Row::read("/api/workflows", "The workflows that workers have, or had", || get(fleet::workflows)),
        Row::read("/api/workflows/{name}", "One of them, with schemas and statistics", || {
            get(fleet::workflow)
        }),
        Row::read("/api/world", "The world", || get(fleet::world)),
    ]
}

fn action_rows() -> Vec<Row> {
    vec![
        Row::act(Action::Start, "/api/runs", "Start a run", || post(start::start)),
        Row::act(Action::StartBatch, "/api/runs/batch", "Start many runs", || post(start::batch)),
        Row::act(Action::Send, "/api/runs/{id}/hooks/{name}", "Send to a hook", || post(start::send))
            .lasting(TimeLimit::Wait),
        Row::act(Action::SendToToken, "/api/hooks/{token}", "Send to the run that holds a token", || {
            post(start::send_to_token)
        })
        .lasting(TimeLimit::Wait),
        Row::act(Action::Cancel, "/api/runs/{id}/cancel", "Ask it to stop", || post(control::cancel)),
        Row::act(Action::Terminate, "/api/runs/{id}/terminate", "End it without its code", || {
            post(control::terminate)
        }),
        Row::act(Action::Pause, "/api/runs/{id}/pause", "Hold it back", || post(control::pause)),
        Row::act(Action::Resume, "/api/runs/{id}/resume", "Let it continue", || post(control::resume)),
        Row::act(Action::Wake, "/api/runs/{id}/wake", "End its sleeps early", || post(control::wake)),
        Row::act(Action::Retry, "/api/runs/{id}/retry", "Continue it from its failure", || {
            post(control::retry)
        }),
        Row::act(Action::Restart, "/api/runs/{id}/restart", "Start a new run with its input", || {
            post(control::restart)
        }),
        Row::act(Action::Fork, "/api/runs/{id}/fork", "Start a new run with its events before a cut", || {
            post(control::fork)
        }),
        Row::act(Action::Quarantine, "/api/runs/{id}/quarantine", "Protect it from deletion", || {
            post(control::quarantine)
        }),
        Row::act(Action::Release, "/api/runs/{id}/release", "End its quarantine", || post(control::release)),
        Row::act(Action::Delete, "/api/runs/{id}", "Delete a run that has ended", || delete(control::delete))
            .by(Method::DELETE),
        Row::act(Action::Bulk, "/api/bulk", "The same action for many runs", || post(control::bulk)),
        Row::read("/api/bulk/{id}", "A bulk action", || get(control::show_bulk)),
        Row::act(Action::StopBulk, "/api/bulk/{id}/stop", "Stop a bulk action", || post(control::stop_bulk)),
        Row::act(Action::Prune, "/api/world/prune", "Delete runs that ended before a time", || {
            post(control::prune)
        }),
    ]
}

fn schedule_rows() -> Vec<Row> {
    let one = "/api/schedules/{id}";
    vec![
        Row::read("/api/schedules", "Schedules", || get(schedules::list)),
        Row::read(one, "A schedule", || get(schedules::show)),
        Row::read("/api/schedules/{id}/firings", "The runs that it started", || get(schedules::firings)),
        Row::new(
            Method::POST,
            "/api/schedules/preview",
            RequiredRole::Role(Role::Read),
            "The instants of a rule",
            || post(schedules::preview),
        ),
        Row::act(Action::CreateSchedule, "/api/schedules", "Create a schedule", || post(schedules::create)),
        Row::act(Action::UpdateSchedule, one, "Replace its definition", || put(schedules::replace))
            .by(Method::PUT),
        Row::act(Action::DeleteSchedule, one, "End it; its name is free then", || delete(schedules::delete))
            .by(Method::DELETE),
        Row::act(Action::PauseSchedule, "/api/schedules/{id}/pause", "Stop firing", || {
            post(schedules::pause)
        }),
        Row::act(Action::ResumeSchedule, "/api/schedules/{id}/resume", "Fire again", || {
            post(schedules::resume)
        }),
        Row::act(Action::TriggerSchedule, "/api/schedules/{id}/trigger", "Fire now", || {
            post(schedules::trigger)
        }),
        Row::act(
            Action::BackfillSchedule,
            "/api/schedules/{id}/backfill",
            "Fire the instants of a range in the past",
            || post(schedules::backfill),
        ),
        Row::act(Action::PauseSchedules, "/api/schedules/pause", "Pause many schedules", || {
            post(schedules::pause_many)
        }),
        Row::act(Action::ResumeSchedules, "/api/schedules/resume", "Resume many schedules", || {
            post(schedules::resume_many)
        }),
    ]
}

async fn not_found() -> ProblemReply {
    ProblemReply::new(ProblemCode::NotFound, "there is no such route")
}

/// The router of all rows, each behind its own check.
pub(crate) fn build(state: AppState) -> Router {
    let mut by_path: BTreeMap<&str, MethodRouter<AppState>> = BTreeMap::new();
    let is_on = |row: &Row| row.info.group().is_none_or(|group| !state.config.off.contains(&group));
    let rows = rows().into_iter().filter(is_on);
    for Row { info, handler } in rows {
        let (path, with) = (info.path, state.clone());
        let checked =
            handler().layer(from_fn(move |request, next| enforce(with.clone(), info.clone(), request, next)));
        let merged = match by_path.remove(path) {
            Some(others) => others.merge(checked),
            None => checked,
        };
        by_path.insert(path, merged);
    }
    let router = by_path.into_iter().fold(Router::new(), |router, (path, route)| router.route(path, route));
    router
        // axum drops the fallback of a router that is nested two levels deep, so the API has a route for the rest.
        .route("/api/{*rest}", any(not_found))
        .fallback(not_found)
        .method_not_allowed_fallback(|| async {
            let detail = "the route does not have this method; the header `Allow` lists those that it has";
            ProblemReply::new(ProblemCode::MethodNotAllowed, detail)
        })
        .layer(from_fn(guard))
        .with_state(state)
}
