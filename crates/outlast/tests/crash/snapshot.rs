//! A snapshot of all runs of a world, and its comparison with the logged effects.

use std::collections::{BTreeMap, BTreeSet};

use outlast::core::cut::{is_skipped, retried_ranges};
use outlast::core::event::TurnRecord;
use outlast::core::limits::POISON_CRASHES;
use outlast::core::{Event, Timestamp};
use outlast::{Client, Counts, Error, ListOrder, RunQuery, RunView, Status};

use crate::process_folder::{Ack, Effect, ProcessFolder};
use crate::{forked_program, orchestrated_program};

/// All runs of a world, with their histories, by key.
#[derive(Debug)]
pub(crate) struct WorldSnapshot {
    pub(crate) runs: BTreeMap<String, RunSnapshot>,
    pub(crate) counts: Counts,
    pub(crate) workers: usize,
}

/// One run of a snapshot.
#[derive(Debug)]
pub(crate) struct RunSnapshot {
    pub(crate) view: RunView,
    pub(crate) history: Vec<TurnRecord>,
}

/// One attempt at a step of a run: the operation's number and the attempt's.
pub(crate) type AttemptId = (u64, u32);

/// The views of all runs, the oldest first.
pub(crate) async fn all_runs(client: &Client) -> Result<Vec<RunView>, Error> {
    let mut query = RunQuery { order: ListOrder::OldestFirst, ..RunQuery::default() };
    let mut runs = Vec::new();
    loop {
        let page = client.runs(query.clone()).await?;
        runs.extend(page.runs);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(runs),
        }
    }
}

/// Whether any run of the world may be stuck as poison if the next child is killed too. A snapshot has a limited number
/// of runs; this reads all of them.
pub(crate) fn is_any_near_poison(process_folder: &ProcessFolder) -> bool {
    block_on(async {
        let client = Client::new(outlast::open(&process_folder.url()).await?);
        Ok(all_runs(&client).await?.iter().any(is_near_poison))
    })
}

fn is_near_poison(run: &RunView) -> bool {
    run.crashes + 2 >= POISON_CRASHES
}

/// Runs a future on a new runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future).unwrap()
}

impl WorldSnapshot {
    /// Opens the world and reads all runs.
    pub(crate) fn take(process_folder: &ProcessFolder) -> Self {
        block_on(async {
            let world = outlast::open(&process_folder.url()).await?;
            let client = Client::new(world.clone());
            let query = RunQuery { order: ListOrder::OldestFirst, ..RunQuery::default() };
            let mut runs = BTreeMap::new();
            for view in client.runs(query).await?.runs {
                let history = client.history(view.id).await?;
                let own = || view.key.clone().or_else(|| forked_program::key_of(view.id));
                let key = orchestrated_program::key_of(&view).or_else(own).unwrap();
                let before = runs.insert(key, RunSnapshot { view, history });
                assert!(before.is_none(), "each key yields one run");
            }
            // The world's list also has expired sessions.
            Ok(Self { runs, counts: client.counts().await?, workers: world.workers().await?.len() })
        })
    }

    /// Whether a run may be stuck as poison if the next child is killed too.
    pub(crate) fn is_near_poison(&self) -> bool {
        self.runs.values().any(|run| is_near_poison(&run.view))
    }

    /// Checks that all runs have ended, and that no run is held.
    pub(crate) fn check_end(&self, keys: impl IntoIterator<Item = String>) {
        assert_eq!(self.runs.keys().cloned().collect::<Vec<_>>(), sorted(keys), "the runs in the file");
        assert_eq!(self.workers, 0, "no session is left");
        let open = self.counts.iter().filter(|(status, count)| !status.is_final() && **count > 0).count();
        assert_eq!(open, 0, "the counts know of no open run: {:?}", self.counts);
        for (key, run) in &self.runs {
            assert!(run.view.status.is_final(), "run {key} is {}: {:?}", run.view.status, run.view.stuck);
            assert_eq!(run.view.owner, None, "run {key} is held by nobody");
            assert_eq!(run.view.sent, run.view.consumed, "run {key} has read its inbox");
            run.check_history(key);
        }
    }

    /// Checks that nothing acknowledged is lost, and that no attempt was made before the commit that announces it.
    pub(crate) fn check_acknowledged(&self, acks: &[Ack], effects: &[Effect]) {
        for ack in acks {
            let (Ack::Started(key) | Ack::Sent(key, _) | Ack::Ended(key) | Ack::Waits(key)) = ack;
            let run = self.runs.get(key).unwrap_or_else(|| panic!("{ack:?} was acknowledged, but is lost"));
            match ack {
                Ack::Sent(_, count) => {
                    assert!(run.view.sent >= *count, "{ack:?} was acknowledged, but is lost")
                }
                Ack::Ended(_) => {
                    assert!(run.view.status.is_final(), "{ack:?} was acknowledged, but the run has not ended")
                }
                Ack::Started(_) | Ack::Waits(_) => {}
            }
        }
        for effect in effects {
            let run = self.runs.get(&effect.key);
            let is_announced = run.is_some_and(|run| run.announced().contains(&(effect.op, effect.attempt)));
            // The final event announces the step after the end of the run.
            let is_after_end = effect.step == "announce" && run.is_some_and(|run| run.view.status.is_final());
            assert!(is_announced || is_after_end, "{effect:?} came before the commit that announces it");
        }
    }
}

impl RunSnapshot {
    /// The history has no gap, ascending times, one outcome per operation, and one end.
    fn check_history(&self, key: &str) {
        let (mut seq, mut at) = (0, Timestamp::from_micros(0));
        let mut turns = BTreeSet::new();
        for turn in &self.history {
            let is_next = turn.seq == seq || turn.seq > seq && key == orchestrated_program::TRIMMED;
            assert!(is_next, "the history of {key} has no gap: {:#?}", self.history);
            assert!(turn.at >= at, "the turns of {key} go forward in time");
            assert!(turns.insert(turn.id), "each turn of {key} is committed once");
            (seq, at) = (seq + turn.events.len() as u64, turn.at);
        }
        let events: Vec<_> = self.replayed_events().collect();
        assert!(matches!(events.first(), Some(Event::RunStarted(_))), "{key} begins with its start");
        let ends = events.iter().filter(|event| Status::of_final(event).is_some()).count();
        assert_eq!(ends, 1, "run {key} ended once");
        assert!(
            events.last().is_some_and(|event| Status::of_final(event).is_some()),
            "{key} ends at its end"
        );
        let mut facts = BTreeSet::new();
        for event in events {
            let kind = if is_step_end(event) { "step_ended" } else { event.kind() };
            let attempt = if let Event::StepRetried { attempt, .. } = event { *attempt } else { 0 };
            // A loop has one for each iteration.
            if let Some(op) = event.op().filter(|_| kind != "iteration_ended") {
                assert!(facts.insert((op, kind, attempt)), "operation {op} of {key} has two events {kind}");
            }
        }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.history.iter().flat_map(|turn| &turn.events)
    }

    /// The events that no retry of the run has made skipped.
    fn replayed_events(&self) -> impl Iterator<Item = &Event> {
        let skips = retried_ranges(&self.history);
        let numbered = self.history.iter().flat_map(|turn| (turn.seq..).zip(&turn.events));
        numbered.filter(move |(number, _)| !is_skipped(&skips, *number)).map(|(_, event)| event)
    }

    /// The attempts that the history announces.
    fn announced(&self) -> BTreeSet<AttemptId> {
        let attempts = self.events().filter_map(|event| match event {
            Event::StepStarted { op, .. } | Event::CompensationStarted { op, .. } => Some((op.0, 1)),
            Event::StepRetried { op, attempt, .. } => Some((op.0, attempt + 1)),
            _ => None,
        });
        attempts.collect()
    }

    /// Whether an operation is the step that follows the end of the run. It has a run of its own, which may have been in
    /// flight.
    fn is_after_end(&self, op: u64) -> bool {
        self.view.status.is_final() && self.events().all(|event| event.op().is_none_or(|other| other.0 != op))
    }

    /// The attempts without a recorded end: they may be repeated.
    pub(crate) fn in_flight(&self) -> BTreeSet<AttemptId> {
        let mut open = BTreeMap::new();
        for event in self.replayed_events() {
            match event {
                Event::StepStarted { op, .. } | Event::CompensationStarted { op, .. } => {
                    open.insert(op.0, 1);
                }
                Event::StepRetried { op, attempt, .. } => drop(open.insert(op.0, attempt + 1)),
                Event::CancelRequested { ends, .. } => {
                    open.retain(|open, _| !ends.iter().any(|op| op.0 == *open))
                }
                _ if is_step_end(event) => drop(event.op().map(|op| open.remove(&op.0))),
                _ => {}
            }
        }
        open.into_iter().collect()
    }
}

fn is_step_end(event: &Event) -> bool {
    matches!(event, Event::StepCompleted { .. } | Event::StepFailed { .. } | Event::StepDropped { .. })
}

/// How often each attempt was made: by the run's key, the operation's number and the attempt's.
pub(crate) type AttemptCounts = BTreeMap<(String, u64, u32), usize>;

/// How often each attempt was made.
pub(crate) fn attempt_counts(effects: &[Effect]) -> AttemptCounts {
    let mut attempt_counts = AttemptCounts::new();
    for effect in effects {
        *attempt_counts.entry((effect.key.clone(), effect.op, effect.attempt)).or_default() += 1;
    }
    attempt_counts
}

/// Checks that every attempt was made once, plus at most once per crash at which it was in flight. Returns the number
/// of repeated attempts. Runs that are not deterministic may make other attempts than expected.
pub(crate) fn check_attempt_counts(
    attempt_counts: &AttemptCounts,
    expected: &AttemptCounts,
    crashes: &[WorldSnapshot],
    is_deterministic: impl Fn(&str) -> bool,
) -> usize {
    let fixed = |attempt_counts: &AttemptCounts| {
        attempt_counts.keys().filter(|(key, _, _)| is_deterministic(key)).cloned().collect::<Vec<_>>()
    };
    assert_eq!(fixed(attempt_counts), fixed(expected), "the attempts that were made");
    let mut repeated = 0;
    for ((key, op, attempt), count) in attempt_counts {
        let in_flight = |crash: &&WorldSnapshot| {
            crash
                .runs
                .get(key)
                .is_some_and(|run| run.in_flight().contains(&(*op, *attempt)) || run.is_after_end(*op))
        };
        let allowed = 1 + crashes.iter().filter(in_flight).count();
        assert!(
            *count <= allowed,
            "attempt {attempt} at operation {op} of {key} was made {count} times; {allowed} are allowed"
        );
        repeated += count - 1;
    }
    repeated
}

fn sorted(keys: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort();
    keys
}
