//! The built-in workflow of schedules.
//!
//! A generation plans the next instant and waits for whatever comes first: a command of a client, the end of a firing,
//! or the time of the instant. After it has started a firing or obeyed a command it continues as a new generation, with
//! its state as input. So the history that a replay reads is short however long the schedule exists.
//!
//! Firings outlive the generation that started them. The next one takes them over by the numbers of their operations,
//! before anything can be delivered to it, and so learns how each of them ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use outlast_core::limits::{BACKLOG_RANGES_MAX, SCHEDULE_GENERATION_MAX, SCHEDULE_PROBLEM_PAUSE};
use outlast_core::{OpNumber, Timestamp};

use super::COMMAND_HOOK;
use super::answer::ScheduleAnswer;
use super::command::ScheduleCommand;
use super::instants::Instants;
use super::lanes::{FiringEvent, FiringFuture};
use super::late_firings::LateFirings;
use super::plan::{Plan, PlannedInstant, Planner};
use super::rule::Overlap;
use super::state::{DueFiring, Lane, PublishedSchedule, ScheduleState};
use super::view::SchedulePause;
use crate::authoring::context::Context;
use crate::authoring::operation::{Received, ReceivedOperation, TimerOperation};
use crate::error::Error;

/// The code of the workflow `outlast:schedule`.
pub(crate) async fn schedule(
    ctx: Context,
    state: ScheduleState,
    late: Arc<LateFirings>,
) -> Result<(), Error> {
    let mut generation = Generation::begin(ctx, state, late)?;
    loop {
        if generation.is_over && generation.may_continue() {
            return generation.continue_as().await;
        }
        generation.plan()?;
        if generation.has_nothing_left() {
            generation.publish();
            return Ok(());
        }
        generation.publish();
        let event = generation.next_event().await;
        generation.handle(event)?;
    }
}

/// One generation of a schedule.
pub(super) struct Generation {
    pub(super) ctx: Context,
    pub(super) state: ScheduleState,
    late: Arc<LateFirings>,
    commands: ReceivedOperation<ScheduleCommand>,
    /// The ends of firings and of their preparations.
    pub(super) events: FuturesUnordered<FiringFuture>,
    /// The next instant, while there is one, and its timer.
    next: Option<(PlannedInstant, TimerOperation)>,
    /// The pause before the next instant is computed again, while it cannot be.
    problem_timer: Option<TimerOperation>,
    /// Whether there is no further instant.
    is_exhausted: bool,
    /// Whether it continues as the next generation.
    pub(super) is_over: bool,
    handled: u32,
}

enum ScheduleEvent {
    Command(Box<Received<ScheduleCommand>>),
    Firing(FiringEvent),
    /// The time of the next instant has come.
    Due,
    /// It is time to compute the next instant again.
    TryAgain,
}

impl Generation {
    fn begin(ctx: Context, state: ScheduleState, late: Arc<LateFirings>) -> Result<Self, Error> {
        let mut generation = Self {
            commands: ctx.hook(COMMAND_HOOK).received(),
            ctx,
            state,
            late,
            events: FuturesUnordered::new(),
            next: None,
            problem_timer: None,
            is_exhausted: false,
            is_over: false,
            handled: 0,
        };
        // Before the first await: what ends later is delivered to these operations.
        for firing in std::mem::take(&mut generation.state.progress.running) {
            let op = OpNumber(firing.op);
            if let Some(carried) = generation.ctx.carried_firing(op) {
                generation.await_end(op, carried);
                generation.state.progress.running.push(firing);
            }
        }
        for due in std::mem::take(&mut generation.state.progress.preparing) {
            generation.begin_firing(due);
        }
        generation.begin_waiting()?;
        Ok(generation)
    }

    /// Whether the state contains everything: a step that computes an input would be attempted again. That is avoided,
    /// unless the generation has become long.
    fn may_continue(&self) -> bool {
        self.state.progress.preparing.is_empty() || self.handled >= SCHEDULE_GENERATION_MAX
    }

    async fn continue_as(self) -> Result<(), Error> {
        // Operations are requested when the workflow waits.
        let mut has_waited = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        self.ctx.continue_as(&self.state)
    }

    /// Computes the next instant, unless it is known.
    fn plan(&mut self) -> Result<(), Error> {
        let is_planned = self.next.is_some() || self.problem_timer.is_some() || self.is_exhausted;
        if is_planned || self.state.progress.pause.is_some() {
            return Ok(());
        }
        let (run, rule, now) = (self.ctx.run(), &self.state.rule, self.ctx.now());
        let (anchor, position) = (self.state.progress.anchor, self.state.progress.position);
        let late = &*self.late;
        let plan: Result<Plan, String> = self.ctx.record("plan", || {
            let instants = Instants::new(&rule.timing, anchor)?;
            Ok(Planner { run, rule, instants, late }.plan(position, now))
        })?;
        match plan {
            Ok(plan) => {
                self.state.progress.problem = None;
                self.apply_plan(plan)
            }
            Err(problem) => {
                self.state.progress.problem = Some(problem);
                self.problem_timer = Some(self.ctx.sleep(SCHEDULE_PROBLEM_PAUSE));
                Ok(())
            }
        }
    }

    fn apply_plan(&mut self, plan: Plan) -> Result<(), Error> {
        let progress = &mut self.state.progress;
        let is_full = progress.backlog.len() >= BACKLOG_RANGES_MAX;
        progress.counts.missed += plan.missed;
        if let Some(range) = plan.backlog {
            match progress.backlog.last_mut() {
                // Instants between the two ranges that have fired do not fire again.
                Some(last) if is_full => last.until = last.until.max(range.until),
                _ => progress.backlog.push(range),
            }
        }
        self.is_exhausted = plan.next.is_none();
        if self.is_exhausted {
            progress.position = progress.position.max(self.ctx.now());
        }
        self.next = plan.next.map(|next| {
            // What is missed or in the backlog is dealt with. A change of the rule may still add instants before `next`.
            let dealt_with = super::plan::just_before(next.nominal).min(self.ctx.now());
            progress.position = progress.position.max(dealt_with);
            (next, self.ctx.sleep_until(next.at))
        });
        self.begin_waiting()
    }

    /// Drops the plan: the next one is computed from the state as it is then.
    pub(super) fn forget_plan(&mut self) {
        (self.next, self.problem_timer, self.is_exhausted) = (None, None, false);
    }

    /// Whether the next instant has come and is delayed. What is caught up waits with it.
    pub(super) fn is_delayed(&self) -> bool {
        self.next.as_ref().is_some_and(|(next, _)| next.is_delayed(self.ctx.now()))
    }

    /// The next instant of the backlog; removes ranges that are done.
    pub(super) fn next_of_backlog(&mut self) -> Result<Option<Timestamp>, Error> {
        while let Some(range) = self.state.progress.backlog.first().copied() {
            let (timing, anchor) = (&self.state.rule.timing, self.state.progress.anchor);
            let next: Result<Option<Timestamp>, String> =
                self.ctx.record("backlog", || Ok(Instants::new(timing, anchor)?.after(range.after)))?;
            let progress = &mut self.state.progress;
            match next.map(|next| next.filter(|next| *next <= range.until)) {
                Ok(Some(next)) => {
                    progress.backlog[0].after = next;
                    return Ok(Some(next));
                }
                Ok(None) => drop(progress.backlog.remove(0)),
                Err(problem) => {
                    progress.problem = Some(problem);
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Whether the schedule has fired for the last time, and everything has ended.
    fn has_nothing_left(&self) -> bool {
        let progress = &self.state.progress;
        self.is_exhausted
            && self.state.firings() == 0
            && progress.waiting.is_none()
            && progress.backlog.is_empty()
    }

    fn publish(&self) {
        let next = self.next.as_ref().map(|(next, _)| *next);
        self.ctx.publish(&PublishedSchedule::new(&self.state, next));
    }

    async fn next_event(&mut self) -> Result<ScheduleEvent, Error> {
        std::future::poll_fn(|cx| {
            if let Poll::Ready(command) = Pin::new(&mut self.commands).poll(cx) {
                self.commands = self.ctx.hook(COMMAND_HOOK).received();
                return Poll::Ready(command.map(|command| ScheduleEvent::Command(Box::new(command))));
            }
            if let Poll::Ready(Some(event)) = self.events.poll_next_unpin(cx) {
                return Poll::Ready(Ok(ScheduleEvent::Firing(event)));
            }
            let due = self.next.as_mut().map(|(_, timer)| (timer, ScheduleEvent::Due));
            let again = self.problem_timer.as_mut().map(|timer| (timer, ScheduleEvent::TryAgain));
            match due.or(again) {
                Some((timer, event)) => Pin::new(timer).poll(cx).map_ok(|()| event),
                None => Poll::Pending,
            }
        })
        .await
    }

    fn handle(&mut self, event: Result<ScheduleEvent, Error>) -> Result<(), Error> {
        self.handled += 1;
        self.is_over |= self.handled >= SCHEDULE_GENERATION_MAX;
        match event? {
            ScheduleEvent::Command(command) => self.obey(*command),
            ScheduleEvent::Firing(event) => self.firing_happened(event),
            ScheduleEvent::Due => self.due(),
            ScheduleEvent::TryAgain => {
                self.problem_timer = None;
                self.begin_waiting()
            }
        }
    }

    /// The time of the next instant has come.
    fn due(&mut self) -> Result<(), Error> {
        let Some((next, _)) = self.next.take() else { return Ok(()) };
        // Otherwise nobody has served the schedule in time. The next plan says which instants are caught up.
        if next.is_current(self.ctx.now()) {
            self.state.progress.position = next.nominal;
            self.fire(DueFiring { nominal: next.nominal, lane: Lane::Regular });
        }
        Ok(())
    }

    fn obey(&mut self, command: Received<ScheduleCommand>) -> Result<(), Error> {
        let Received { payload, headers, at, message, .. } = command;
        // The command becomes part of the state, so that the history does not grow with it.
        self.is_over = true;
        let answer = match self.state.progress.is_stale(&headers) {
            true => ScheduleAnswer::Stale,
            false => self.execute(payload, headers.get("actor").cloned(), at)?,
        };
        self.state.progress.answer(message, &headers, answer);
        Ok(())
    }

    fn execute(
        &mut self,
        command: ScheduleCommand,
        actor: Option<String>,
        at: Timestamp,
    ) -> Result<ScheduleAnswer, Error> {
        let done_if = |changed| if changed { ScheduleAnswer::Done } else { ScheduleAnswer::Already };
        let answer = match command {
            ScheduleCommand::Define { rule, target } => done_if(self.state.define(*rule, *target, at)),
            ScheduleCommand::Change { rule, target } => {
                done_if(self.state.change(&rule, target.map(|target| *target), at))
            }
            ScheduleCommand::Pause { reason } => {
                let progress = &mut self.state.progress;
                let is_new = progress.pause.is_none();
                progress.pause.get_or_insert(SchedulePause::new(reason, at, actor));
                progress.revision += u64::from(is_new);
                done_if(is_new)
            }
            ScheduleCommand::Resume => self.resume(at),
            ScheduleCommand::Trigger => return Ok(self.trigger(at)),
            ScheduleCommand::Backfill(range) => {
                let backlog = &mut self.state.progress.backlog;
                let is_full = backlog.len() >= BACKLOG_RANGES_MAX;
                if !is_full {
                    backlog.push(range);
                }
                self.begin_waiting()?;
                return Ok(if is_full { ScheduleAnswer::Full } else { ScheduleAnswer::Done });
            }
        };
        self.forget_plan();
        Ok(answer)
    }

    fn resume(&mut self, at: Timestamp) -> ScheduleAnswer {
        let progress = &mut self.state.progress;
        if progress.pause.take().is_none() {
            return ScheduleAnswer::Nothing;
        }
        progress.position = progress.position.max(at);
        progress.failures_in_a_row = 0;
        progress.revision += 1;
        ScheduleAnswer::Done
    }

    fn trigger(&mut self, at: Timestamp) -> ScheduleAnswer {
        let progress = &mut self.state.progress;
        let after_last = progress.triggered.map(|last| Timestamp::from_micros(last.as_micros() + 1));
        let nominal = after_last.map_or(at, |after_last| after_last.max(at));
        progress.triggered = Some(nominal);
        let skipped = progress.counts.skipped;
        self.fire(DueFiring { nominal, lane: Lane::Trigger });
        // With this rule the firing takes the place of another one.
        let replaces = self.state.rule.overlap == Overlap::CancelPrevious;
        let is_skipped = !replaces && self.state.progress.counts.skipped > skipped;
        if is_skipped { ScheduleAnswer::Nothing } else { ScheduleAnswer::Done }
    }
}
