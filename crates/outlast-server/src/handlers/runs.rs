//! Reading runs.

use axum::extract::State;
use axum::http::HeaderMap;
use outlast_api::{FailureFilter, HookFilter, OutputQuery, PageRequest, ResolveQuery, RunFilter};

use crate::extract::{By, PathOf, QueryOf};
use crate::reply::{Reply, ok, tagged};
use crate::state::AppState;

pub(crate) async fn list(State(state): State<AppState>, QueryOf(filter): QueryOf<RunFilter>) -> Reply {
    ok(&state.service.runs(&filter).await?)
}

pub(crate) async fn hooks(
    State(state): State<AppState>,
    By(caller): By,
    QueryOf(filter): QueryOf<HookFilter>,
) -> Reply {
    ok(&state.service.hooks(&caller, &filter).await?)
}

pub(crate) async fn failures(
    State(state): State<AppState>,
    QueryOf(filter): QueryOf<FailureFilter>,
) -> Reply {
    ok(&state.service.failures(&filter).await?)
}

pub(crate) async fn failure(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.failure(path.text("fingerprint")?).await?)
}

pub(crate) async fn counts(State(state): State<AppState>) -> Reply {
    ok(&state.service.counts().await?)
}

pub(crate) async fn resolve(State(state): State<AppState>, QueryOf(query): QueryOf<ResolveQuery>) -> Reply {
    ok(&state.service.resolve(&query).await?)
}

pub(crate) async fn run(State(state): State<AppState>, path: PathOf, headers: HeaderMap) -> Reply {
    tagged(&headers, &state.service.run(path.run()?).await?)
}

pub(crate) async fn output(
    State(state): State<AppState>,
    path: PathOf,
    QueryOf(query): QueryOf<OutputQuery>,
) -> Reply {
    let run = path.run()?;
    tokio::select! {
        biased;
        output = state.service.output(run, &query) => ok(&output?),
        // The server stops: answer what is known now.
        () = state.config.shutdown.cancelled() => {
            ok(&state.service.output(run, &OutputQuery::default()).await?)
        }
    }
}

pub(crate) async fn state(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.state(path.run()?).await?)
}

pub(crate) async fn explain(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.explain(path.run()?).await?)
}

pub(crate) async fn children(
    State(state): State<AppState>,
    path: PathOf,
    QueryOf(page): QueryOf<PageRequest>,
) -> Reply {
    ok(&state.service.children(path.run()?, &page).await?)
}
