//! Firings: which instants are started, and how they end.

use std::pin::Pin;
use std::time::Duration;

use outlast_core::limits::FIRINGS_RUNNING_MAX;
use outlast_core::refusal::CHILD_NOT_STARTED;
use outlast_core::{OpNumber, Payload, Timestamp};

use super::rule::Overlap;
use super::state::{DueFiring, Lane, RunningFiring};
use super::target::{Firing, FiringInput};
use super::view::{FiringView, SchedulePause, ScheduleRefusal};
use super::workflow::Generation;
use super::{SCHEDULE_TAG, SCHEDULED_AT_HEADER, name_of};
use crate::authoring::firing::NewFiring;
use crate::error::{Error, ErrorKind};

/// What happens to a firing.
pub(super) enum FiringEvent {
    /// Its input was computed.
    Prepared(DueFiring, Result<Payload, Error>),
    /// It has ended, or was not started.
    Ended(OpNumber, Result<(), Error>),
}

pub(super) type FiringFuture = Pin<Box<dyn Future<Output = FiringEvent> + Send>>;

impl Generation {
    /// Deals with an instant that has come, according to the overlap rule.
    pub(super) fn fire(&mut self, due: DueFiring) {
        let overlap = self.state.rule.overlap;
        let may_begin = match overlap {
            Overlap::Allow => self.state.firings() < FIRINGS_RUNNING_MAX,
            _ => !self.state.is_busy(),
        };
        let progress = &mut self.state.progress;
        match overlap {
            _ if may_begin => self.begin_firing(due),
            Overlap::Allow | Overlap::Skip => progress.counts.skipped += 1,
            Overlap::Queue => match &progress.waiting {
                Some(_) => progress.counts.skipped += 1,
                None => progress.waiting = Some(due),
            },
            Overlap::CancelPrevious => {
                progress.counts.skipped += u64::from(progress.waiting.replace(due).is_some());
                let previous = progress.running.iter().filter(|firing| firing.lane != Lane::Backlog);
                previous.for_each(|firing| self.ctx.cancel_firing(OpNumber(firing.op)));
            }
        }
    }

    /// Starts what has waited for the end of another firing, unless the schedule is paused.
    pub(super) fn begin_waiting(&mut self) -> Result<(), Error> {
        if self.state.progress.pause.is_some() {
            return Ok(());
        }
        if !self.state.is_busy()
            && let Some(due) = self.state.progress.waiting.take()
        {
            self.begin_firing(due);
        }
        if !self.state.is_backlog_busy()
            && !self.is_delayed()
            && let Some(nominal) = self.next_of_backlog()?
        {
            self.begin_firing(DueFiring { nominal, lane: Lane::Backlog });
        }
        Ok(())
    }

    /// Begins a firing: computes its input if necessary, or starts it.
    pub(super) fn begin_firing(&mut self, due: DueFiring) {
        match &self.state.target.input {
            FiringInput::Json(json) => {
                let input = Payload::from_json_text(json.clone());
                self.start_firing(due, input);
            }
            FiringInput::Step(step) => {
                let firing = Firing::new(self.name(), due.nominal);
                let input = self.ctx.firing_input(step, &self.state.target.queue, &firing);
                self.state.progress.preparing.push(due);
                self.events.push(Box::pin(async move { FiringEvent::Prepared(due, input.await) }));
            }
        }
    }

    fn name(&self) -> String {
        name_of(self.ctx.key().unwrap_or_default()).to_owned()
    }

    /// Starts the run of a firing with its input, before the codec.
    fn start_firing(&mut self, due: DueFiring, input: Payload) {
        let DueFiring { nominal, lane } = due;
        let (now, target) = (self.ctx.now(), &self.state.target);
        let mut headers = target.headers.clone();
        headers.insert(SCHEDULED_AT_HEADER.into(), nominal.as_micros().to_string());
        let mut tags = target.tags.clone();
        tags.insert(SCHEDULE_TAG.into(), self.name());
        let new = NewFiring {
            workflow: &target.workflow,
            version: target.version,
            queue: &target.queue,
            priority: target.priority,
            input,
            key: self.key_of_firing(due),
            tags,
            headers,
            deadline: target.deadline_micros.map(|micros| now.plus(Duration::from_micros(micros))),
            ending: target.ending.clone(),
        };
        let started = self.ctx.start_firing(new);
        let (op, run) = (started.op(), started.run());
        self.await_end(op, started);
        let progress = &mut self.state.progress;
        progress.running.push(RunningFiring { op: op.0, run, nominal, lane });
        progress.last = Some(FiringView::new(run, nominal));
        progress.counts.fired += 1;
        self.is_over = true;
    }

    /// The key of a firing: no instant of a schedule fires twice.
    fn key_of_firing(&self, due: DueFiring) -> String {
        let (run, instant) = (self.ctx.run(), due.nominal.as_micros());
        match due.lane {
            Lane::Regular | Lane::Backlog => format!("outlast:firing:{run}:{instant}"),
            Lane::Trigger => format!("outlast:firing:{run}:{instant}:triggered"),
        }
    }

    pub(super) fn await_end(
        &mut self,
        op: OpNumber,
        firing: impl Future<Output = Result<(), Error>> + Send + 'static,
    ) {
        self.events.push(Box::pin(async move { FiringEvent::Ended(op, firing.await) }));
    }

    pub(super) fn firing_happened(&mut self, event: FiringEvent) -> Result<(), Error> {
        match event {
            FiringEvent::Prepared(due, input) => {
                self.state.progress.preparing.retain(|other| *other != due);
                match input {
                    Ok(input) => self.start_firing(due, input),
                    Err(error) => self.refused(due.nominal, &error),
                }
            }
            FiringEvent::Ended(op, outcome) => {
                let running = &mut self.state.progress.running;
                let Some(index) = running.iter().position(|firing| firing.op == op.0) else { return Ok(()) };
                let firing = running.remove(index);
                self.firing_ended(firing, outcome);
            }
        }
        self.begin_waiting()
    }

    fn firing_ended(&mut self, firing: RunningFiring, outcome: Result<(), Error>) {
        let progress = &mut self.state.progress;
        match outcome {
            Ok(()) => {
                progress.counts.completed += 1;
                progress.failures_in_a_row = 0;
            }
            Err(error) if error.code() == Some(CHILD_NOT_STARTED) => {
                progress.counts.fired -= 1;
                // The key of the firing names an earlier run: this instant has fired before.
                if error.kind() == ErrorKind::Conflict {
                    progress.counts.repeated += 1;
                } else {
                    self.refused(firing.nominal, &error);
                }
            }
            Err(error) if error.is_cancelled() => progress.counts.cancelled += 1,
            Err(_) => {
                progress.counts.failed += 1;
                self.failed();
            }
        }
    }

    fn refused(&mut self, nominal: Timestamp, error: &Error) {
        let progress = &mut self.state.progress;
        progress.counts.refused += 1;
        progress.refusal = Some(ScheduleRefusal::new(nominal, self.ctx.now(), error.to_string()));
        self.failed();
    }

    /// Pauses the schedule after too many failures in a row.
    fn failed(&mut self) {
        let progress = &mut self.state.progress;
        progress.failures_in_a_row += 1;
        let failures = progress.failures_in_a_row;
        if self.state.rule.pause_after.is_some_and(|limit| failures >= limit) && progress.pause.is_none() {
            let reason = format!("{failures} firings in a row failed");
            progress.pause = Some(SchedulePause::new(reason, self.ctx.now(), None));
            self.forget_plan();
        }
    }
}
