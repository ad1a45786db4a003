//! Streams of a run.

use axum::extract::State;
use outlast_api::ChunkFilter;

use crate::extract::{PathOf, QueryOf};
use crate::reply::{Reply, ok};
use crate::state::AppState;

pub(crate) async fn list(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.streams(path.run()?).await?)
}

pub(crate) async fn chunks(
    State(state): State<AppState>,
    path: PathOf,
    QueryOf(filter): QueryOf<ChunkFilter>,
) -> Reply {
    ok(&state.service.chunks(path.run()?, path.text("name")?, &filter).await?)
}
