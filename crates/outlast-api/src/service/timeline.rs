//! What a timeline of a run shows: all of its operations, and what happened to the run between them.

use std::collections::BTreeMap;

use outlast_core::{Event, MessageId, RunId, Timestamp, TurnRecord};

use super::Service;
use crate::operation::OperationJson;
use crate::payload::PayloadAmount;
use crate::problem::Problem;

/// What a timeline of a run shows, without payloads.
#[derive(Clone, Debug, Default)]
pub struct RunTimeline {
    /// All operations, in the order of their numbers.
    pub operations: Vec<OperationJson>,
    /// What happened to the run, in order.
    pub moments: Vec<RunMoment>,
    /// When the payloads arrived that hooks have taken later, by the numbers of these hooks.
    pub arrivals: BTreeMap<u64, Timestamp>,
    /// When a worker first continued the run.
    pub begun_at: Option<Timestamp>,
}

/// Something that happened to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunMoment {
    /// When.
    pub at: Timestamp,
    /// The number of the first operation after it.
    pub next_op: u64,
    /// What.
    pub kind: MomentKind,
}

/// What happened to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MomentKind {
    /// This generation began.
    Generation(u64),
    /// A loop began.
    Loop,
    /// An iteration of a loop ended: its number, from 1.
    Iteration(u64),
    /// It was asked to stop, for this reason.
    CancelRequested(String),
    /// A wake ended sleeps early.
    Woken,
    /// Its compensations began.
    Compensating,
    /// It had ended, and was retried from this operation.
    Retried(u64),
    /// The events before are copies of those of this run.
    Forked(RunId),
    /// Another build continued it.
    Build(String),
}

impl Service {
    /// What a timeline of the run shows.
    ///
    /// # Errors
    ///
    /// `not_found`.
    pub async fn timeline(&self, run: RunId) -> Result<RunTimeline, Problem> {
        let (history, views) = self.read_history(run).await?;
        Ok(RunTimeline {
            operations: views.iter().map(|view| self.operation_json(view, PayloadAmount::None)).collect(),
            moments: moments(&history),
            arrivals: arrivals(&history),
            begun_at: history.iter().find(|turn| !turn.build.is_empty()).map(|turn| turn.at),
        })
    }
}

fn moments(history: &[TurnRecord]) -> Vec<RunMoment> {
    let mut moments = Vec::new();
    let (mut next_op, mut build) = (0, "");
    for turn in history {
        let mut add = |kind| moments.push(RunMoment { at: turn.at, next_op, kind });
        if !build.is_empty() && !turn.build.is_empty() && build != &*turn.build {
            add(MomentKind::Build(turn.build.to_string()));
        }
        if !turn.build.is_empty() {
            build = &turn.build;
        }
        for event in &turn.events {
            next_op = event.op().map_or(next_op, |op| next_op.max(op.0 + 1));
            if let Some(kind) = moment(event) {
                moments.push(RunMoment { at: turn.at, next_op, kind });
            }
        }
    }
    moments
}

fn moment(event: &Event) -> Option<MomentKind> {
    match event {
        Event::RunContinued(continued) => Some(MomentKind::Generation(continued.generation)),
        Event::LoopStarted { .. } => Some(MomentKind::Loop),
        Event::IterationEnded(ended) => Some(MomentKind::Iteration(ended.iteration)),
        Event::CancelRequested { reason, .. } => Some(MomentKind::CancelRequested(reason.clone())),
        Event::TimerWoken { .. } => Some(MomentKind::Woken),
        Event::RunCompensating { .. } => Some(MomentKind::Compensating),
        Event::RunRetried(retried) => Some(MomentKind::Retried(retried.reopens.0)),
        Event::RunForked(forked) => Some(MomentKind::Forked(forked.of)),
        _ => None,
    }
}

fn arrivals(history: &[TurnRecord]) -> BTreeMap<u64, Timestamp> {
    let mut received: BTreeMap<MessageId, Timestamp> = BTreeMap::new();
    let mut arrivals = BTreeMap::new();
    for turn in history {
        for event in &turn.events {
            match event {
                Event::HookReceived { message, .. } => {
                    received.insert(*message, turn.at);
                }
                Event::HookTaken { op, message } => {
                    if let Some(at) = received.get(message) {
                        arrivals.insert(op.0, *at);
                    }
                }
                _ => {}
            }
        }
    }
    arrivals
}

#[cfg(test)]
mod tests {
    use outlast_core::{OpNumber, Payload, RunForked, RunRetried, TurnId};

    use super::*;

    #[test]
    fn retries_and_forks_are_moments() {
        let of = RunId::from_bits(7);
        let forked = RunForked { of, next_op: OpNumber(1), restarts: Vec::new(), renews: Vec::new() };
        let retried = RunRetried {
            from: 1,
            reopens: OpNumber(0),
            next_op: OpNumber(1),
            restarts: Vec::new(),
            renews: Vec::new(),
            adoptable: Vec::new(),
            deadline: None,
            message: MessageId::from_bits(1),
            reason: String::new(),
            actor: None,
        };
        let completed = Event::StepCompleted { op: OpNumber(0), output: Payload::null() };
        let events = vec![completed, Event::RunForked(forked.into()), Event::RunRetried(retried.into())];
        let at = Timestamp::from_micros(5);
        let turn = TurnRecord { id: TurnId::from_bits(1), seq: 0, at, build: "b".into(), events };
        let moment = |kind| RunMoment { at, next_op: 1, kind };
        assert_eq!(moments(&[turn]), [moment(MomentKind::Forked(of)), moment(MomentKind::Retried(0))]);
    }
}
