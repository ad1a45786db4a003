//! Drives one run to its end: answers its hooks, cancels it, and lets time pass.

use std::time::Duration;

use outlast::{RunId, RunView, Status, Wait};
use outlast_core::{OpNumber, Timestamp};
use serde_json::Value;

use crate::TestClock;
use crate::world::TestWorld;

/// The maximum number of moments at which something happens. More mean an endless loop of sleeps.
const MOMENTS_MAX: usize = 10_000;

/// What happens to a run from outside.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) answers: Vec<Answer>,
    /// When the run is cancelled, counted from its start, and why.
    pub(super) cancel: Option<(Duration, String)>,
}

/// A payload for a hook that the run waits for.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) hook: String,
    /// How long the run waits before.
    pub(super) after: Duration,
    pub(super) payload: Value,
}

/// The part of a script that is left.
struct Remaining<'a> {
    answers: Vec<&'a Answer>,
    cancel: Option<(Timestamp, &'a str)>,
    /// The hooks that the run waits for, and since when.
    waiting: Vec<(OpNumber, Timestamp)>,
}

/// Something that is due.
enum Due<'a> {
    Answer(usize),
    Cancel(&'a str),
}

impl Script {
    /// Drives the run until it has ended, and lets other runs do what they can do without time.
    ///
    /// # Errors
    ///
    /// Why the run does not end.
    pub(super) async fn play(&self, world: &TestWorld, run: RunId) -> Result<(), String> {
        let cancel = self.cancel.as_ref();
        let mut remaining = Remaining {
            answers: self.answers.iter().collect(),
            cancel: cancel.map(|(after, reason)| (TestClock::BEGIN.plus(*after), &**reason)),
            waiting: Vec::new(),
        };
        for _ in 0..MOMENTS_MAX {
            world.settle().await;
            let view = world.client().run(run).await.map_err(|error| error.to_string())?;
            if view.status.is_final() {
                return remaining.check_answers();
            }
            if view.status == Status::Stuck {
                return Err(world.explain(run).await);
            }
            remaining.note_waits(&view, world.now());
            let next_sleeper = world.clock().next_sleeper();
            match remaining.next(&view) {
                Some((at, due)) if at <= world.now() => remaining.perform(due, world, run).await?,
                Some((at, _)) => world.clock().advance_to(next_sleeper.map_or(at, |sleeper| sleeper.min(at))),
                None => match next_sleeper {
                    Some(sleeper) => world.clock().advance_to(sleeper),
                    None => return Err(world.explain(run).await),
                },
            }
        }
        Err(format!(
            "it sleeps in a loop: something was due {MOMENTS_MAX} times, the last time at {}",
            world.now()
        ))
    }
}

impl<'a> Remaining<'a> {
    /// Remembers since when the run waits for its open hooks.
    fn note_waits(&mut self, view: &RunView, now: Timestamp) {
        let open: Vec<_> = hooks(view).map(|(op, _)| op).collect();
        self.waiting.retain(|(op, _)| open.contains(op));
        for op in open {
            if !self.waiting.iter().any(|(known, _)| *known == op) {
                self.waiting.push((op, now));
            }
        }
    }

    /// What is due next, and when.
    fn next(&self, view: &RunView) -> Option<(Timestamp, Due<'a>)> {
        let answers = hooks(view).filter_map(|(op, name)| {
            let index = self.answers.iter().position(|answer| answer.hook == name)?;
            let since = self.waiting.iter().find(|(waiting, _)| *waiting == op)?.1;
            Some((since.plus(self.answers[index].after), Due::Answer(index)))
        });
        let cancel = self.cancel.map(|(at, reason)| (at, Due::Cancel(reason)));
        answers.chain(cancel).min_by_key(|(at, _)| *at)
    }

    async fn perform(&mut self, due: Due<'a>, world: &TestWorld, run: RunId) -> Result<(), String> {
        let client = world.client();
        let done = match due {
            Due::Answer(index) => {
                let answer = self.answers.remove(index);
                client.send(run, &*answer.hook, &answer.payload).await
            }
            Due::Cancel(reason) => {
                self.cancel = None;
                client.cancel(run, reason).await.map(drop)
            }
        };
        done.map_err(|error| error.to_string())
    }

    /// Answers that were never sent are a mistake in the test.
    fn check_answers(&self) -> Result<(), String> {
        match self.answers.first() {
            None => Ok(()),
            Some(answer) => Err(format!(
                "it has ended without waiting for the answer to hook `{}`; remove the answer, or correct its name",
                answer.hook
            )),
        }
    }
}

fn hooks(view: &RunView) -> impl Iterator<Item = (OpNumber, &str)> {
    view.waits.iter().filter_map(|wait| match wait {
        Wait::Hook { op, name, .. } => Some((OpNumber(*op), &**name)),
        _ => None,
    })
}
