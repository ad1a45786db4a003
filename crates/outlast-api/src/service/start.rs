//! Starting runs.

use outlast::{ErrorKind, StartCall};
use outlast_core::limits::{
    BATCH_STARTS_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, NAME_BYTES_MAX, PRIORITY_MAX,
};
use outlast_core::queue::{check_queue, check_workflow_name};
use outlast_core::{IntoDuration, RunId};

use super::problems::{check_length, check_name, of_error, too_long};
use super::{Caller, Service};
use crate::problem::{FieldProblem, Problem, ProblemCode};
use crate::run::RunJson;
use crate::start::{BatchJson, BatchRequest, BatchResult, StartRequest, TimeOrDuration};

/// The header that names who made a request.
pub(super) const ACTOR_HEADER: &str = "actor";

/// How long an idempotency key of a request counts.
const IDEMPOTENCY_WINDOW: &str = "24h";

/// The longest idempotency key of a request, so that it fits into the key of a start together with its scope.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// The result of a start.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedJson {
    /// The run.
    pub run: RunJson,
    /// Whether it was started by this request.
    pub is_new: bool,
}

impl Service {
    /// `POST /api/runs`. The idempotency key is that of the request's headers.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `too_long`, `input_invalid`, `key_conflict`, `conflict`.
    pub async fn start(
        &self,
        caller: &Caller,
        request: StartRequest,
        idempotency_key: Option<&str>,
    ) -> Result<StartedJson, Problem> {
        let key = start_key(caller, &request, idempotency_key)?;
        let (run, is_new) = self.start_run(caller, &request, key).await?;
        Ok(StartedJson { run: self.run(run).await?, is_new })
    }

    /// `POST /api/runs/batch`. A start that is refused does not affect the others.
    ///
    /// # Errors
    ///
    /// `too_long` if there are too many starts.
    pub async fn start_batch(&self, caller: &Caller, request: BatchRequest) -> Result<BatchJson, Problem> {
        let count = request.starts.len();
        if count > BATCH_STARTS_MAX {
            let message =
                format!("it has {count} starts, the limit is {BATCH_STARTS_MAX}; send several batches");
            return Err(too_long("/starts", message));
        }
        let starts = request.starts.into_iter().map(|start| async {
            match self.start(caller, start, None).await {
                Ok(StartedJson { run, is_new }) => BatchResult { run: Some(run), is_new, problem: None },
                Err(problem) => BatchResult { run: None, is_new: false, problem: Some(problem) },
            }
        });
        Ok(BatchJson { results: futures_util::future::join_all(starts).await })
    }

    async fn start_run(
        &self,
        caller: &Caller,
        request: &StartRequest,
        key: Option<(String, Option<&str>)>,
    ) -> Result<(RunId, bool), Problem> {
        check(request)?;
        let version = match request.version {
            Some(version) => version,
            None => self.newest_version(&request.workflow).await?,
        };
        let input = request.input.as_ref().map_or("null", |input| input.get());
        let mut call = self.client.start_json(&request.workflow, version, input);
        call = with_options(call, request).header(ACTOR_HEADER, &caller.actor);
        if let Some((key, window)) = &key {
            call = call.key(key);
            if let Some(window) = window {
                call = call.key_window(*window);
            }
        }
        match call.await {
            Ok(run) => Ok((run.id(), run.is_new())),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                Err(self.start_conflict(error, key.map(|(key, _)| key)).await)
            }
            // Everything else was checked before, so this is the workflow's own check.
            Err(error) if error.kind() == ErrorKind::Invalid => {
                let field = FieldProblem { pointer: "/input".into(), message: error.to_string() };
                let problem = Problem::new(ProblemCode::InputInvalid, error.to_string());
                Err(problem.with(|problem| problem.errors.push(field)))
            }
            Err(error) => Err(of_error(error)),
        }
    }

    /// The problem of a start that names an existing run.
    async fn start_conflict(&self, error: outlast::Error, key: Option<String>) -> Problem {
        let owner = match key {
            Some(key) => self.client.by_key(key).id().await.ok(),
            None => None,
        };
        match owner {
            Some(owner) => Problem::new(ProblemCode::KeyConflict, error.to_string()).of_run(owner),
            None => of_error(error),
        }
    }
}

/// The key of a start, and its window.
fn start_key<'a>(
    caller: &Caller,
    request: &'a StartRequest,
    idempotency_key: Option<&str>,
) -> Result<Option<(String, Option<&'a str>)>, Problem> {
    match (&request.key, idempotency_key) {
        (Some(_), Some(_)) => {
            Err(Problem::field("/key", "the request has an Idempotency-Key header too; use one of them"))
        }
        (Some(key), None) => {
            check_name("/key", key, KEY_BYTES_MAX)?;
            Ok(Some((key.clone(), request.key_window.as_deref())))
        }
        (None, _) if request.key_window.is_some() => Err(Problem::field("/key_window", "it needs a `key`")),
        (None, Some(key)) => {
            check_name("Idempotency-Key", key, IDEMPOTENCY_KEY_BYTES_MAX)?;
            Ok(Some((format!("http:{}:{key}", caller.scope), Some(IDEMPOTENCY_WINDOW))))
        }
        (None, None) => Ok(None),
    }
}

/// Checks everything that the client would refuse, so that its refusal concerns the input.
fn check(request: &StartRequest) -> Result<(), Problem> {
    check_name("/workflow", &request.workflow, NAME_BYTES_MAX)?;
    check_workflow_name(&request.workflow).map_err(|message| Problem::field("/workflow", message))?;
    if let Some(queue) = &request.queue {
        check_length("/queue", queue, NAME_BYTES_MAX)?;
        check_queue(queue).map_err(|message| Problem::field("/queue", message))?;
    }
    if request.priority.is_some_and(|priority| priority > PRIORITY_MAX) {
        return Err(Problem::field("/priority", format!("expected 0 to {PRIORITY_MAX}")));
    }
    let bytes: usize = request.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > HEADERS_BYTES_MAX {
        let message = format!("they have {bytes} bytes together, the limit is {HEADERS_BYTES_MAX}");
        return Err(too_long("/headers", message));
    }
    if request.at.is_some() && request.after.is_some() {
        return Err(Problem::field("/after", "the request has `at` too; use one of them"));
    }
    for (pointer, text) in [("/after", &request.after), ("/key_window", &request.key_window)] {
        let read = text.as_deref().map(IntoDuration::into_duration).transpose();
        read.map_err(|error| Problem::field(pointer, error.to_string()))?;
    }
    Ok(())
}

fn with_options<'a, O>(mut call: StartCall<'a, O>, request: &StartRequest) -> StartCall<'a, O> {
    for (name, value) in &request.tags {
        call = call.tag(name, value);
    }
    for (name, value) in &request.headers {
        call = call.header(name, value);
    }
    if let Some(id) = request.id {
        call = call.id(id);
    }
    if let Some(queue) = &request.queue {
        call = call.queue(queue.as_str());
    }
    if let Some(priority) = request.priority {
        call = call.priority(priority);
    }
    if let Some(at) = request.at {
        call = call.at(at.0);
    }
    if let Some(after) = &request.after {
        call = call.after(after.as_str());
    }
    match request.deadline {
        Some(TimeOrDuration::At(time)) => call = call.deadline_at(time.0),
        Some(TimeOrDuration::In(duration)) => call = call.deadline(duration),
        None => {}
    }
    call
}
