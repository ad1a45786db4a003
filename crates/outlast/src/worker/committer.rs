//! Group commit without a timer: while as many commits are under way as the world has lanes, the next batch
//! gathers.
//!
//! There is no task in between. The run that finds no commit under way commits at once and takes
//! along whatever has gathered; the others wait for its answer. So an idle worker commits in two
//! thread hops, and a busy one in large batches.
//!
//! A turn without events only lets go of its run, or is computed from what the world said of it. It waits until the
//! batches are answered that were under way when it came: so it never contends with a turn of the same run that is
//! still on its way.
//!
//! Turns that contend for a run, because it is theirs or they send to it, are in one batch at a time: beside it, another
//! lane would only wait for that run's row.
//!
//! Turns that somebody else blocks in the world leave their batch, and are tried again apart from the others, together with
//! those that contend for the same run: the others are answered without waiting for them.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use outlast_core::limits::BATCH_TURNS_MAX;
use outlast_core::turn::BasedOn;
use outlast_core::{Committed, RunId, RunSet, SessionId, Turn, World, WorldError};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::metrics::Meter;
use super::session::Settings;
use crate::clock::{monotonic, pause};
use crate::outage::{Call, Outage};

type Answer = Result<Committed, WorldError>;

/// Batches that one task commits in a row, if the world answers without waiting.
const INSTANT_BATCHES_MAX: usize = 16;

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The pause at which a start is given up.
const START_PAUSE_MAX: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Committer {
    world: Arc<dyn World>,
    session: SessionId,
    runtime: Handle,
    meter: Arc<Meter>,
    outage: Arc<Outage>,
    /// How many commits may be under way at the same time.
    lanes: usize,
    gathered: Mutex<Gathered>,
}

#[derive(Debug, Default)]
struct Gathered {
    leaders: usize,
    turns: Vec<Turn>,
    answers: Vec<oneshot::Sender<Answer>>,
    /// The batches that are under way, in the order of their numbers.
    batches: Vec<UnderWay>,
    next_batch: u64,
    /// Turns without events, in order.
    later: Vec<Later>,
    /// The runs for which blocked turns are being retried outside the batches, with the number of retried groups.
    apart: BTreeMap<RunId, usize>,
}

/// A batch that is under way.
#[derive(Debug)]
struct UnderWay {
    number: u64,
    /// Whether a turn of it sends to another run.
    sends: bool,
    /// The runs that it contends for, when there are several lanes.
    runs: Vec<RunId>,
}

/// What came of one turn of a batch.
#[derive(Debug)]
enum Tried {
    Answered(Answer),
    /// Somebody else has locked what it changes.
    Blocked(Box<Turn>),
}

/// A turn that waits until the batches with a lower number are answered.
#[derive(Debug)]
struct Later {
    behind: u64,
    turn: Turn,
    answer: oneshot::Sender<Answer>,
}

impl Gathered {
    fn put(&mut self, turn: Turn, answer: oneshot::Sender<Answer>) {
        if turn.events.is_empty() && !self.batches.is_empty() {
            self.later.push(Later { behind: self.next_batch, turn, answer });
            return;
        }
        self.add(turn, answer);
    }

    fn add(&mut self, turn: Turn, answer: oneshot::Sender<Answer>) {
        if self.turns.is_empty() {
            // An idle worker commits one turn at a time, and a vector would make room for four.
            self.turns.reserve_exact(1);
            self.answers.reserve_exact(1);
        }
        self.turns.push(turn);
        self.answers.push(answer);
    }

    /// Takes what has gathered and contends for no run with a batch under way, as a batch with a number.
    fn take(&mut self, lanes: usize) -> Option<(u64, Vec<Turn>, Vec<oneshot::Sender<Answer>>)> {
        if self.turns.is_empty() {
            return None;
        }
        let (turns, answers) = if self.are_all_free() { self.take_first() } else { self.take_free() };
        if turns.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        // A committer of one lane has nothing to compare them with.
        let runs = if lanes > 1 { turns.iter().flat_map(contends_for).collect() } else { Vec::new() };
        let sends = turns.iter().any(sends);
        self.batches.push(UnderWay { number, sends, runs });
        let (turns, answers) = if sends { receivers_first(turns, answers) } else { (turns, answers) };
        Some((number, turns, answers))
    }

    /// Takes the turns that came first, as many as a batch may have.
    fn take_first(&mut self) -> (Vec<Turn>, Vec<oneshot::Sender<Answer>>) {
        let count = self.turns.len().min(BATCH_TURNS_MAX);
        let (later_turns, later_answers) = (self.turns.split_off(count), self.answers.split_off(count));
        (std::mem::replace(&mut self.turns, later_turns), std::mem::replace(&mut self.answers, later_answers))
    }

    /// Whether nothing that has gathered can contend for a run with a batch under way: only a turn that sends to
    /// another run does, and those are rare.
    fn are_all_free(&self) -> bool {
        self.apart.is_empty()
            && (self.batches.is_empty()
                || !self.batches.iter().any(|batch| batch.sends) && !self.turns.iter().any(sends))
    }

    /// Takes the turns that may be committed now, no more than a batch may have, and leaves the others in order.
    fn take_free(&mut self) -> (Vec<Turn>, Vec<oneshot::Sender<Answer>>) {
        let mut busy = self.busy();
        let (mut turns, mut answers) = (Vec::new(), Vec::new());
        let (mut left_turns, mut left_answers) = (Vec::new(), Vec::new());
        for (turn, answer) in self.turns.drain(..).zip(self.answers.drain(..)) {
            if turns.len() < BATCH_TURNS_MAX && !contends_for(&turn).any(|run| busy.contains(&run)) {
                turns.push(turn);
                answers.push(answer);
            } else {
                // Those that come behind it and contend for the same runs stay behind it.
                busy.extend(contends_for(&turn));
                left_turns.push(turn);
                left_answers.push(answer);
            }
        }
        (self.turns, self.answers) = (left_turns, left_answers);
        (turns, answers)
    }

    /// The runs that others contend for: batches under way, and turns apart from them.
    fn busy(&self) -> RunSet {
        self.batches.iter().flat_map(|batch| &batch.runs).chain(self.apart.keys()).copied().collect()
    }

    /// Notes that a group of blocked turns of this run is being retried outside the batches.
    fn set_apart(&mut self, run: RunId) {
        *self.apart.entry(run).or_default() += 1;
    }

    /// Ends that note: the group was answered, or the run stays locked and others need not wait for it.
    fn end_apart(&mut self, run: RunId) {
        if let Some(groups) = self.apart.get_mut(&run) {
            *groups -= 1;
            if *groups == 0 {
                self.apart.remove(&run);
            }
        }
    }

    /// Whether something has gathered that can be taken.
    fn has_free(&self) -> bool {
        if self.turns.is_empty() || self.are_all_free() {
            return !self.turns.is_empty();
        }
        let busy = self.busy();
        self.turns.iter().any(|turn| !contends_for(turn).any(|run| busy.contains(&run)))
    }

    /// A batch was answered, or given up: what waited for it is next.
    fn answered(&mut self, number: u64) {
        self.batches.retain(|batch| batch.number != number);
        let first = self.batches.first().map_or(u64::MAX, |batch| batch.number);
        // Those that came first wait for the fewest.
        let free = self.later.partition_point(|later| later.behind <= first);
        if free > 0 {
            let later: Vec<_> = self.later.drain(..free).collect();
            later.into_iter().for_each(|Later { turn, answer, .. }| self.add(turn, answer));
        }
    }
}

/// The runs that a turn sends to.
fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    turn.outbox.iter().flat_map(|outbox| outbox.messages.iter().map(|message| message.run))
}

/// The contended runs of the turns that were written, if others of the batch were blocked: nobody else needs them.
fn written_runs(contended: &[RunId], results: &[Tried]) -> RunSet {
    if !results.iter().any(|result| matches!(result, Tried::Blocked(_))) {
        return RunSet::default();
    }
    let written = |result: &Tried| matches!(result, Tried::Answered(Ok(_)));
    contended.iter().zip(results).filter(|(_, result)| written(result)).map(|(run, _)| *run).collect()
}

/// Whether a turn sends to other runs.
fn sends(turn: &Turn) -> bool {
    receivers(turn).next().is_some()
}

/// The runs whose rows a turn may lock in the world: its own, and those that it sends to.
fn contends_for(turn: &Turn) -> impl Iterator<Item = RunId> {
    std::iter::once(turn.run).chain(receivers(turn))
}

/// The run that a turn contends for most: the first that it sends to, otherwise its own.
fn contended_run(turn: &Turn) -> RunId {
    receivers(turn).next().unwrap_or(turn.run)
}

/// Puts the turns of runs that others of the batch send to in front of those: so a world need not divide the batch.
/// They are from different runs and nobody was answered, so no order between them was promised.
fn receivers_first(
    turns: Vec<Turn>,
    answers: Vec<oneshot::Sender<Answer>>,
) -> (Vec<Turn>, Vec<oneshot::Sender<Answer>>) {
    let sent_to: RunSet = turns.iter().flat_map(receivers).collect();
    let all = turns.into_iter().zip(answers);
    let (first, rest): (Vec<_>, Vec<_>) = all.partition(|(turn, _)| sent_to.contains(&turn.run));
    first.into_iter().chain(rest).unzip()
}

/// A batch that is under way until this is dropped.
struct Batch<'a>(&'a Committer, u64);

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.0.gathered.lock().answered(self.1);
    }
}

impl Committer {
    pub(super) fn new(
        world: Arc<dyn World>,
        session: SessionId,
        runtime: Handle,
        settings: &Settings,
    ) -> Self {
        let lanes = world.describe().lanes;
        let (meter, outage) = (settings.meter.clone(), settings.outage.clone());
        Self { world, session, runtime, meter, outage, lanes, gathered: Mutex::default() }
    }

    /// Commits a turn. A world that does not answer is asked again, with the same turn id, until it does.
    /// Only a start is given up after some tries: its client decides, and must not wait for a disk to have
    /// room.
    ///
    /// The turn is gathered at once, not when the answer is awaited: so no run's task keeps a copy of it.
    pub(super) fn commit(self: &Arc<Self>, turn: Turn) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, wait) = oneshot::channel();
        let is_leader = {
            let mut gathered = self.gathered.lock();
            gathered.put(turn, answer);
            let is_leader = gathered.leaders < self.lanes && !gathered.turns.is_empty();
            gathered.leaders += usize::from(is_leader);
            is_leader
        };
        let leader = is_leader.then(|| Leader(self.clone()));
        async move {
            if let Some(leader) = leader {
                Box::pin(leader.lead()).await;
            }
            wait.await.unwrap_or_else(|_| Err(WorldError::Fenced("the worker stopped".into())))
        }
    }

    async fn commit_batch(&self, turns: Vec<Turn>) -> Vec<Tried> {
        let tried = self.try_once(&turns).await;
        let is_final = |answer: &Answer| answer.as_ref().err().is_none_or(|error| !error.is_transient());
        if tried.len() == turns.len() && tried.iter().all(is_final) {
            self.outage.answered(Call::Commit);
            return tried.into_iter().map(Tried::Answered).collect();
        }
        // Rare, and large: not in the state of every commit.
        Box::pin(self.insist(turns, tried)).await
    }

    /// Asks the world once: an answer for each turn.
    async fn try_once(&self, turns: &[Turn]) -> Vec<Answer> {
        let asked = monotonic();
        let tried = match self.world.commit(self.session, turns).await {
            Ok(tried) => tried,
            Err(error) => vec![Err(error); turns.len()],
        };
        self.meter.committed(turns.len(), monotonic().saturating_sub(asked));
        self.meter.turns.add(tried.iter().filter(|answer| answer.is_ok()).count() as u64);
        tried
    }

    /// Asks again for those that were not answered, until they are.
    async fn insist(&self, turns: Vec<Turn>, mut tried: Vec<Answer>) -> Vec<Tried> {
        let mut answers: Vec<Option<Tried>> = turns.iter().map(|_| None).collect();
        // What is to be committed, and whose answer it is.
        let mut left = turns;
        let mut places: Vec<usize> = (0..left.len()).collect();
        let mut wait = PAUSE_MIN;
        loop {
            let mut again = Vec::new();
            let mut places_again = Vec::new();
            let mut trouble = None;
            for ((turn, place), answer) in left.into_iter().zip(places).zip(tried) {
                let is_blocked = matches!(answer, Err(WorldError::Blocked(_)));
                let failed = answer.as_ref().err().filter(|error| error.is_transient() && !is_blocked);
                trouble = failed.cloned().or(trouble);
                let is_given_up = wait >= START_PAUSE_MAX && matches!(turn.based_on, BasedOn::Start(_));
                match answer {
                    Err(WorldError::Blocked(_)) => answers[place] = Some(Tried::Blocked(Box::new(turn))),
                    Err(error) if error.is_transient() && !is_given_up => {
                        again.push(turn);
                        places_again.push(place);
                    }
                    answer => answers[place] = Some(Tried::Answered(answer)),
                }
            }
            match trouble {
                Some(error) => self.outage.failed(Call::Commit, &error),
                None => self.outage.answered(Call::Commit),
            }
            if again.is_empty() {
                let error = || WorldError::Corrupt("the world gave too few answers".into());
                let unanswered = || Tried::Answered(Err(error()));
                return answers.into_iter().map(|answer| answer.unwrap_or_else(unanswered)).collect();
            }
            (left, places) = (again, places_again);
            pause(wait).await;
            wait = (wait * 2).min(PAUSE_MAX);
            tried = self.try_once(&left).await;
        }
    }

    /// Commits turns that somebody else blocks, apart from the batches: the world waits for what is locked, and is
    /// asked again until it is free. A start is given up, as in a batch.
    ///
    /// Until the first answer they are apart from the batches if that is given: others that contend for the same run wait
    /// with them. Beside them, each batch would be blocked by these, and the next by that.
    async fn commit_blocked(self: Arc<Self>, blocked: Blocked, mut apart: Option<Apart>) {
        let Blocked { mut turns, mut answers, .. } = blocked;
        let mut wait = PAUSE_MIN;
        while !turns.is_empty() {
            pause(wait).await;
            let tried = match self.world.commit(self.session, &turns).await {
                Ok(tried) => tried,
                Err(error) => vec![Err(error); turns.len()],
            };
            drop(apart.take());
            self.meter.turns.add(tried.iter().filter(|answer| answer.is_ok()).count() as u64);
            let too_few = || Err(WorldError::Corrupt("the world gave too few answers".into()));
            let tried = tried.into_iter().chain(std::iter::repeat_with(too_few));
            let (mut left, mut left_answers) = (Vec::new(), Vec::new());
            for ((turn, answer), tried) in turns.into_iter().zip(answers).zip(tried) {
                let is_given_up = wait >= START_PAUSE_MAX && matches!(turn.based_on, BasedOn::Start(_));
                if tried.as_ref().is_err_and(WorldError::is_transient) && !is_given_up {
                    left.push(turn);
                    left_answers.push(answer);
                } else {
                    // Whoever asked may be gone; the turn is durable all the same.
                    let _ = answer.send(tried);
                }
            }
            (turns, answers) = (left, left_answers);
            wait = (wait * 2).min(PAUSE_MAX);
        }
    }
}

/// Turns that somebody else blocks, and that contend for the same run: alone, each would only wait for the others.
#[derive(Debug)]
struct Blocked {
    run: RunId,
    /// Whether it is that run which is locked, and not those of the turns: several are blocked, and none was written.
    is_run_locked: bool,
    turns: Vec<Turn>,
    answers: Vec<oneshot::Sender<Answer>>,
}

impl Blocked {
    /// Sorts turns by the run that they contend for. `written` are the runs that others of the batch contended for.
    fn by_run(blocked: Vec<(Turn, oneshot::Sender<Answer>)>, written: &RunSet) -> Vec<Self> {
        let mut groups: BTreeMap<RunId, Self> = BTreeMap::new();
        for (turn, answer) in blocked {
            let run = contended_run(&turn);
            let (turns, answers) = (Vec::new(), Vec::new());
            let group = groups.entry(run).or_insert(Self { run, is_run_locked: false, turns, answers });
            group.turns.push(turn);
            group.answers.push(answer);
            group.is_run_locked = group.turns.len() > 1 && !written.contains(&run);
        }
        groups.into_values().collect()
    }
}

/// Turns that contend for a run apart from the batches, until this is dropped.
struct Apart(Arc<Committer>, RunId);

impl Apart {
    fn new(committer: Arc<Committer>, run: RunId) -> Self {
        committer.gathered.lock().set_apart(run);
        Self(committer, run)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let mut gathered = self.0.gathered.lock();
        gathered.end_apart(self.1);
        if gathered.leaders < self.0.lanes && gathered.has_free() {
            gathered.leaders += 1;
            drop(gathered);
            let committer = self.0.clone();
            self.0.runtime.spawn(async move { Leader(committer).lead().await });
        }
    }
}

/// The right and duty to commit what has gathered. If its task ends early, another takes over.
struct Leader(Arc<Committer>);

impl Leader {
    /// Commits what has gathered. A world that answers without waiting is asked again while more
    /// gathers: handing that to another task would cost more than doing it.
    async fn lead(self) {
        for _ in 0..INSTANT_BATCHES_MAX {
            if !self.lead_once().await {
                return;
            }
        }
    }

    /// Commits one batch. Whether there was one, and the world answered without waiting.
    async fn lead_once(&self) -> bool {
        let taken = self.0.gathered.lock().take(self.0.lanes);
        let Some((number, turns, answers)) = taken else { return false };
        let batch = Batch(&self.0, number);
        // Only worlds with several lanes answer that turns are blocked.
        let contended: Vec<RunId> =
            if self.0.lanes > 1 { turns.iter().map(contended_run).collect() } else { Vec::new() };
        let mut commit = pin!(self.0.commit_batch(turns));
        let (results, is_instant) = match futures_util::poll!(commit.as_mut()) {
            Poll::Ready(results) => (results, true),
            Poll::Pending => (commit.await, false),
        };
        let written = written_runs(&contended, &results);
        let mut blocked = Vec::new();
        for (answer, result) in answers.into_iter().zip(results) {
            match result {
                // Whoever asked may be gone; the turn is durable all the same.
                Tried::Answered(result) => drop(answer.send(result)),
                Tried::Blocked(turn) => blocked.push((*turn, answer)),
            }
        }
        for group in Blocked::by_run(blocked, &written) {
            // Before the batch is over: what it kept from being taken is not to be taken in between.
            let apart = group.is_run_locked.then(|| Apart::new(self.0.clone(), group.run));
            self.0.runtime.spawn(self.0.clone().commit_blocked(group, apart));
        }
        drop(batch);
        is_instant
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut gathered = self.0.gathered.lock();
        if !gathered.has_free() {
            // What is left, if anything, the leader of the batch that it waits for takes.
            gathered.leaders -= 1;
            return;
        }
        drop(gathered);
        // Made inside the task: a runtime that shuts down drops the task at once, and a leader in it
        // would spawn the next one, and so on.
        let committer = self.0.clone();
        self.0.runtime.spawn(async move { Leader(committer).lead().await });
    }
}

/// Asks a world that does not answer again, until it does: a lost database pauses the work.
pub(super) async fn patiently<T, F>(outage: &Outage, mut ask: impl FnMut() -> F) -> Result<T, WorldError>
where
    F: Future<Output = Result<T, WorldError>>,
{
    let mut wait = PAUSE_MIN;
    loop {
        match ask().await {
            Err(error) if error.is_transient() => {
                outage.failed(Call::Read, &error);
                pause(wait).await;
                wait = (wait * 2).min(PAUSE_MAX);
            }
            answered => {
                if wait > PAUSE_MIN {
                    outage.answered(Call::Read);
                }
                return answered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use outlast_core::turn::LastTurn;
    use outlast_core::{RunId, Timestamp, TurnId};

    use super::*;

    fn turn(run: u128, has_events: bool) -> Turn {
        let dropped = outlast_core::Event::StepDropped { op: outlast_core::OpNumber(0) };
        Turn {
            events: if has_events { vec![dropped] } else { Vec::new() },
            ..Turn::following(
                &LastTurn::new(RunId::from_bits(run), TurnId::from_bits(0), 1),
                TurnId::from_bits(run),
                Timestamp::from_micros(1),
                "b".into(),
            )
        }
    }

    fn put(gathered: &mut Gathered, run: u128, has_events: bool) {
        gathered.put(turn(run, has_events), oneshot::channel().0);
    }

    fn take(gathered: &mut Gathered) -> Option<(u64, Vec<u128>)> {
        let (number, turns, _) = gathered.take(2)?;
        Some((number, turns.iter().map(|turn| turn.run.bits()).collect()))
    }

    fn sends(run: u128, to: u128) -> Turn {
        let id = outlast_core::MessageId::from_bits(run);
        let body = outlast_core::MessageBody::Wake { op: None };
        let headers = outlast_core::Headers::new();
        let message = outlast_core::NewMessage { id, run: RunId::from_bits(to), body, headers };
        let outbox = outlast_core::Outbox { messages: vec![message], ..Default::default() };
        Turn { outbox: Some(Box::new(outbox)), ..turn(run, true) }
    }

    #[test]
    fn turns_that_contend_for_a_run_are_in_one_batch_with_its_own_turn_in_front() {
        let mut gathered = Gathered::default();
        gathered.put(sends(2, 1), oneshot::channel().0);
        gathered.put(sends(3, 1), oneshot::channel().0);
        put(&mut gathered, 1, true);
        put(&mut gathered, 4, true);
        assert_eq!(take(&mut gathered), Some((0, vec![1, 2, 3, 4])));
        gathered.put(sends(5, 1), oneshot::channel().0);
        put(&mut gathered, 1, true);
        gathered.put(sends(6, 9), oneshot::channel().0);
        assert_eq!(take(&mut gathered), Some((1, vec![6])), "5 and 1 contend for 1 with batch 0");
        assert!(!gathered.has_free());
        gathered.answered(0);
        assert!(gathered.has_free());
        assert_eq!(take(&mut gathered), Some((2, vec![1, 5])));
    }

    #[test]
    fn blocked_turns_that_send_to_one_run_are_tried_together() {
        let turns = [sends(2, 1), turn(7, true), sends(3, 1), turn(8, true)];
        let blocked = turns.map(|turn| (turn, oneshot::channel().0)).into();
        let runs = |group: Blocked| group.turns.iter().map(|turn| turn.run.bits()).collect::<Vec<_>>();
        let groups = Blocked::by_run(blocked, &RunSet::default());
        assert_eq!(groups.iter().map(|group| group.is_run_locked).collect::<Vec<_>>(), [true, false, false]);
        assert_eq!(groups.into_iter().map(runs).collect::<Vec<_>>(), [vec![2, 3], vec![7], vec![8]]);
        let blocked = [sends(2, 1), sends(3, 1)].map(|turn| (turn, oneshot::channel().0)).into();
        let groups = Blocked::by_run(blocked, &RunSet::from_iter([RunId::from_bits(1)]));
        assert!(!groups[0].is_run_locked, "another turn was written that sends to it");
    }

    #[test]
    fn turns_that_contend_for_a_run_apart_from_the_batches_hold_up_those_that_contend_for_it() {
        let mut gathered = Gathered::default();
        gathered.set_apart(RunId::from_bits(1));
        gathered.put(sends(2, 1), oneshot::channel().0);
        assert!(!gathered.has_free());
        put(&mut gathered, 3, true);
        assert_eq!(take(&mut gathered), Some((0, vec![3])));
        gathered.end_apart(RunId::from_bits(1));
        assert_eq!(take(&mut gathered), Some((1, vec![2])));
    }

    #[test]
    fn a_turn_without_events_waits_for_the_batches_that_are_under_way() {
        let mut gathered = Gathered::default();
        put(&mut gathered, 1, false);
        put(&mut gathered, 2, true);
        assert_eq!(take(&mut gathered), Some((0, vec![1, 2])), "nothing is under way");
        put(&mut gathered, 3, true);
        assert_eq!(take(&mut gathered), Some((1, vec![3])));
        put(&mut gathered, 4, false);
        put(&mut gathered, 5, true);
        assert_eq!(take(&mut gathered), Some((2, vec![5])), "4 waits for the batches 0 and 1");
        gathered.answered(1);
        assert_eq!(take(&mut gathered), None);
        gathered.answered(0);
        assert_eq!(take(&mut gathered), Some((3, vec![4])), "and not for batch 2, which came later");
    }
}
