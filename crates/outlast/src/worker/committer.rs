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
//! Turns that send to the same run are in one batch at a time: beside it, another lane would only wait for that run's row.
//!
//! A turn that somebody else blocks in the world leaves its batch, and is tried again apart from the others: they
//! are answered without waiting for it.

use std::collections::{BTreeMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use outlast_core::limits::BATCH_TURNS_MAX;
use outlast_core::turn::From;
use outlast_core::{Committed, RunId, SessionId, Turn, World, WorldError};
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
    /// The batches that are under way, by their numbers, with the runs that they send to.
    batches: BTreeMap<u64, Vec<RunId>>,
    next_batch: u64,
    /// Turns without events, in order.
    later: Vec<Later>,
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
        self.turns.push(turn);
        self.answers.push(answer);
    }

    /// Takes what has gathered and does not send to a run that a batch under way sends to, as a batch with a number.
    fn take(&mut self) -> Option<(u64, Vec<Turn>, Vec<oneshot::Sender<Answer>>)> {
        let mut busy: HashSet<RunId> = self.batches.values().flatten().copied().collect();
        let (mut turns, mut answers) = (Vec::new(), Vec::new());
        let (mut left_turns, mut left_answers) = (Vec::new(), Vec::new());
        for (turn, answer) in self.turns.drain(..).zip(self.answers.drain(..)) {
            if turns.len() < BATCH_TURNS_MAX && !receivers(&turn).any(|run| busy.contains(&run)) {
                turns.push(turn);
                answers.push(answer);
            } else {
                // Those that come behind it and send to the same runs stay behind it.
                busy.extend(receivers(&turn));
                left_turns.push(turn);
                left_answers.push(answer);
            }
        }
        (self.turns, self.answers) = (left_turns, left_answers);
        if turns.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        self.batches.insert(number, turns.iter().flat_map(receivers).collect());
        Some((number, turns, answers))
    }

    /// Whether something has gathered that can be taken.
    fn has_free(&self) -> bool {
        if self.batches.is_empty() {
            return !self.turns.is_empty();
        }
        let busy: HashSet<RunId> = self.batches.values().flatten().copied().collect();
        self.turns.iter().any(|turn| !receivers(turn).any(|run| busy.contains(&run)))
    }

    /// A batch was answered, or given up: what waited for it is next.
    fn answered(&mut self, number: u64) {
        self.batches.remove(&number);
        let first = self.batches.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        // Those that came first wait for the fewest.
        let free = self.later.partition_point(|later| later.behind <= first);
        for Later { turn, answer, .. } in self.later.drain(..free) {
            self.turns.push(turn);
            self.answers.push(answer);
        }
    }
}

/// The runs that a turn sends to.
fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    turn.outbox.iter().flat_map(|outbox| outbox.messages.iter().map(|message| message.run))
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
        let mut answers: Vec<Option<Tried>> = turns.iter().map(|_| None).collect();
        // What is to be committed, and whose answer it is.
        let mut left = turns;
        let mut places: Vec<usize> = (0..left.len()).collect();
        let mut wait = PAUSE_MIN;
        loop {
            let asked = monotonic();
            let tried = match self.world.commit(self.session, &left).await {
                Ok(tried) => tried,
                Err(error) => vec![Err(error); left.len()],
            };
            self.meter.committed(left.len(), monotonic().saturating_sub(asked));
            self.meter.turns.add(tried.iter().filter(|answer| answer.is_ok()).count() as u64);
            let mut again = Vec::new();
            let mut places_again = Vec::new();
            let mut trouble = None;
            for ((turn, place), answer) in left.into_iter().zip(places).zip(tried) {
                let is_blocked = matches!(answer, Err(WorldError::Blocked(_)));
                let failed = answer.as_ref().err().filter(|error| error.is_transient() && !is_blocked);
                trouble = failed.cloned().or(trouble);
                let is_given_up = wait >= START_PAUSE_MAX && matches!(turn.from, From::Start(_));
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
        }
    }

    /// Commits a turn that somebody else blocks, apart from the batches: the world waits for what is locked, and is
    /// asked again until it is free. A start is given up, as in a batch.
    async fn commit_blocked(&self, turn: &Turn) -> Answer {
        let mut wait = PAUSE_MIN;
        loop {
            pause(wait).await;
            let answer = match self.world.commit(self.session, std::slice::from_ref(turn)).await {
                Ok(mut answers) => answers
                    .pop()
                    .unwrap_or_else(|| Err(WorldError::Corrupt("the world gave too few answers".into()))),
                Err(error) => Err(error),
            };
            self.meter.turns.add(u64::from(answer.is_ok()));
            let is_given_up = wait >= START_PAUSE_MAX && matches!(turn.from, From::Start(_));
            match answer {
                Err(error) if error.is_transient() && !is_given_up => wait = (wait * 2).min(PAUSE_MAX),
                answer => return answer,
            }
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
        let taken = self.0.gathered.lock().take();
        let Some((number, turns, answers)) = taken else { return false };
        let _batch = Batch(&self.0, number);
        let mut commit = pin!(self.0.commit_batch(turns));
        let (results, is_instant) = match futures_util::poll!(commit.as_mut()) {
            Poll::Ready(results) => (results, true),
            Poll::Pending => (commit.await, false),
        };
        for (answer, result) in answers.into_iter().zip(results) {
            match result {
                // Whoever asked may be gone; the turn is durable all the same.
                Tried::Answered(result) => drop(answer.send(result)),
                Tried::Blocked(turn) => {
                    let committer = self.0.clone();
                    self.0.runtime.spawn(async move {
                        let _ = answer.send(committer.commit_blocked(&turn).await);
                    });
                }
            }
        }
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
        let (number, turns, _) = gathered.take()?;
        Some((number, turns.iter().map(|turn| turn.run.bits()).collect()))
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
