//! Controlling runs.

use axum::extract::State;
use axum::http::StatusCode;
use outlast_api::{
    BulkRequest, BulkStopRequest, CancelRequest, ForkRequest, PauseRequest, PruneRequest, RestartRequest,
    RetryRunRequest, TerminateRequest, WakeRequest,
};

use super::start::created;
use crate::body::{JsonBody, OptionalBody};
use crate::extract::{By, PathOf, PrefixOf};
use crate::reply::{Reply, changed, json, no_content, ok, unchanged};
use crate::state::AppState;

pub(crate) async fn cancel(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<CancelRequest>,
) -> Reply {
    let done = state.service.cancel(&caller, path.run()?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn terminate(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<TerminateRequest>,
) -> Reply {
    let done = state.service.terminate(&caller, path.run()?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn pause(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<PauseRequest>,
) -> Reply {
    let done = state.service.pause(&caller, path.run()?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn resume(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(EmptyRequest {}): OptionalBody<EmptyRequest>,
) -> Reply {
    let done = state.service.resume(&caller, path.run()?).await?;
    changed(done.did, &done)
}

pub(crate) async fn wake(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<WakeRequest>,
) -> Reply {
    let done = state.service.wake(&caller, path.run()?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn quarantine(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(EmptyRequest {}): OptionalBody<EmptyRequest>,
) -> Reply {
    let done = state.service.quarantine(&caller, path.run()?).await?;
    changed(done.did, &done)
}

pub(crate) async fn release(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(EmptyRequest {}): OptionalBody<EmptyRequest>,
) -> Reply {
    let done = state.service.release(&caller, path.run()?).await?;
    changed(done.did, &done)
}

pub(crate) async fn retry(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<RetryRunRequest>,
) -> Reply {
    let done = state.service.retry(&caller, path.run()?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn restart(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    PrefixOf(prefix): PrefixOf,
    OptionalBody(request): OptionalBody<RestartRequest>,
) -> Reply {
    created(&state.service.restart(&caller, path.run()?, &request).await?, &prefix)
}

pub(crate) async fn fork(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    PrefixOf(prefix): PrefixOf,
    JsonBody(request): JsonBody<ForkRequest>,
) -> Reply {
    match request.dry_run {
        true => unchanged(&state.service.fork_plan(&caller, path.run()?, &request).await?),
        false => created(&state.service.fork(&caller, path.run()?, &request).await?, &prefix),
    }
}

pub(crate) async fn delete(State(state): State<AppState>, By(caller): By, path: PathOf) -> Reply {
    state.service.delete(&caller, path.run()?).await?;
    Ok(no_content())
}

pub(crate) async fn bulk(
    State(state): State<AppState>,
    By(caller): By,
    JsonBody(request): JsonBody<BulkRequest>,
) -> Reply {
    match request.dry_run {
        true => unchanged(&state.service.preview_bulk(&caller, &request).await?),
        false => json(StatusCode::ACCEPTED, &state.service.start_bulk(&caller, &request).await?),
    }
}

pub(crate) async fn show_bulk(State(state): State<AppState>, path: PathOf) -> Reply {
    ok(&state.service.bulk(path.run()?).await?)
}

pub(crate) async fn stop_bulk(
    State(state): State<AppState>,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<BulkStopRequest>,
) -> Reply {
    ok(&state.service.stop_bulk(&caller, path.run()?, &request).await?)
}

pub(crate) async fn prune(State(state): State<AppState>, JsonBody(request): JsonBody<PruneRequest>) -> Reply {
    let pruned = state.service.prune(&request).await?;
    if request.dry_run || pruned.deleted == 0 { unchanged(&pruned) } else { ok(&pruned) }
}

/// The body of a request that has no fields.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EmptyRequest {}
