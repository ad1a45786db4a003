//! What each route reads and returns.

use outlast_api::{
    AuditJson, BackfillRequest, BackfilledJson, BatchJson, BatchRequest, BulkJson, BulkPreview, BulkRequest,
    BulkStopRequest, CancelRequest, ChildrenJson, ChunkListJson, ControlledJson, CountsJson, EventJson,
    ExplanationJson, FailureDetailJson, FailureListJson, FiringJson, ForkPlanJson, ForkRequest, MeJson,
    OpenHookJson, OperationJson, OutputJson, PauseRequest, PruneRequest, PrunedJson, QueueDetailJson,
    QueueListJson, ReadinessJson, ResolveJson, RestartRequest, RetryRunRequest, RunJson,
    ScheduleControlledJson, ScheduleDefinition, ScheduleJson, SchedulePauseRequest, SchedulePreviewJson,
    SchedulePreviewRequest, SchedulesControlledJson, SchedulesRequest, SendRequest, SentJson, StartRequest,
    StateJson, StatsJson, StreamListJson, TerminateRequest, WakeRequest, WorkerJson, WorkerListJson,
    WorkflowDetailJson, WorkflowListJson, WorldJson,
};
use serde_json::{Value, json};

use super::Schemas;
use super::parameters::{
    AUDIT, CHUNKS, EVENTS, FAILURES, HOOKS, IDEMPOTENCY_KEY, IF_MATCH, LAST_EVENT_ID, LIVE, OPERATIONS,
    OUTPUT, PAGE, Parameter, RESOLVE, RUN_LIVE, RUNS, SCHEDULES, STATS,
};
use crate::routes::RouteInfo;

/// What a route reads and returns.
#[derive(Default)]
pub(crate) struct RouteSchema {
    pub(crate) query: &'static [Parameter],
    pub(crate) headers: &'static [Parameter],
    pub(crate) body: Option<Value>,
    pub(crate) is_body_required: bool,
    pub(crate) responses: Vec<RouteResponse>,
}

/// A successful response.
pub(crate) struct RouteResponse {
    pub(crate) status: u16,
    content: Content,
}

/// The content of a request or response.
pub(crate) enum Content {
    Json(Value),
    Text,
    Events(&'static [&'static str]),
    Nothing,
}

impl Content {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Self::Json(schema) => json!({ "application/json": { "schema": schema } }),
            Self::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
            Self::Events(names) => {
                json!({ "text/event-stream": { "schema": { "type": "string" }, "x-events": names } })
            }
            Self::Nothing => json!({}),
        }
    }
}

impl RouteResponse {
    pub(crate) fn to_json(&self) -> Value {
        let description = match self.status {
            201 => "Started",
            202 => "A run does it, or will see it",
            204 => "Done; there is no content",
            304 => "Not changed",
            503 => "Not ready",
            _ => "Success",
        };
        match &self.content {
            Content::Nothing => json!({ "description": description }),
            content => json!({ "description": description, "content": content.to_json() }),
        }
    }
}

impl RouteSchema {
    fn returns(mut self, status: u16, content: Content) -> Self {
        self.responses.push(RouteResponse { status, content });
        self
    }

    fn returns_json(self, schema: Value) -> Self {
        self.returns(200, Content::Json(schema))
    }

    fn tagged(self) -> Self {
        self.returns(304, Content::Nothing)
    }

    fn query(self, query: &'static [Parameter]) -> Self {
        Self { query, ..self }
    }

    fn headers(self, headers: &'static [Parameter]) -> Self {
        Self { headers, ..self }
    }

    fn takes(self, schema: Value) -> Self {
        Self { body: Some(schema), is_body_required: true, ..self }
    }

    fn may_take(self, schema: Value) -> Self {
        Self { body: Some(schema), is_body_required: false, ..self }
    }
}

/// What a route reads and returns. A route that is missing here has no response, and a test fails.
pub(crate) fn route_schema(route: &RouteInfo, schemas: &mut Schemas) -> RouteSchema {
    match route.method.as_str() {
        "GET" => read_schema(route.path, schemas),
        _ => action_schema(route, schemas),
    }
}

fn read_schema(path: &str, schemas: &mut Schemas) -> RouteSchema {
    let new = RouteSchema::default;
    match path {
        "/livez" => new().returns(200, Content::Text),
        "/metrics" => new().returns(200, Content::Text),
        "/openapi.json" => new().returns_json(json!({ "type": "object" })).tagged(),
        "/readyz" => {
            let schema = schemas.add::<ReadinessJson>();
            new().returns_json(schema.clone()).returns(503, Content::Json(schema))
        }
        "/api/me" => new().returns_json(schemas.add::<MeJson>()),
        "/api/runs" => new().query(RUNS).returns_json(schemas.page::<RunJson>()),
        "/api/counts" => new().returns_json(schemas.add::<CountsJson>()),
        "/api/resolve" => new().query(RESOLVE).returns_json(schemas.add::<ResolveJson>()),
        "/api/runs/{id}" => new().returns_json(schemas.add::<RunJson>()).tagged(),
        "/api/runs/{id}/output" => new().query(OUTPUT).returns_json(schemas.add::<OutputJson>()),
        "/api/runs/{id}/state" => new().returns_json(schemas.add::<StateJson>()),
        "/api/runs/{id}/explain" => new().returns_json(schemas.add::<ExplanationJson>()),
        "/api/runs/{id}/children" => new().query(PAGE).returns_json(schemas.add::<ChildrenJson>()),
        "/api/workers" => new().returns_json(schemas.add::<WorkerListJson>()),
        "/api/workers/{session}" => new().returns_json(schemas.add::<WorkerJson>()),
        "/api/audit" => new().query(AUDIT).returns_json(schemas.page::<AuditJson>()),
        "/api/stats" => new().query(STATS).returns_json(schemas.add::<StatsJson>()),
        "/api/queues" => new().returns_json(schemas.add::<QueueListJson>()),
        "/api/queues/{name}" => new().returns_json(schemas.add::<QueueDetailJson>()),
        "/api/workflows" => new().returns_json(schemas.add::<WorkflowListJson>()).tagged(),
        "/api/workflows/{name}" => new().returns_json(schemas.add::<WorkflowDetailJson>()).tagged(),
        "/api/hooks" => new().query(HOOKS).returns_json(schemas.page::<OpenHookJson>()),
        "/api/failures" => new().query(FAILURES).returns_json(schemas.add::<FailureListJson>()),
        "/api/failures/{fingerprint}" => new().returns_json(schemas.add::<FailureDetailJson>()),
        "/api/bulk/{id}" => new().returns_json(schemas.add::<BulkJson>()),
        "/api/world" => new().returns_json(schemas.add::<WorldJson>()),
        "/api/schedules" => new().query(SCHEDULES).returns_json(schemas.page::<ScheduleJson>()),
        "/api/schedules/{id}" => new().returns_json(schemas.add::<ScheduleJson>()),
        "/api/schedules/{id}/firings" => new().query(PAGE).returns_json(schemas.page::<FiringJson>()),
        _ => history_schema(path, schemas),
    }
}

fn history_schema(path: &str, schemas: &mut Schemas) -> RouteSchema {
    let new = RouteSchema::default;
    let live = |events| RouteSchema::default().headers(LAST_EVENT_ID).returns(200, Content::Events(events));
    match path {
        "/api/runs/{id}/operations" => {
            new().query(OPERATIONS).returns_json(schemas.page::<OperationJson>()).tagged()
        }
        "/api/runs/{id}/operations/{op}" => new().returns_json(schemas.add::<OperationJson>()).tagged(),
        "/api/runs/{id}/events" => new().query(EVENTS).returns_json(schemas.page::<EventJson>()),
        "/api/runs/{id}/export" => new().returns_json(json!({ "type": "object" })),
        "/api/runs/{id}/streams" => new().returns_json(schemas.add::<StreamListJson>()),
        "/api/runs/{id}/streams/{name}" => new().query(CHUNKS).returns_json(schemas.add::<ChunkListJson>()),
        "/api/runs/{id}/live" => {
            let names = &["hello", "event", "run", "end", "reset", "bye"];
            live(names).query(RUN_LIVE).returns(204, Content::Nothing)
        }
        "/api/runs/{id}/streams/{name}/live" => {
            live(&["hello", "chunk", "restarted", "done", "reset", "bye"]).query(CHUNKS)
        }
        "/api/live" => {
            let names = &[
                "hello",
                "counts",
                "run",
                "gone",
                "worker",
                "worker_gone",
                "queue",
                "queue_gone",
                "reset",
                "bye",
            ];
            live(names).query(LIVE)
        }
        _ => new(),
    }
}

fn action_schema(route: &RouteInfo, schemas: &mut Schemas) -> RouteSchema {
    let new = RouteSchema::default;
    let run = schemas.add::<RunJson>();
    let controlled = schemas.add::<ControlledJson>();
    let started = || new().returns(201, Content::Json(run.clone()));
    match route.path {
        "/api/runs" => {
            let body = schemas.add::<StartRequest>();
            started().returns_json(run.clone()).headers(IDEMPOTENCY_KEY).takes(body)
        }
        "/api/runs/batch" => {
            let body = schemas.add::<BatchRequest>();
            new().takes(body).returns_json(schemas.add::<BatchJson>())
        }
        path if path.starts_with("/webhooks/") => RouteSchema {
            body: Some(json!({})),
            ..new().returns(202, Content::Nothing).returns(200, Content::Text)
        },
        "/api/runs/{id}/hooks/{name}" | "/api/hooks/{token}" => {
            let body = schemas.add::<SendRequest>();
            new().headers(IDEMPOTENCY_KEY).takes(body).returns_json(schemas.add::<SentJson>())
        }
        "/api/runs/{id}" => new().returns(204, Content::Nothing),
        "/api/runs/{id}/restart" => started().may_take(schemas.add::<RestartRequest>()),
        "/api/runs/{id}/fork" => {
            let body = schemas.add::<ForkRequest>();
            started().returns_json(schemas.add::<ForkPlanJson>()).takes(body)
        }
        "/api/bulk" => {
            let body = schemas.add::<BulkRequest>();
            let started = Content::Json(schemas.add::<BulkJson>());
            new().takes(body).returns_json(schemas.add::<BulkPreview>()).returns(202, started)
        }
        "/api/bulk/{id}/stop" => {
            new().may_take(schemas.add::<BulkStopRequest>()).returns_json(schemas.add::<BulkJson>())
        }
        "/api/world/prune" => {
            let body = schemas.add::<PruneRequest>();
            new().takes(body).returns_json(schemas.add::<PrunedJson>())
        }
        path if path.starts_with("/api/schedules") => schedule_schema(route, schemas),
        path => match control_body(path, schemas) {
            Some(body) => new().may_take(body).returns_json(controlled),
            None => new(),
        },
    }
}

fn schedule_schema(route: &RouteInfo, schemas: &mut Schemas) -> RouteSchema {
    let new = RouteSchema::default;
    let controlled = schemas.add::<ScheduleControlledJson>();
    let many = schemas.add::<SchedulesControlledJson>();
    match (route.method.as_str(), route.path) {
        ("DELETE", _) => new().headers(IF_MATCH).returns(204, Content::Nothing),
        ("PUT", _) => {
            new().headers(IF_MATCH).takes(schemas.add::<ScheduleDefinition>()).returns_json(controlled)
        }
        (_, "/api/schedules") => {
            let created = Content::Json(schemas.add::<ScheduleJson>());
            new().takes(schemas.add::<ScheduleDefinition>()).returns(201, created)
        }
        (_, "/api/schedules/preview") => new()
            .takes(schemas.add::<SchedulePreviewRequest>())
            .returns_json(schemas.add::<SchedulePreviewJson>()),
        (_, "/api/schedules/{id}/backfill") => {
            new().takes(schemas.add::<BackfillRequest>()).returns_json(schemas.add::<BackfilledJson>())
        }
        (_, "/api/schedules/pause" | "/api/schedules/resume") => {
            new().takes(schemas.add::<SchedulesRequest>()).returns_json(many)
        }
        (_, "/api/schedules/{id}/pause") => {
            new().may_take(schemas.add::<SchedulePauseRequest>()).returns_json(controlled)
        }
        _ => new().may_take(nothing()).returns_json(controlled),
    }
}

/// A body without fields.
fn nothing() -> Value {
    json!({ "type": "object", "additionalProperties": false })
}

/// The body of a request that controls one run.
fn control_body(path: &str, schemas: &mut Schemas) -> Option<Value> {
    Some(match path.strip_prefix("/api/runs/{id}/")? {
        "cancel" => schemas.add::<CancelRequest>(),
        "terminate" => schemas.add::<TerminateRequest>(),
        "pause" => schemas.add::<PauseRequest>(),
        "retry" => schemas.add::<RetryRunRequest>(),
        "wake" => schemas.add::<WakeRequest>(),
        "resume" | "quarantine" | "release" => nothing(),
        _ => return None,
    })
}
