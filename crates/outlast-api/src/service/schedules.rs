//! Reading schedules.

use outlast::{
    CatchUp, ErrorKind, FiringView, Overlap, ScheduleHandle, ScheduleInput, ScheduleTiming, ScheduleView,
};
use outlast_core::duration::duration_text;
use outlast_core::{IntoDuration, RunId, Timestamp, without_secrets};
use serde_json::value::RawValue;

use super::Service;
use super::problems::of_error;
use crate::cursor::{Cursor, PageDirection};
use crate::page::{ItemPage, PageRequest};
use crate::problem::{Problem, ProblemCode};
use crate::query::QueryPairs;
use crate::rfc3339::Rfc3339;
use crate::runs::RunFilter;
use crate::schedule::{
    BacklogJson, CatchUpRule, FiredJson, FiringCountsJson, FiringJson, FiringRefusalJson, OverlapRule,
    ScheduleDefinition, ScheduleFilter, ScheduleJson, SchedulePauseJson, SchedulePreviewJson,
    SchedulePreviewRequest,
};

/// The tag of firings that names their schedule.
const SCHEDULE_TAG: &str = "outlast:schedule";

/// The beginning of the keys of firings.
const FIRING_KEY: &str = "outlast:firing:";

/// The number of instants that a schedule shows.
const NEXT_SHOWN: usize = 5;

/// The largest number of instants in a preview.
const PREVIEW_MAX: usize = 50;

impl Service {
    /// `GET /api/schedules`.
    ///
    /// # Errors
    ///
    /// `invalid_request`, `cursor_mismatch`.
    pub async fn schedules(&self, filter: &ScheduleFilter) -> Result<ItemPage<ScheduleJson>, Problem> {
        let filters = ScheduleFilter { page: PageRequest::default(), ..filter.clone() }.to_query();
        let mut call = self.client.schedules().limit(filter.page.limit());
        if let Some(Cursor { position, .. }) = filter.page.cursor(&filters)? {
            call = call.after(RunId::from_bits(position));
        }
        let page = call.await.map_err(of_error)?;
        let is_listed = |schedule: &&ScheduleView| {
            filter.workflow.as_ref().is_none_or(|workflow| *workflow == schedule.workflow)
                && filter.paused.is_none_or(|paused| paused == schedule.paused.is_some())
        };
        let cursor = |run: RunId| Cursor::new(&filters, PageDirection::Next, run.bits()).to_string();
        Ok(ItemPage {
            items: page.schedules.iter().filter(is_listed).map(|view| self.schedule_json(view)).collect(),
            next: page.next.map(cursor),
            prev: None,
        })
    }

    /// `GET /api/schedules/{id}`.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn schedule(&self, id: &str) -> Result<ScheduleJson, Problem> {
        self.schedule_of(&self.client.schedule_handle(id)).await
    }

    pub(super) async fn schedule_of(&self, handle: &ScheduleHandle) -> Result<ScheduleJson, Problem> {
        Ok(self.schedule_json(&self.schedule_view(handle).await?))
    }

    fn schedule_json(&self, view: &ScheduleView) -> ScheduleJson {
        let mut json = schedule(view, self.now().0);
        if self.hides_payloads && json.definition.input.take().is_some() {
            json.definition.input_omitted = true;
        }
        json
    }

    pub(super) async fn schedule_view(&self, handle: &ScheduleHandle) -> Result<ScheduleView, Problem> {
        handle.view().await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => not_found(handle.name()),
            _ => of_error(error),
        })
    }

    /// `GET /api/schedules/{id}/firings`: the newest first.
    ///
    /// # Errors
    ///
    /// `not_found`, `cursor_mismatch`.
    pub async fn firings(&self, id: &str, page: &PageRequest) -> Result<ItemPage<FiringJson>, Problem> {
        self.schedule(id).await?;
        let filter = RunFilter {
            tags: [(SCHEDULE_TAG.to_owned(), id.to_owned())].into(),
            page: page.clone(),
            ..RunFilter::default()
        };
        let ItemPage { items, next, prev } = self.runs(&filter).await?;
        let items = items.into_iter().map(|run| {
            let (scheduled_at, triggered) = instant_of_key(run.key.as_deref().unwrap_or_default());
            FiringJson { scheduled_at, triggered, run }
        });
        Ok(ItemPage { items: items.collect(), next, prev })
    }

    /// `POST /api/schedules/preview`.
    ///
    /// # Errors
    ///
    /// `invalid_request`.
    pub fn preview_schedule(&self, request: &SchedulePreviewRequest) -> Result<SchedulePreviewJson, Problem> {
        preview_schedule(request, self.now())
    }
}

/// An instant in a time zone, to the minute: `2026-11-20 03:00`. `None` if this machine does not know the zone.
pub fn local_minute(zone: &str, at: Rfc3339) -> Option<String> {
    ScheduleTiming::Cron { expression: String::new(), timezone: zone.to_owned() }.local_minute(at.0)
}

/// The instants of a rule, as this machine's time-zone data has them. It needs no world.
///
/// # Errors
///
/// `invalid_request`.
pub fn preview_schedule(
    request: &SchedulePreviewRequest,
    now: Rfc3339,
) -> Result<SchedulePreviewJson, Problem> {
    let count = request.count.unwrap_or(NEXT_SHOWN);
    if !(1..=PREVIEW_MAX).contains(&count) {
        return Err(Problem::field("/count", format!("expected 1 to {PREVIEW_MAX}")));
    }
    let timing = timing(&request.cron, &request.zone, &request.every)?;
    let pointer = if request.cron.is_some() { "/cron" } else { "/every" };
    let invalid = |error: outlast::Error| Problem::field(pointer, error.to_string());
    let after = request.after.unwrap_or(now).0;
    let instants = timing.next_instants(after, count).map_err(invalid)?;
    let description = timing.in_words().map_err(invalid)?;
    let zone = match timing {
        ScheduleTiming::Cron { timezone, .. } => Some(timezone),
        _ => None,
    };
    Ok(SchedulePreviewJson { description, zone, instants: instants.into_iter().map(Into::into).collect() })
}

pub(super) fn not_found(id: &str) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("there is no schedule `{id}`; create it, or check the name"))
}

/// When a rule fires.
fn timing(
    cron: &Option<String>,
    zone: &Option<String>,
    every: &Option<String>,
) -> Result<ScheduleTiming, Problem> {
    match (cron, every) {
        (Some(_), Some(_)) => Err(Problem::field("/every", "the request has `cron` too; use one of them")),
        (None, None) => Err(Problem::field("/cron", "give a cron expression, or an interval as `every`")),
        (Some(cron), None) => Ok(ScheduleTiming::Cron {
            expression: cron.clone(),
            timezone: zone.clone().unwrap_or_else(|| "UTC".into()),
        }),
        (None, Some(_)) if zone.is_some() => Err(Problem::field("/zone", "intervals have no time zone")),
        (None, Some(every)) => {
            let interval = every.as_str().into_duration();
            let interval = interval.map_err(|error| Problem::field("/every", error.to_string()))?;
            Ok(ScheduleTiming::Every { micros: u64::try_from(interval.as_micros()).unwrap_or(u64::MAX) })
        }
    }
}

/// Refuses a definition without a valid rule.
pub(super) fn check_timing(definition: &ScheduleDefinition) -> Result<(), Problem> {
    let timing = timing(&definition.cron, &definition.zone, &definition.every)?;
    let pointer = if definition.cron.is_some() { "/cron" } else { "/every" };
    timing.check().map_err(|error| Problem::field(pointer, error.to_string()))
}

/// The instant in the key of a firing, and whether it was triggered.
fn instant_of_key(key: &str) -> (Option<Rfc3339>, bool) {
    let mut parts = key.strip_prefix(FIRING_KEY).unwrap_or_default().split(':').skip(1);
    let micros = parts.next().and_then(|micros| micros.parse().ok());
    (micros.map(|micros| Timestamp::from_micros(micros).into()), parts.next().is_some())
}

fn schedule(view: &ScheduleView, now: Timestamp) -> ScheduleJson {
    let next = view.next_instants(now, NEXT_SHOWN).unwrap_or_default();
    ScheduleJson {
        id: view.name.clone(),
        run: view.run,
        revision: view.revision,
        definition: definition(view),
        description: view.timing.in_words().unwrap_or_else(|_| view.timing.to_string()),
        paused: view.paused.as_ref().map(|pause| SchedulePauseJson {
            reason: pause.reason.clone(),
            since: pause.since.into(),
            actor: pause.actor.clone(),
        }),
        next: next.into_iter().map(Into::into).collect(),
        next_at: view.next.map(Into::into),
        running: view.running.iter().map(fired).collect(),
        waiting: view.waiting.map(Into::into),
        backlog: view
            .backlog
            .iter()
            .map(|(after, until)| BacklogJson { after: (*after).into(), until: (*until).into() })
            .collect(),
        last: view.last.as_ref().map(fired),
        refusal: view.refusal.as_ref().map(|refusal| FiringRefusalJson {
            scheduled_at: refusal.scheduled_at.into(),
            at: refusal.at.into(),
            message: refusal.message.clone(),
        }),
        problem: view.problem.clone(),
        counts: FiringCountsJson {
            fired: view.counts.fired,
            completed: view.counts.completed,
            failed: view.counts.failed,
            cancelled: view.counts.cancelled,
            skipped: view.counts.skipped,
            missed: view.counts.missed,
            refused: view.counts.refused,
            repeated: view.counts.repeated,
        },
    }
}

fn fired(firing: &FiringView) -> FiredJson {
    FiredJson { run: firing.run, scheduled_at: firing.scheduled_at.into() }
}

fn definition(view: &ScheduleView) -> ScheduleDefinition {
    let (cron, zone, every) = match &view.timing {
        ScheduleTiming::Cron { expression, timezone } => {
            (Some(expression.clone()), Some(timezone.clone()), None)
        }
        ScheduleTiming::Every { micros } => {
            (None, None, Some(duration_text(std::time::Duration::from_micros(*micros))))
        }
        _ => (None, None, None),
    };
    let (input, input_from, input_omitted) = match &view.input {
        ScheduleInput::Json(json) => {
            (RawValue::from_string(without_secrets(json).into_owned()).ok(), None, false)
        }
        ScheduleInput::Step(step) => (None, Some(step.clone()), false),
        _ => (None, None, true),
    };
    let (catch_up, catch_up_limit) = match view.catch_up {
        CatchUp::None => (CatchUpRule::None, None),
        CatchUp::All(limit) => (CatchUpRule::All, Some(limit)),
        _ => (CatchUpRule::Last, None),
    };
    ScheduleDefinition {
        id: Some(view.name.clone()),
        cron,
        zone,
        every,
        workflow: view.workflow.clone(),
        version: Some(view.version),
        input,
        input_from,
        input_omitted,
        queue: Some(view.queue.clone()),
        priority: Some(view.priority),
        tags: view.tags.clone(),
        headers: view.headers.clone(),
        deadline: view.deadline.map(duration_text),
        overlap: Some(match view.overlap {
            Overlap::Queue => OverlapRule::Queue,
            Overlap::Allow => OverlapRule::Allow,
            Overlap::CancelPrevious => OverlapRule::CancelPrevious,
            _ => OverlapRule::Skip,
        }),
        catch_up: Some(catch_up),
        catch_up_limit,
        jitter: (!view.jitter.is_zero()).then(|| duration_text(view.jitter)),
        start_at: view.start_at.map(Into::into),
        end_at: view.end_at.map(Into::into),
        pause_after: view.pause_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_firing_has_its_instant() {
        let at = Some(Rfc3339(Timestamp::from_micros(1_000_000)));
        assert_eq!(instant_of_key("outlast:firing:run_01:1000000"), (at, false));
        assert_eq!(instant_of_key("outlast:firing:run_01:1000000:triggered"), (at, true));
        assert_eq!(instant_of_key("order-42"), (None, false));
    }
}
