//! Reading runs.

use axum::extract::State;
use axum::http::HeaderMap;
use outlast_api::{FailureFilter, HookFilter, OutputQuery, PageRequest, ResolveQuery, RunFilter};

use crate::extract::{By, PathOf, QueryOf, ServiceOf};
use crate::reply::{Reply, ok, tagged};
use crate::state::AppState;

pub(crate) async fn list(ServiceOf(service): ServiceOf, QueryOf(filter): QueryOf<RunFilter>) -> Reply {
    ok(&service.runs(&filter).await?)
}

pub(crate) async fn hooks(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    QueryOf(filter): QueryOf<HookFilter>,
) -> Reply {
    ok(&service.hooks(&caller, &filter).await?)
}

pub(crate) async fn failures(
    ServiceOf(service): ServiceOf,
    QueryOf(filter): QueryOf<FailureFilter>,
) -> Reply {
    ok(&service.failures(&filter).await?)
}

pub(crate) async fn failure(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    ok(&service.failure(path.text("fingerprint")?).await?)
}

pub(crate) async fn counts(ServiceOf(service): ServiceOf) -> Reply {
    ok(&service.counts().await?)
}

pub(crate) async fn resolve(ServiceOf(service): ServiceOf, QueryOf(query): QueryOf<ResolveQuery>) -> Reply {
    ok(&service.resolve(&query).await?)
}

pub(crate) async fn run(ServiceOf(service): ServiceOf, path: PathOf, headers: HeaderMap) -> Reply {
    tagged(&headers, &service.run(path.run()?).await?)
}

pub(crate) async fn output(
    State(state): State<AppState>,
    ServiceOf(service): ServiceOf,
    path: PathOf,
    QueryOf(query): QueryOf<OutputQuery>,
) -> Reply {
    let run = path.run()?;
    tokio::select! {
        biased;
        output = service.output(run, &query) => ok(&output?),
        // The server stops: answer what is known now.
        () = state.config.shutdown.cancelled() => {
            ok(&service.output(run, &OutputQuery::default()).await?)
        }
    }
}

pub(crate) async fn state(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    ok(&service.state(path.run()?).await?)
}

pub(crate) async fn explain(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    ok(&service.explain(path.run()?).await?)
}

pub(crate) async fn children(
    ServiceOf(service): ServiceOf,
    path: PathOf,
    QueryOf(page): QueryOf<PageRequest>,
) -> Reply {
    ok(&service.children(path.run()?, &page).await?)
}
