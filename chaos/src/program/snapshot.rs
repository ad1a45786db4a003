//! A snapshot of all runs of a world.

use std::collections::{BTreeMap, BTreeSet};

use outlast::core::cut::{is_skipped, retried_ranges};
use outlast::core::event::TurnRecord;
use outlast::core::{BuiltInRuns, Event, QueuedSteps};
use outlast::{Client, Counts, ListOrder, RunId, RunQuery, RunView, Status, Timestamp};

use super::Result;
use super::report::Checks;

/// All runs of a world, with their histories, by key.
#[derive(Debug)]
pub(crate) struct WorldSnapshot {
    pub(crate) runs: BTreeMap<String, RunSnapshot>,
    /// The statuses of the runs of schedules.
    pub(crate) built_in: Vec<Status>,
    /// The steps that follow the ends of runs, by these runs.
    pub(crate) after_end: BTreeMap<RunId, Vec<Status>>,
    pub(crate) counts: Counts,
    pub(crate) workers: usize,
}

/// One run of a snapshot.
#[derive(Debug)]
pub(crate) struct RunSnapshot {
    pub(crate) view: RunView,
    pub(crate) history: Vec<TurnRecord>,
}

/// An attempt that a history announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnnouncedAttempt {
    /// The time of the turn that recorded its end.
    pub(crate) ended: Option<Timestamp>,
}

impl WorldSnapshot {
    /// Reads everything.
    pub(crate) async fn take(client: &Client, checks: &mut Checks) -> Result<Self> {
        let (mut runs, mut built_in) = (BTreeMap::new(), Vec::new());
        let mut after_end = BTreeMap::<_, Vec<_>>::new();
        let mut query = RunQuery {
            order: ListOrder::OldestFirst,
            built_in: BuiltInRuns::Listed,
            queued_steps: QueuedSteps::Listed,
            ..RunQuery::default()
        };
        loop {
            let page = client.runs(query.clone()).await?;
            for view in page.runs {
                if view.is_built_in() {
                    built_in.push(view.status);
                    continue;
                }
                if view.workflow.starts_with("step:") {
                    let parent = view.parent.as_ref().ok_or("a queued step has no parent")?;
                    after_end.entry(parent.run).or_default().push(view.status);
                    continue;
                }
                let history = client.history(view.id).await?;
                let forked = || view.forked_from().map(|of| format!("fork of {of}"));
                let key = view.key.clone().or_else(forked).ok_or("a run has no key")?;
                let before = runs.insert(key.clone(), RunSnapshot { view, history });
                checks.that(before.is_none(), || format!("two runs have the key {key}"))?;
            }
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        let (counts, workers) = (client.counts().await?, client.workers().await?.len());
        Ok(Self { runs, built_in, after_end, counts, workers })
    }

    /// Checks the rules that hold at all times.
    pub(crate) fn check_always(&self, checks: &mut Checks) -> Result<()> {
        let mut counted = Counts::new();
        for (key, run) in &self.runs {
            run.check_history(key, checks)?;
            *counted.entry(run.view.status).or_default() += 1;
        }
        for status in self.built_in.iter().chain(self.after_end.values().flatten()) {
            *counted.entry(*status).or_default() += 1;
        }
        let nonzero = |counts: &Counts| {
            counts.iter().filter(|(_, count)| **count > 0).map(|(s, c)| (*s, *c)).collect::<Vec<_>>()
        };
        let (counted, nonzero) = (nonzero(&counted), nonzero(&self.counts));
        checks.that(counted == nonzero, || format!("counts are {nonzero:?}, but the runs are {counted:?}"))
    }

    /// Checks the rules that hold when all runs have ended and all workers have left.
    pub(crate) fn check_end(&self, checks: &mut Checks) -> Result<()> {
        self.check_always(checks)?;
        checks.that(self.workers == 0, || format!("{} sessions are left", self.workers))?;
        for (key, run) in &self.runs {
            let view = &run.view;
            checks
                .that(view.status.is_final(), || format!("run {key} is {}: {:?}", view.status, view.waits))?;
            checks.that(view.owner.is_none(), || format!("run {key} has ended, but is held"))?;
            // A run may end with unread messages.
            let (sent, consumed) = (view.sent, view.consumed);
            checks.that(consumed <= sent, || format!("run {key} has read {consumed} of {sent} messages"))?;
        }
        Ok(())
    }
}

impl RunSnapshot {
    /// The history has no gap, ascending times, one outcome per operation, and at most one end.
    fn check_history(&self, key: &str, checks: &mut Checks) -> Result<()> {
        let (mut seq, mut at) = (0, Timestamp::from_micros(0));
        let mut turns = BTreeSet::new();
        for turn in &self.history {
            checks.that(turn.seq == seq, || format!("the history of {key} has a gap at event {seq}"))?;
            checks.that(turn.at >= at, || format!("turn {} of {key} goes back in time", turn.id))?;
            checks.that(turns.insert(turn.id), || format!("turn {} of {key} is there twice", turn.id))?;
            (seq, at) = (seq + turn.events.len() as u64, turn.at);
        }
        let events: Vec<_> = self.replayed_events().collect();
        let begins = matches!(events.first(), Some(Event::RunStarted(_)));
        checks.that(begins, || format!("the history of {key} does not begin with its start"))?;
        let ends = events.iter().filter_map(|event| Status::of_final(event)).collect::<Vec<_>>();
        let expected: &[Status] = if self.view.status.is_final() { &[self.view.status] } else { &[] };
        checks.that(ends == expected, || format!("{key} is {}, but ended {ends:?}", self.view.status))?;
        let is_last = ends.is_empty() || events.last().is_some_and(|event| Status::of_final(event).is_some());
        checks.that(is_last, || format!("the history of {key} continues after its end"))?;
        let mut facts = BTreeSet::new();
        for event in events {
            let kind = if is_step_end(event) { "step_ended" } else { event.kind() };
            let attempt = if let Event::StepRetried { attempt, .. } = event { *attempt } else { 0 };
            // A loop has one for each iteration.
            if let Some(op) = event.op().filter(|_| kind != "iteration_ended") {
                let is_new = facts.insert((op, kind, attempt));
                checks.that(is_new, || format!("operation {op} of {key} has two events {kind}"))?;
            }
        }
        Ok(())
    }

    /// The events that no retry of the run has made skipped.
    fn replayed_events(&self) -> impl Iterator<Item = &Event> {
        let skips = retried_ranges(&self.history);
        let numbered = self.history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        numbered.filter(move |(number, _)| !is_skipped(&skips, *number)).map(|(_, event)| event)
    }

    /// The events with their times. Those that a fork has copied are left out: another run has made its attempts.
    fn own_events(&self) -> impl Iterator<Item = (Timestamp, &Event)> {
        let all = || self.history.iter().flat_map(|turn| turn.events.iter().map(|event| (turn.at, event)));
        let forked = all().position(|(_, event)| matches!(event, Event::RunForked(_)));
        all().skip(forked.map_or(0, |at| at + 1))
    }

    /// The attempts that the history announces, by the step's key and the attempt's number.
    pub(crate) fn announced(&self) -> BTreeMap<(String, u32), AnnouncedAttempt> {
        let mut attempts = BTreeMap::<(String, u32), AnnouncedAttempt>::new();
        let mut latest = BTreeMap::new();
        for (at, event) in self.own_events() {
            let Some(op) = event.op() else { continue };
            let key = format!("{}.0.{op}", self.view.id);
            let ended = AnnouncedAttempt { ended: Some(at) };
            match event {
                // A step of the engine, which logs nothing.
                Event::StepStarted { name, .. } if name.starts_with("outlast:") => {}
                Event::StepStarted { .. } | Event::CompensationStarted { .. } => {
                    latest.insert(op, 1);
                    attempts.insert((key, 1), AnnouncedAttempt::default());
                }
                Event::StepRetried { attempt, .. } if latest.contains_key(&op) => {
                    latest.insert(op, attempt + 1);
                    attempts.insert((key.clone(), *attempt), ended);
                    attempts.insert((key, attempt + 1), AnnouncedAttempt::default());
                }
                _ if is_step_end(event) => {
                    let attempt = latest.get(&op);
                    attempt.map(|attempt| attempts.insert((key, *attempt), ended));
                }
                _ => {}
            }
        }
        attempts
    }
}

fn is_step_end(event: &Event) -> bool {
    matches!(event, Event::StepCompleted { .. } | Event::StepFailed { .. } | Event::StepDropped { .. })
}
