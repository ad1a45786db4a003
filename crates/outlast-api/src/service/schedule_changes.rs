//! Creating, changing and controlling schedules.

use std::time::Duration;

use outlast::{
    CatchUp, Error, ErrorKind, Overlap, ScheduleAnswer, ScheduleBuilder, ScheduleCall, ScheduleHandle,
    ScheduleInput,
};
use outlast_core::limits::{CATCH_UP_MAX, NAME_BYTES_MAX, PRIORITY_MAX};
use outlast_core::queue::{check_name as check_reserved, check_queue, check_workflow_name};
use outlast_core::without_secrets;
use serde_json::value::RawValue;

use super::problems::{check_length, check_name, check_reason, of_error, too_long};
use super::schedules::not_found;
use super::start::ACTOR_HEADER;
use super::{Caller, Service};
use crate::control::DidWhat;
use crate::page::PageRequest;
use crate::problem::{Problem, ProblemCode};
use crate::schedule::{
    BackfillRequest, BackfilledJson, CatchUpRule, OverlapRule, ScheduleControlledJson, ScheduleDefinition,
    ScheduleFilter, ScheduleJson, SchedulePauseRequest, ScheduleResult, SchedulesControlledJson,
    SchedulesRequest,
};

/// How long a worker has to make a change.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// How many instants are caught up unless a request says it.
const CATCH_UP_DEFAULT: u32 = 100;

/// The largest number of instants that a backfill counts.
const INSTANTS_COUNTED: usize = 10_000;

/// The largest number of schedules in one request.
const SCHEDULES_MAX: usize = 1_000;

impl Service {
    /// `POST /api/schedules`.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `too_long`, `input_invalid`, `conflict` if there is one with this name.
    pub async fn create_schedule(
        &self,
        caller: &Caller,
        definition: &ScheduleDefinition,
    ) -> Result<ScheduleJson, Problem> {
        let id = definition.id.as_deref().unwrap_or_default();
        check_name("/id", id, NAME_BYTES_MAX)?;
        check_reserved("schedule", id).map_err(|message| Problem::field("/id", message))?;
        let client = self.acting_as(caller);
        let call = self.schedule_call(caller, client.schedule(id), definition).await?;
        let handle = call.create_only().await.map_err(of_definition)?;
        self.schedule_of(&handle).await
    }

    /// `PUT /api/schedules/{id}`. The expected revision is that of `If-Match`; `None` for `*`.
    ///
    /// # Errors
    ///
    /// `not_found`, `invalid_request`, `stale`, `unavailable` if no worker made the change within 10 s.
    pub async fn replace_schedule(
        &self,
        caller: &Caller,
        id: &str,
        definition: &ScheduleDefinition,
        revision: Option<u64>,
    ) -> Result<ScheduleControlledJson, Problem> {
        let handle = self.client.schedule_handle(id);
        let view = self.schedule_view(&handle).await?;
        let definition = &with_stored_secrets(definition, &view.input);
        if definition.id.as_ref().is_some_and(|given| given != id) {
            return Err(Problem::field("/id", "it is not the one of the path; schedules keep their names"));
        }
        let client = self.acting_as(caller);
        let call = self.schedule_call(caller, client.schedule(id), definition).await?;
        let answer = call.replace(revision, ANSWER_TIME).await;
        self.schedule_controlled(&handle, answer.map_err(|error| (error, true))).await
    }

    /// `POST /api/schedules/{id}/pause`.
    ///
    /// # Errors
    ///
    /// `not_found`, `too_long`, `unavailable` if no worker made the change within 10 s.
    pub async fn pause_schedule(
        &self,
        caller: &Caller,
        id: &str,
        request: &SchedulePauseRequest,
    ) -> Result<ScheduleControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let reason = super::control::reason(caller, request.reason.as_deref());
        let handle = self.acting_as(caller).schedule_handle(id);
        let answer = handle.confirmed(ANSWER_TIME).pause(&reason).await;
        self.schedule_controlled(&handle, answer.map_err(|error| (error, false))).await
    }

    /// `POST /api/schedules/{id}/resume`.
    ///
    /// # Errors
    ///
    /// As for a pause.
    pub async fn resume_schedule(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<ScheduleControlledJson, Problem> {
        let handle = self.acting_as(caller).schedule_handle(id);
        let answer = handle.confirmed(ANSWER_TIME).resume().await;
        self.schedule_controlled(&handle, answer.map_err(|error| (error, false))).await
    }

    /// `POST /api/schedules/{id}/trigger`.
    ///
    /// # Errors
    ///
    /// As for a pause.
    pub async fn trigger_schedule(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<ScheduleControlledJson, Problem> {
        let handle = self.acting_as(caller).schedule_handle(id);
        let answer = handle.confirmed(ANSWER_TIME).trigger().await;
        self.schedule_controlled(&handle, answer.map_err(|error| (error, false))).await
    }

    /// `POST /api/schedules/{id}/backfill`.
    ///
    /// # Errors
    ///
    /// As for a pause; `invalid_request` if the range is not in the past; `limit` if too many ranges wait.
    pub async fn backfill_schedule(
        &self,
        caller: &Caller,
        id: &str,
        request: &BackfillRequest,
    ) -> Result<BackfilledJson, Problem> {
        let handle = self.acting_as(caller).schedule_handle(id);
        let range = request.from.0..request.to.0;
        let view = self.schedule_view(&handle).await?;
        if range.is_empty() || range.end > self.now().0 {
            return Err(Problem::field("/to", "it must be later than `from`, and not in the future"));
        }
        let mut instants = view.instants_in(range.clone(), INSTANTS_COUNTED + 1).map_err(of_error)?;
        let more = instants.len() > INSTANTS_COUNTED;
        instants.truncate(INSTANTS_COUNTED);
        let controlled = match request.dry_run {
            true => {
                ScheduleControlledJson { did: DidWhat::Nothing, schedule: self.schedule_of(&handle).await? }
            }
            false => {
                let answer = handle.confirmed(ANSWER_TIME).backfill(range).await;
                self.schedule_controlled(&handle, answer.map_err(|error| (error, false))).await?
            }
        };
        Ok(BackfilledJson {
            did: controlled.did,
            instants: instants.len() as u64,
            more,
            sample: instants.into_iter().take(10).map(Into::into).collect(),
            schedule: controlled.schedule,
        })
    }

    /// `DELETE /api/schedules/{id}`. The expected revision is that of `If-Match`.
    ///
    /// # Errors
    ///
    /// `not_found`, `stale`, `unavailable` if no worker ended it in time.
    pub async fn delete_schedule(
        &self,
        caller: &Caller,
        id: &str,
        revision: Option<u64>,
    ) -> Result<(), Problem> {
        let handle = self.acting_as(caller).schedule_handle(id);
        let found = self.schedule_view(&handle).await?.revision;
        if revision.is_some_and(|expected| expected != found) {
            return Err(stale(id, found));
        }
        handle.delete().await.map_err(of_error)
    }

    /// `POST /api/schedules/pause`.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `too_long`. What is refused by one schedule does not affect the others.
    pub async fn pause_schedules(
        &self,
        caller: &Caller,
        request: &SchedulesRequest,
    ) -> Result<SchedulesControlledJson, Problem> {
        check_reason(request.reason.as_deref())?;
        let pause = SchedulePauseRequest { reason: request.reason.clone() };
        let ids = self.chosen_schedules(request).await?;
        let results = ids.into_iter().map(|id| async {
            let result = self.pause_schedule(caller, &id, &pause).await;
            result_of(id, result)
        });
        Ok(SchedulesControlledJson { results: futures_util::future::join_all(results).await })
    }

    /// `POST /api/schedules/resume`.
    ///
    /// # Errors
    ///
    /// As for a pause.
    pub async fn resume_schedules(
        &self,
        caller: &Caller,
        request: &SchedulesRequest,
    ) -> Result<SchedulesControlledJson, Problem> {
        if request.reason.is_some() {
            return Err(Problem::field("/reason", "only a pause has a reason"));
        }
        let ids = self.chosen_schedules(request).await?;
        let results = ids.into_iter().map(|id| async {
            let result = self.resume_schedule(caller, &id).await;
            result_of(id, result)
        });
        Ok(SchedulesControlledJson { results: futures_util::future::join_all(results).await })
    }

    async fn chosen_schedules(&self, request: &SchedulesRequest) -> Result<Vec<String>, Problem> {
        match (request.all, request.ids.len()) {
            (true, 0) => {}
            (true, _) => return Err(Problem::field("/ids", "the request has `all` too; use one of them")),
            (false, 0) => return Err(Problem::field("/ids", "name at least one schedule, or set `all`")),
            (false, count) if count > SCHEDULES_MAX => {
                return Err(too_long("/ids", format!("it has {count} names, the limit is {SCHEDULES_MAX}")));
            }
            (false, _) => return Ok(request.ids.clone()),
        }
        let page = PageRequest { limit: Some(PageRequest::LIMIT_MAX), cursor: None };
        let mut filter = ScheduleFilter { page, ..ScheduleFilter::default() };
        let mut ids = Vec::new();
        loop {
            let found = self.schedules(&filter).await?;
            ids.extend(found.items.into_iter().map(|schedule| schedule.id));
            match found.next {
                Some(next) => filter.page.cursor = Some(next),
                None => return Ok(ids),
            }
        }
    }

    /// The call that saves the definition of a request.
    async fn schedule_call<'a>(
        &self,
        caller: &Caller,
        builder: ScheduleBuilder<'a>,
        definition: &ScheduleDefinition,
    ) -> Result<ScheduleCall<'a>, Problem> {
        check_definition(definition)?;
        let version = match definition.version {
            Some(version) => version,
            None => self.newest_version(&definition.workflow).await?,
        };
        let input = definition.input.as_ref().map_or("null", |input| input.get());
        let builder = with_rule(builder, definition).header(ACTOR_HEADER, &caller.actor);
        Ok(with_target(builder, definition).start_json(&definition.workflow, version, input))
    }

    async fn schedule_controlled(
        &self,
        handle: &ScheduleHandle,
        answer: Result<ScheduleAnswer, (Error, bool)>,
    ) -> Result<ScheduleControlledJson, Problem> {
        let did = match answer {
            Ok(ScheduleAnswer::Done) => DidWhat::Requested,
            Ok(ScheduleAnswer::Already) => DidWhat::Already,
            Ok(ScheduleAnswer::Stale) => {
                return Err(stale(handle.name(), self.schedule_view(handle).await?.revision));
            }
            Ok(ScheduleAnswer::Full) => {
                let detail = "too many ranges wait to be backfilled; try again when some of them have fired";
                return Err(Problem::new(ProblemCode::Limit, detail));
            }
            Ok(_) => DidWhat::Nothing,
            Err((error, _)) if error.kind() == ErrorKind::NotFound => return Err(not_found(handle.name())),
            Err((error, _)) if error.kind() == ErrorKind::Timeout => {
                return Err(Problem::new(ProblemCode::Unavailable, error.to_string()));
            }
            Err((error, true)) => return Err(of_definition(error)),
            Err((error, false)) => return Err(of_error(error)),
        };
        Ok(ScheduleControlledJson { did, schedule: self.schedule_of(handle).await? })
    }
}

fn result_of(id: String, result: Result<ScheduleControlledJson, Problem>) -> ScheduleResult {
    match result {
        Ok(controlled) => ScheduleResult { id, did: Some(controlled.did), problem: None },
        Err(problem) => ScheduleResult { id, did: None, problem: Some(problem) },
    }
}

fn stale(id: &str, revision: u64) -> Problem {
    let detail = format!("schedule `{id}` was changed meanwhile: it has revision {revision}; read it again");
    Problem::new(ProblemCode::Stale, detail).with(|problem| problem.etag = Some(format!("\"{revision}\"")))
}

/// A definition in which the input was left as it is shown has the stored input with its secrets.
fn with_stored_secrets(definition: &ScheduleDefinition, stored: &ScheduleInput) -> ScheduleDefinition {
    let mut definition = definition.clone();
    if let (Some(given), ScheduleInput::Json(stored)) = (&mut definition.input, stored)
        && given.get() == without_secrets(stored)
        && let Ok(stored) = RawValue::from_string(stored.clone())
    {
        *given = stored;
    }
    definition
}

/// The problem of a definition that was refused. Everything else was checked before, so what is invalid is the input.
fn of_definition(error: Error) -> Problem {
    match error.kind() {
        ErrorKind::Invalid => Problem::new(ProblemCode::InputInvalid, error.to_string()),
        _ => of_error(error),
    }
}

/// Checks everything that the library would refuse, so that the problem names the field.
fn check_definition(definition: &ScheduleDefinition) -> Result<(), Problem> {
    if definition.input_from.is_some() || definition.input_omitted {
        let message = "only programs can set it; give an `input`";
        return Err(Problem::field("/input_from", message));
    }
    super::schedules::check_timing(definition)?;
    check_name("/workflow", &definition.workflow, NAME_BYTES_MAX)?;
    check_workflow_name(&definition.workflow).map_err(|message| Problem::field("/workflow", message))?;
    if let Some(queue) = &definition.queue {
        check_length("/queue", queue, NAME_BYTES_MAX)?;
        check_queue(queue).map_err(|message| Problem::field("/queue", message))?;
    }
    if definition.priority.is_some_and(|priority| priority > PRIORITY_MAX) {
        return Err(Problem::field("/priority", format!("expected 0 to {PRIORITY_MAX}")));
    }
    if definition.catch_up_limit.is_some_and(|limit| !(1..=CATCH_UP_MAX).contains(&limit)) {
        return Err(Problem::field("/catch_up_limit", format!("expected 1 to {CATCH_UP_MAX}")));
    }
    if definition.catch_up_limit.is_some() && definition.catch_up != Some(CatchUpRule::All) {
        return Err(Problem::field("/catch_up_limit", "it needs `catch_up: all`"));
    }
    if definition.pause_after == Some(0) {
        return Err(Problem::field("/pause_after", "expected 1 or more"));
    }
    if definition.start_at.zip(definition.end_at).is_some_and(|(start, end)| end.0 <= start.0) {
        return Err(Problem::field("/end_at", "it is not after `start_at`"));
    }
    for (pointer, text) in [("/jitter", &definition.jitter), ("/deadline", &definition.deadline)] {
        let read = text.as_deref().map(outlast_core::IntoDuration::into_duration).transpose();
        read.map_err(|error| Problem::field(pointer, error.to_string()))?;
    }
    Ok(())
}

fn with_rule<'a>(mut builder: ScheduleBuilder<'a>, definition: &ScheduleDefinition) -> ScheduleBuilder<'a> {
    if let Some(cron) = &definition.cron {
        builder = builder.cron(cron).timezone(definition.zone.as_deref().unwrap_or("UTC"));
    }
    if let Some(every) = &definition.every {
        builder = builder.every(every.as_str());
    }
    if let Some(jitter) = &definition.jitter {
        builder = builder.jitter(jitter.as_str());
    }
    if let Some(start) = definition.start_at {
        builder = builder.start_at(start.0);
    }
    if let Some(end) = definition.end_at {
        builder = builder.end_at(end.0);
    }
    if let Some(failures) = definition.pause_after {
        builder = builder.pause_after(failures);
    }
    builder
        .overlap(match definition.overlap {
            None | Some(OverlapRule::Skip) => Overlap::Skip,
            Some(OverlapRule::Queue) => Overlap::Queue,
            Some(OverlapRule::Allow) => Overlap::Allow,
            Some(OverlapRule::CancelPrevious) => Overlap::CancelPrevious,
        })
        .catch_up(match definition.catch_up {
            None | Some(CatchUpRule::Last) => CatchUp::Last,
            Some(CatchUpRule::None) => CatchUp::None,
            Some(CatchUpRule::All) => CatchUp::All(definition.catch_up_limit.unwrap_or(CATCH_UP_DEFAULT)),
        })
}

fn with_target<'a>(mut builder: ScheduleBuilder<'a>, definition: &ScheduleDefinition) -> ScheduleBuilder<'a> {
    for (name, value) in &definition.tags {
        builder = builder.tag(name, value);
    }
    for (name, value) in definition.headers.iter().filter(|(name, _)| *name != ACTOR_HEADER) {
        builder = builder.header(name, value);
    }
    if let Some(queue) = &definition.queue {
        builder = builder.queue(queue.as_str());
    }
    if let Some(priority) = definition.priority {
        builder = builder.priority(priority);
    }
    if let Some(deadline) = &definition.deadline {
        builder = builder.deadline(deadline.as_str());
    }
    builder
}
