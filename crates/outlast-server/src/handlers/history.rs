//! Operations and events of a run.

use axum::http::HeaderMap;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::IntoResponse;
use outlast_api::{EventFilter, OperationFilter};

use crate::extract::{By, PathOf, QueryOf, ServiceOf};
use crate::reply::{Reply, ok, tagged};

pub(crate) async fn operations(
    ServiceOf(service): ServiceOf,
    path: PathOf,
    headers: HeaderMap,
    QueryOf(filter): QueryOf<OperationFilter>,
) -> Reply {
    tagged(&headers, &service.operations(path.run()?, &filter).await?)
}

pub(crate) async fn operation(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
) -> Reply {
    let (run, op) = (path.run()?, path.parse("op")?);
    let mut operation = service.operation(run, op).await?;
    if let Some(webhook) = &mut operation.webhook {
        webhook.url = service.webhook_url(&caller, run, op).await?;
    }
    tagged(&headers, &operation)
}

pub(crate) async fn events(
    ServiceOf(service): ServiceOf,
    path: PathOf,
    QueryOf(filter): QueryOf<EventFilter>,
) -> Reply {
    ok(&service.events(path.run()?, &filter).await?)
}

pub(crate) async fn export(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    let run = path.run()?;
    let history = service.export(run).await?;
    let file = format!("attachment; filename=\"{run}.json\"");
    let headers = [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_DISPOSITION, file)];
    Ok((headers, history).into_response())
}
