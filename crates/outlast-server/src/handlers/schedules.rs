//! Schedules.

use axum::http::header::{ETAG, IF_MATCH, LOCATION};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use outlast_api::{
    BackfillRequest, DidWhat, PageRequest, Problem, ProblemCode, ScheduleDefinition, ScheduleFilter,
    ScheduleJson, SchedulePauseRequest, SchedulePreviewRequest, SchedulesControlledJson, SchedulesRequest,
};

use super::control::EmptyRequest;
use crate::body::{JsonBody, OptionalBody};
use crate::extract::{By, PathOf, PrefixOf, QueryOf, ServiceOf};
use crate::reply::{Reply, changed, json, no_content, ok, unchanged};

pub(crate) async fn list(ServiceOf(service): ServiceOf, QueryOf(filter): QueryOf<ScheduleFilter>) -> Reply {
    ok(&service.schedules(&filter).await?)
}

pub(crate) async fn show(ServiceOf(service): ServiceOf, path: PathOf) -> Reply {
    let schedule = service.schedule(path.text("id")?).await?;
    Ok(with_revision(ok(&schedule)?, &schedule))
}

pub(crate) async fn firings(
    ServiceOf(service): ServiceOf,
    path: PathOf,
    QueryOf(page): QueryOf<PageRequest>,
) -> Reply {
    ok(&service.firings(path.text("id")?, &page).await?)
}

pub(crate) async fn preview(
    ServiceOf(service): ServiceOf,
    JsonBody(request): JsonBody<SchedulePreviewRequest>,
) -> Reply {
    ok(&service.preview_schedule(&request)?)
}

pub(crate) async fn create(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    PrefixOf(prefix): PrefixOf,
    JsonBody(definition): JsonBody<ScheduleDefinition>,
) -> Reply {
    let schedule = service.create_schedule(&caller, &definition).await?;
    let mut response = with_revision(json(StatusCode::CREATED, &schedule)?, &schedule);
    let id = outlast_api::path_segment(&schedule.id);
    if let Ok(location) = HeaderValue::from_str(&format!("{prefix}/api/schedules/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

pub(crate) async fn replace(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
    JsonBody(definition): JsonBody<ScheduleDefinition>,
) -> Reply {
    let Some(expected) = expected_revision(&headers)? else {
        let detail = "send `If-Match` with the `ETag` of the schedule, or `If-Match: *`";
        return Err(Problem::new(ProblemCode::PreconditionRequired, detail).into());
    };
    let id = path.text("id")?;
    let replaced = service.replace_schedule(&caller, id, &definition, expected.revision()).await?;
    Ok(with_revision(changed(replaced.did, &replaced)?, &replaced.schedule))
}

pub(crate) async fn delete(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    headers: HeaderMap,
) -> Reply {
    let expected = expected_revision(&headers)?.and_then(Expected::revision);
    service.delete_schedule(&caller, path.text("id")?, expected).await?;
    Ok(no_content())
}

pub(crate) async fn pause(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    OptionalBody(request): OptionalBody<SchedulePauseRequest>,
) -> Reply {
    let done = service.pause_schedule(&caller, path.text("id")?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn resume(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    OptionalBody(EmptyRequest {}): OptionalBody<EmptyRequest>,
) -> Reply {
    let done = service.resume_schedule(&caller, path.text("id")?).await?;
    changed(done.did, &done)
}

pub(crate) async fn trigger(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    OptionalBody(EmptyRequest {}): OptionalBody<EmptyRequest>,
) -> Reply {
    let done = service.trigger_schedule(&caller, path.text("id")?).await?;
    changed(done.did, &done)
}

pub(crate) async fn backfill(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    path: PathOf,
    JsonBody(request): JsonBody<BackfillRequest>,
) -> Reply {
    let done = service.backfill_schedule(&caller, path.text("id")?, &request).await?;
    changed(done.did, &done)
}

pub(crate) async fn pause_many(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    JsonBody(request): JsonBody<SchedulesRequest>,
) -> Reply {
    changed_some(&service.pause_schedules(&caller, &request).await?)
}

pub(crate) async fn resume_many(
    ServiceOf(service): ServiceOf,
    By(caller): By,
    JsonBody(request): JsonBody<SchedulesRequest>,
) -> Reply {
    changed_some(&service.resume_schedules(&caller, &request).await?)
}

/// The response to a request for many schedules, of which some may have changed.
fn changed_some(done: &SchedulesControlledJson) -> Reply {
    let is_changed = done.results.iter().any(|result| result.did == Some(DidWhat::Requested));
    if is_changed { ok(done) } else { unchanged(done) }
}

/// The response with the revision of the schedule as its tag.
fn with_revision(mut response: Response, schedule: &ScheduleJson) -> Response {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", schedule.revision)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// What a request expects of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Only that it exists.
    Exists,
    /// This revision.
    Revision(u64),
}

impl Expected {
    fn revision(self) -> Option<u64> {
        match self {
            Self::Exists => None,
            Self::Revision(revision) => Some(revision),
        }
    }
}

/// The header `If-Match`.
fn expected_revision(headers: &HeaderMap) -> Result<Option<Expected>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(Some(Expected::Exists));
    }
    let revision = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')?.parse().ok());
    match revision {
        Some(revision) => Ok(Some(Expected::Revision(revision))),
        None => Err(Problem::field("If-Match", "it is not the `ETag` of a schedule, such as `\"7\"`")),
    }
}
