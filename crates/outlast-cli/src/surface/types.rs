//! The requests and responses of the API that the trait and both its implementations name.

pub(super) use outlast_api::{
    AuditFilter, AuditJson, BackfillRequest, BackfilledJson, BatchJson, BatchRequest, BulkJson, BulkPreview,
    BulkRequest, BulkStopRequest, ChildrenJson, ChunkFilter, ChunkListJson, ControlledJson, CountsJson,
    EventFilter, EventJson, ExplanationJson, FailureDetailJson, FailureFilter, FailureListJson, FiringJson,
    ForkPlanJson, ForkRequest, HookFilter, ItemPage, OpenHookJson, OperationFilter, OperationJson,
    OutputJson, PageRequest, Problem, PruneRequest, PrunedJson, QueueDetailJson, QueueListJson, ResolveJson,
    RestartRequest, RunFilter, RunJson, ScheduleControlledJson, ScheduleDefinition, ScheduleFilter,
    ScheduleJson, SchedulePauseRequest, SchedulesControlledJson, SchedulesRequest, SendRequest, SentJson,
    StartRequest, StartedJson, StateJson, StreamListJson, WorkerListJson, WorkflowDetailJson,
    WorkflowListJson, WorldJson,
};
