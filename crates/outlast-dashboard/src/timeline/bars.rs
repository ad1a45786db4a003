//! The bars of an operation and of the run itself.

use outlast_api::{AttemptJson, MomentKind, OperationJson, RunJson, RunTimeline};
use outlast_core::Timestamp;

use super::moments::moment_words;
use super::rows::status_of;
use super::shape::Shape;

/// The height of bars.
const BAR: u32 = 14;

/// The height of the bars of timers, and of the run.
const THIN: u32 = 6;

/// The height of the bars of hooks.
const HOOK: u32 = 10;

/// What all bars of a run share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bars<'a> {
    pub(super) run: &'a RunJson,
    pub(super) timeline: &'a RunTimeline,
    pub(super) now: Timestamp,
}

impl Bars<'_> {
    /// Where something open ends: now, or with its run.
    pub(super) fn end(&self) -> Timestamp {
        self.run.ended_at.map_or(self.now, |ended| ended.0)
    }

    fn is_open(&self, op: &OperationJson) -> bool {
        op.ended_at.is_none() && self.run.ended_at.is_none()
    }

    /// The bars of an operation.
    pub(super) fn operation(&self, op: &OperationJson) -> Vec<Shape> {
        match op.kind.as_str() {
            "step" if op.queue.is_none() && !op.attempts.is_empty() => self.step(op),
            "step" | "child" => self.other_run(op),
            "timer" => self.timer(op),
            "hook" => self.hook(op),
            _ => vec![Shape::mark(
                "tick",
                &format!("c-{}", status_of(self.run, op, self.now)),
                op.started_at.0,
            )],
        }
    }

    /// A step: a bar for each attempt, dashed lines for the pauses, a triangle for the next attempt.
    fn step(&self, op: &OperationJson) -> Vec<Shape> {
        let mut shapes = Vec::new();
        let mut pause_from: Option<Timestamp> = None;
        let is_numbered = op.attempts.len() > 1;
        for attempt in &op.attempts {
            let due = attempt.due_at.0;
            if let Some(from) = pause_from {
                shapes.push(Shape::line("pause", from, due));
            }
            pause_from = attempt.ended_at.map(|ended| ended.0);
            if due > self.now && attempt.ended_at.is_none() {
                shapes.push(Shape::mark("next", "c-waiting", due));
            } else {
                self.attempt(op, attempt, is_numbered, &mut shapes);
            }
        }
        shapes
    }

    fn attempt(&self, op: &OperationJson, attempt: &AttemptJson, is_numbered: bool, shapes: &mut Vec<Shape>) {
        let from = attempt.due_at.0;
        let to = attempt.ended_at.or(op.ended_at).map_or(self.end(), |ended| ended.0);
        let class = match (&attempt.failure, attempt.ended_at) {
            (Some(_), _) => "failed",
            (None, Some(_)) if op.undoes.is_some() => "compensated",
            (None, Some(_)) => "completed",
            (None, None) if !self.is_open(op) => "cancelled",
            (None, None) if self.run.owner.is_none() => "pending",
            (None, None) => "running",
        };
        shapes.push(Shape::bar(BAR, format!("bar b-{class}"), from, to));
        if is_numbered || attempt.failure.is_some() {
            shapes.push(Shape::number(attempt.number, &format!("number on-{class}"), from, to));
        }
    }

    /// A child or a queued step: a bar in the colour of its status. A queued step is hollow while it is in line.
    fn other_run(&self, op: &OperationJson) -> Vec<Shape> {
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        let status = status_of(self.run, op, self.now);
        let class = match self.is_open(op) && op.queue.is_some() {
            true => "bar b-pending".to_owned(),
            false => format!("bar run b-{status}"),
        };
        vec![Shape::bar(BAR, class, op.started_at.0, to)]
    }

    /// A timer: a thin bar up to now, dashed from there to its moment.
    fn timer(&self, op: &OperationJson) -> Vec<Shape> {
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        let mut shapes = vec![Shape::bar(THIN, "bar timer", op.started_at.0, to)];
        let until = op.until.map(|until| until.0);
        match until {
            Some(until) if self.is_open(op) && until > to => {
                shapes.extend([Shape::line("future", to, until), Shape::mark("ring", "c-waiting", until)]);
            }
            Some(until) if op.status == "completed" && until > to => {
                shapes.push(Shape::mark("woken", "c-accent", to));
            }
            _ => shapes.push(Shape::mark("dot", &format!("c-{}", status_of(self.run, op, self.now)), to)),
        }
        shapes
    }

    /// A hook: a hollow bar, a diamond for each payload, a cap where the wait timed out.
    fn hook(&self, op: &OperationJson) -> Vec<Shape> {
        let from = op.started_at.0;
        let to = op.ended_at.map_or(self.end(), |ended| ended.0);
        let mut shapes = Vec::new();
        let arrived = self.timeline.arrivals.get(&op.op).filter(|arrived| **arrived < from);
        if let Some(arrived) = arrived {
            shapes.extend([
                Shape::line("future", *arrived, from),
                Shape::mark("diamond", "c-completed", *arrived),
            ]);
        }
        shapes.push(Shape::bar(HOOK, "bar hook", from, to));
        shapes.extend(op.rejected.iter().map(|rejected| Shape::mark("diamond", "c-failed", rejected.at.0)));
        match op.status.as_str() {
            "completed" if arrived.is_none() => shapes.push(Shape::mark("diamond", "c-completed", to)),
            "completed" => {}
            "open" if self.run.ended_at.is_none() => {
                if let Some(until) = op.until {
                    shapes.extend([
                        Shape::line("future", to, until.0),
                        Shape::mark("ring", "c-waiting", until.0),
                    ]);
                }
            }
            "failed" => shapes.push(Shape::mark("cap", "c-failed", to)),
            _ => shapes.push(Shape::mark("cap", "c-cancelled", to)),
        }
        shapes
    }

    /// The bar of the run: in line, held by a worker, waiting, stuck or paused; with marks for what happened to it.
    pub(super) fn run(&self) -> Vec<Shape> {
        let (begin, end) = (self.run.created_at.0, self.end());
        let begun = self.timeline.begun_at.unwrap_or(end).max(begin);
        let since = self.run.updated_at.0.clamp(begin, end);
        let mut shapes = vec![Shape::bar(THIN, "bar r-waiting", begun, end)];
        if begun > begin {
            shapes.push(Shape::bar(THIN, "bar r-ready", begin, begun));
        }
        // The attempts of a fork that are older were made by the other run.
        for (from, to) in self.held().into_iter().filter(|(_, to)| *to > begin) {
            let from = from.max(begin);
            shapes.push(Shape::bar(THIN, "bar r-held", from, to));
        }
        let is_paused = self.run.ended_at.is_none() && self.run.marks.iter().any(|mark| mark == "paused");
        if self.run.stuck.is_some() {
            shapes.push(Shape::bar(THIN, "bar r-stuck", since, end));
        } else if is_paused {
            shapes.push(Shape::bar(THIN, "bar r-paused", since, end));
        }
        for moment in &self.timeline.moments {
            let (form, class) = match moment.kind {
                MomentKind::CancelRequested(_) => ("flag", "c-failed"),
                MomentKind::Compensating => ("flag", "c-compensated"),
                MomentKind::Woken => ("woken", "c-accent"),
                MomentKind::Generation(_) => ("tick", "c-accent"),
                MomentKind::Build(_) | MomentKind::Retried(_) | MomentKind::Forked(_) => ("flag", "c-accent"),
                _ => continue,
            };
            let title = moment_words(&moment.kind).unwrap_or_default();
            shapes.push(Shape::mark(form, class, moment.at).titled(title));
        }
        if let Some(deadline) = self.run.deadline.filter(|deadline| deadline.0 <= end) {
            shapes.push(Shape::mark("cap", "c-stuck", deadline.0).titled("deadline"));
        }
        if let Some(ended) = self.run.ended_at {
            let (_, class) = crate::ui::badge::look(crate::ui::badge::shown_status(self.run));
            shapes.push(Shape::mark("dot", &format!("c-{class}"), ended.0));
        }
        shapes
    }

    /// The times at which attempts were in progress here, so that a worker held the run.
    fn held(&self) -> Vec<(Timestamp, Timestamp)> {
        let mut attempts: Vec<_> = self.attempts().collect();
        attempts.sort_unstable();
        let mut held: Vec<(Timestamp, Timestamp)> = Vec::new();
        for (from, to) in attempts {
            match held.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => held.push((from, to)),
            }
        }
        held
    }

    /// The times of all attempts that have begun.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let steps = self.timeline.operations.iter().filter(|op| op.queue.is_none());
        let end = self.end();
        steps.flat_map(move |op| {
            op.attempts.iter().filter_map(move |attempt| {
                let is_in_progress = attempt.ended_at.is_none() && op.ended_at.is_none();
                let is_begun = attempt.due_at.0 <= end && (!is_in_progress || self.run.owner.is_some());
                let to = attempt.ended_at.or(op.ended_at).map_or(end, |ended| ended.0);
                is_begun.then_some((attempt.due_at.0, to))
            })
        })
    }
}
