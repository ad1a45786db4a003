//! Operations and events of a run.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use outlast_api::{EventFilter, OperationFilter};

use crate::extract::{By, PathOf, QueryOf};
use crate::reply::{Reply, ok, tagged};
use crate::state::AppState;

pub(crate) async fn operations(
    State(state): State<AppState>,
    path: PathOf,
    headers: HeaderMap,
    QueryOf(filter): QueryOf<OperationFilter>,
) -> Reply {
    tagged(&headers, &state.service.operations(path.run()?, &filter).await?)
}

pub(crate) async fn operation(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
) -> Reply {
    let (run, op) = (path.run()?, path.parse("op")?);
    let mut operation = state.service.operation(run, op).await?;
    if let Some(webhook) = &mut operation.webhook {
        webhook.url = state.service.webhook_url(&caller, run, op).await?;
    }
    tagged(&headers, &operation)
}

pub(crate) async fn events(
    State(state): State<AppState>,
    path: PathOf,
    QueryOf(filter): QueryOf<EventFilter>,
) -> Reply {
    ok(&state.service.events(path.run()?, &filter).await?)
}

pub(crate) async fn export(State(state): State<AppState>, path: PathOf) -> Reply {
    let run = path.run()?;
    let history = state.service.export(run).await?;
    let file = format!("attachment; filename=\"{run}.json\"");
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_DISPOSITION, file)];
    Ok((headers, history).into_response())
}
