//! Workers, queues, workflows, the world, the caller and the audit.

use axum::extract::State;
use axum::http::HeaderMap;
use outlast_api::{AuditFilter, MeJson, StatsQuery};

use crate::extract::{By, PathOf, QueryOf};
use crate::reply::{Reply, ok, tagged};
use crate::state::AppState;

pub(crate) async fn me(State(state): State<AppState>, By(caller): By) -> Reply {
    let read_only = state.config.is_read_only;
    ok(&MeJson { actor: caller.actor, role: caller.role, read_only })
}

pub(crate) async fn workers(State(state): State<AppState>) -> Reply {
    ok(&state.service.workers().await?)
}

pub(crate) async fn worker(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.worker(path.parse("session")?).await?)
}

pub(crate) async fn workflows(State(state): State<AppState>, headers: HeaderMap) -> Reply {
    tagged(&headers, &state.service.workflows().await?)
}

pub(crate) async fn workflow(State(state): State<AppState>, path: PathOf, headers: HeaderMap) -> Reply {
    tagged(&headers, &state.service.workflow(path.text("name")?).await?)
}

pub(crate) async fn audit(State(state): State<AppState>, QueryOf(filter): QueryOf<AuditFilter>) -> Reply {
    ok(&state.service.audit(&filter).await?)
}

pub(crate) async fn stats(State(state): State<AppState>, QueryOf(query): QueryOf<StatsQuery>) -> Reply {
    state.sample_stats();
    ok(&state.service.stats(query))
}

pub(crate) async fn queues(State(state): State<AppState>) -> Reply {
    ok(&state.service.queues().await?)
}

pub(crate) async fn queue(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.queue(path.text("name")?).await?)
}

pub(crate) async fn world(State(state): State<AppState>) -> Reply {
    ok(&state.service.world())
}
