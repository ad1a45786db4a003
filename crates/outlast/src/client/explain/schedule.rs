//! What the explanation of a schedule's run says about the schedule.

use outlast_core::RunView;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::schedule::{SCHEDULE_WORKFLOW, ScheduleView, name_of};

impl Client {
    /// The schedule of a run that has not ended; `None` if it is another run, or cannot be read. Adds what is said about
    /// it.
    pub(super) async fn explained_schedule(
        &self,
        view: &RunView,
        sentence: &mut String,
    ) -> Result<Option<ScheduleView>, Error> {
        if *view.workflow != *SCHEDULE_WORKFLOW || view.ended_at.is_some() {
            return Ok(None);
        }
        let name = name_of(view.key.as_deref().unwrap_or_default());
        match self.published_schedule(view.id).await {
            Ok(published) => {
                let schedule = ScheduleView::new(name, view.id, published);
                sentence.push_str(&sentences(&schedule));
                Ok(Some(schedule))
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// The sentences about a schedule, for people.
fn sentences(schedule: &ScheduleView) -> String {
    let ScheduleView { name, timing, workflow, counts, .. } = schedule;
    let mut text = format!(" It is the schedule `{name}`, which starts `{workflow}`: {timing}.");
    if let Some(paused) = &schedule.paused {
        let actor = paused.actor.as_ref().map(|actor| format!(" by {actor}")).unwrap_or_default();
        let reason = if paused.reason.is_empty() { "no reason given" } else { &paused.reason };
        text.push_str(&format!(
            " It is paused since {}{actor}: {reason}. Resume it to fire again.",
            paused.since
        ));
    } else if let Some(problem) = &schedule.problem {
        text.push_str(&format!(
            " Its next instant cannot be computed, and it tries again every minute: {problem}."
        ));
    } else if let Some(next) = schedule.next {
        text.push_str(&format!(" It fires next at {next}."));
    }
    match &*schedule.running {
        [] => {}
        [one] => text.push_str(&format!(" The firing of {} is running: {}.", one.scheduled_at, one.run)),
        many => text.push_str(&format!(" {} firings are running.", many.len())),
    }
    if let Some(waiting) = schedule.waiting {
        text.push_str(&format!(" The instant {waiting} waits for the end of the previous firing."));
    }
    if !schedule.backlog.is_empty() {
        text.push_str(" Earlier instants are being caught up, one after the other.");
    }
    if let Some(refusal) = &schedule.refusal {
        let times = counts.refused;
        text.push_str(&format!(
            " Of its starts {times} were refused, last that of {} at {}: {}.",
            refusal.scheduled_at, refusal.at, refusal.message
        ));
    }
    text
}
