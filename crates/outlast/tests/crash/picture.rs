//! What a database says about all its runs, and whether that fits what the outside saw.

use std::collections::{BTreeMap, BTreeSet};

use outlast::core::event::TurnRecord;
use outlast::core::limits::POISON_CRASHES;
use outlast::core::{Event, Timestamp};
use outlast::{Client, Counts, Error, ListOrder, RunQuery, RunView, Status};

use crate::ledger::{Ack, Effect, Place};

/// All runs of a file, with their histories, by key.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) runs: BTreeMap<String, Pictured>,
    pub(crate) counts: Counts,
    pub(crate) workers: usize,
}

/// One run of a file.
#[derive(Debug)]
pub(crate) struct Pictured {
    pub(crate) view: RunView,
    pub(crate) history: Vec<TurnRecord>,
}

/// One attempt at a step of a run: the operation's number and the attempt's.
pub(crate) type AttemptAt = (u64, u32);

/// Runs a future of the test's own process.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Error>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future).unwrap()
}

impl Picture {
    /// Opens the file and reads it all.
    pub(crate) fn take(place: &Place) -> Self {
        block_on(async {
            let world = outlast::open(&place.url()).await?;
            let client = Client::new(world.clone());
            let query = RunQuery { order: ListOrder::OldestFirst, ..RunQuery::default() };
            let mut runs = BTreeMap::new();
            for view in client.runs(query).await?.runs {
                let history = client.history(view.id).await?;
                let key = view.key.clone().unwrap();
                let before = runs.insert(key, Pictured { view, history });
                assert!(before.is_none(), "each key yields one run");
            }
            // The world's own list has sessions that are over, too.
            Ok(Self { runs, counts: client.counts().await?, workers: world.workers().await?.len() })
        })
    }

    /// Whether a run may be stuck as poison if the next life ends in a crash too.
    pub(crate) fn is_near_poison(&self) -> bool {
        self.runs.values().any(|run| run.view.crashes + 2 >= POISON_CRASHES)
    }

    /// Everything has ended well: nothing is held, open or half done.
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

    /// All that the outside saw before the crash is in the file: nothing acknowledged is lost, and
    /// nothing was done before it was announced.
    pub(crate) fn check_seen(&self, acks: &[Ack], effects: &[Effect]) {
        for ack in acks {
            let (Ack::Started(key) | Ack::Sent(key, _) | Ack::Ended(key) | Ack::Waits(key)) = ack;
            let run = self.runs.get(key).unwrap_or_else(|| panic!("{ack:?} was acknowledged, but is lost"));
            match ack {
                Ack::Sent(_, count) => {
                    assert!(run.view.sent >= *count, "{ack:?} was acknowledged, but is lost")
                }
                Ack::Ended(_) => assert!(run.view.status.is_final(), "{ack:?} was told, but is not so"),
                Ack::Started(_) | Ack::Waits(_) => {}
            }
        }
        for effect in effects {
            let run = self.runs.get(&effect.key);
            let is_announced = run.is_some_and(|run| run.announced().contains(&(effect.op, effect.attempt)));
            assert!(is_announced, "{effect:?} came before the commit that announces it");
        }
    }
}

impl Pictured {
    /// The history has no gap, goes forward in time, has one outcome per operation, and one end.
    fn check_history(&self, key: &str) {
        let (mut seq, mut at) = (0, Timestamp::from_micros(0));
        let mut turns = BTreeSet::new();
        for turn in &self.history {
            assert_eq!(turn.seq, seq, "the history of {key} has no gap: {:#?}", self.history);
            assert!(turn.at >= at, "the turns of {key} go forward in time");
            assert!(turns.insert(turn.id), "each turn of {key} is committed once");
            (seq, at) = (seq + turn.events.len() as u64, turn.at);
        }
        let events: Vec<_> = self.events().collect();
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
            if let Some(op) = event.op() {
                assert!(facts.insert((op, kind, attempt)), "operation {op} of {key} has two of {kind}");
            }
        }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.history.iter().flat_map(|turn| &turn.events)
    }

    /// The attempts that the history announces.
    fn announced(&self) -> BTreeSet<AttemptAt> {
        let attempts = self.events().filter_map(|event| match event {
            Event::StepStarted { op, .. } => Some((op.0, 1)),
            Event::StepRetried { op, attempt, .. } => Some((op.0, attempt + 1)),
            _ => None,
        });
        attempts.collect()
    }

    /// The attempts whose end the history does not know: they may be made once more.
    pub(crate) fn in_flight(&self) -> BTreeSet<AttemptAt> {
        let mut open = BTreeMap::new();
        for event in self.events() {
            match event {
                Event::StepStarted { op, .. } => drop(open.insert(op.0, 1)),
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

/// Attempts as the outside knows them: the run's key, the operation's number and the attempt's.
pub(crate) type Tally = BTreeMap<(String, u64, u32), usize>;

/// How often each attempt was made.
pub(crate) fn tally(effects: &[Effect]) -> Tally {
    let mut tally = Tally::new();
    for effect in effects {
        *tally.entry((effect.key.clone(), effect.op, effect.attempt)).or_default() += 1;
    }
    tally
}

/// Every attempt was made once, or once more per crash at which it was in flight. Answers how many
/// were made too often. Runs that are not fixed may make other attempts than expected.
pub(crate) fn check_tally(
    tally: &Tally,
    expected: &Tally,
    crashes: &[Picture],
    is_fixed: impl Fn(&str) -> bool,
) -> usize {
    let fixed = |tally: &Tally| tally.keys().filter(|(key, _, _)| is_fixed(key)).cloned().collect::<Vec<_>>();
    assert_eq!(fixed(tally), fixed(expected), "the attempts that were made");
    let mut extra = 0;
    for ((key, op, attempt), count) in tally {
        let in_flight = |crash: &&Picture| {
            crash.runs.get(key).is_some_and(|run| run.in_flight().contains(&(*op, *attempt)))
        };
        let allowed = 1 + crashes.iter().filter(in_flight).count();
        assert!(
            *count <= allowed,
            "attempt {attempt} at operation {op} of {key} was made {count} times; {allowed} would be right"
        );
        extra += count - 1;
    }
    extra
}

fn sorted(keys: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort();
    keys
}
