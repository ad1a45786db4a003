//! The queue of turns that wait for a commit, and the choice of the next batch.
//!
//! Three rules apply in addition to the order of arrival:
//!
//! * A turn without events only releases its run, or was computed from a view of the run. It waits until all batches
//!   that were in progress when it arrived are answered, so it never conflicts with a turn of the same run in one of
//!   them.
//! * A batch with an [exclusive](Turn::is_exclusive) turn is committed alone. On Postgres it would wait for all other
//!   commits of the session, and those that follow would overtake it, again and again.
//! * Turns that contend for a run, because it is their own or because they send to it, are not in two concurrent
//!   batches: the second one would only wait for the first one, on Postgres for the lock on the run's row.

use std::collections::{BTreeMap, VecDeque};

use outlast_core::limits::BATCH_TURNS_MAX;
use outlast_core::{RunId, RunSet, Turn};
use tokio::sync::oneshot;

use super::CommitAnswer;

/// The minimum size of a batch whose vector is reused.
pub(super) const LARGE_BATCH: usize = 64;

type AnswerSender = oneshot::Sender<CommitAnswer>;

/// The turns that wait for a commit, and the batches in progress.
#[derive(Debug, Default)]
pub(super) struct CommitQueue {
    /// The number of leaders: tasks that commit batches.
    pub(super) leaders: usize,
    turns: VecDeque<Turn>,
    /// The senders of the answers, in the order of `turns`.
    answers: VecDeque<AnswerSender>,
    /// The empty vectors of earlier large batches, which the next ones reuse: allocating that much memory takes long.
    spare: Vec<Vec<Turn>>,
    /// How many of `turns` send to other runs, and how many are exclusive.
    senders: usize,
    exclusive: usize,
    /// Which of `turns` must wait; `None` if that is not known.
    contention: Option<Contention>,
    /// The batches in progress, in the order of their numbers.
    batches: Vec<BatchInProgress>,
    next_batch: u64,
    /// Turns without events that wait for batches, in order.
    deferred: Vec<DeferredTurn>,
    /// The runs for which blocked turns are being retried outside of the batches, with the number of retried groups.
    retried_separately: BTreeMap<RunId, usize>,
}

/// The turns that must wait until a batch or a separate retry ends. It is kept until then: if thousands of turns contend
/// for one run, they are not all examined again whenever another one arrives.
#[derive(Debug)]
struct Contention {
    /// The runs that batches in progress, separately retried turns and the first `waiting` turns contend for.
    runs: RunSet,
    /// The number of turns at the front of the queue that must wait. The others have not been examined.
    waiting: usize,
}

/// A batch that is being committed.
#[derive(Debug)]
struct BatchInProgress {
    number: u64,
    /// Whether one of its turns sends to another run.
    sends: bool,
    /// Whether one of its turns is exclusive.
    is_exclusive: bool,
    /// The runs that its turns contend for; empty if there is only one commit at a time.
    runs: Vec<RunId>,
}

/// A turn that waits until the batches with lower numbers are answered.
#[derive(Debug)]
struct DeferredTurn {
    /// The number of the first batch that it does not wait for.
    before_batch: u64,
    turn: Turn,
    answer: AnswerSender,
}

/// A batch that was taken from the queue.
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) turns: Vec<Turn>,
    /// The senders of the answers, in the order of `turns`.
    pub(super) answers: Vec<AnswerSender>,
}

impl CommitQueue {
    /// Adds a turn.
    pub(super) fn put(&mut self, turn: Turn, answer: AnswerSender) {
        if turn.events.is_empty() && !self.batches.is_empty() {
            self.deferred.push(DeferredTurn { before_batch: self.next_batch, turn, answer });
            return;
        }
        self.add(turn, answer);
    }

    /// Keeps the empty vector of a batch for a later one. The caller has dropped its turns outside of the lock.
    pub(super) fn keep_memory(&mut self, turns: Vec<Turn>) {
        if self.spare.len() < self.leaders {
            self.spare.push(turns);
        }
    }

    /// Adds a turn to the turns for the next batches.
    fn add(&mut self, turn: Turn, answer: AnswerSender) {
        self.senders += usize::from(sends(&turn));
        self.exclusive += usize::from(turn.is_exclusive());
        self.turns.push_back(turn);
        self.answers.push_back(answer);
    }

    /// Takes the next batch: turns that contend for no run with a batch in progress or a separate retry. `None` if
    /// there are none, or if an exclusive turn makes them wait.
    pub(super) fn take(&mut self, commit_concurrency: usize) -> Option<Batch> {
        if self.turns.is_empty() || self.waits_for_exclusive() {
            return None;
        }
        let (turns, answers) =
            if self.is_contention_impossible() { self.take_first() } else { self.take_uncontended() };
        if turns.is_empty() {
            return None;
        }
        let number = self.next_batch;
        self.next_batch += 1;
        // With one commit at a time there is no other batch to contend with.
        let runs: Vec<RunId> =
            if commit_concurrency > 1 { turns.iter().flat_map(contends_for).collect() } else { Vec::new() };
        if let Some(contention) = &mut self.contention {
            contention.runs.extend(&runs);
        }
        let senders = turns.iter().filter(|turn| sends(turn)).count();
        let exclusive = turns.iter().filter(|turn| turn.is_exclusive()).count();
        (self.senders, self.exclusive) = (self.senders - senders, self.exclusive - exclusive);
        let (sends, is_exclusive) = (senders > 0, exclusive > 0);
        self.batches.push(BatchInProgress { number, sends, is_exclusive, runs });
        let (turns, answers) = if sends { receivers_first(turns, answers) } else { (turns, answers) };
        Some(Batch { number, turns, answers })
    }

    /// Whether the next batch has to wait for those in progress, because it or one of those has an exclusive turn.
    fn waits_for_exclusive(&self) -> bool {
        !self.batches.is_empty()
            && (self.exclusive > 0 || self.batches.iter().any(|batch| batch.is_exclusive))
    }

    /// Takes the turns that arrived first, at most one batch.
    fn take_first(&mut self) -> (Vec<Turn>, Vec<AnswerSender>) {
        self.contention = None;
        let count = self.turns.len().min(BATCH_TURNS_MAX);
        let spare = if count >= LARGE_BATCH { self.spare.pop() } else { None };
        let mut turns = spare.unwrap_or_default();
        turns.reserve_exact(count);
        turns.extend(self.turns.drain(..count));
        (turns, self.answers.drain(..count).collect())
    }

    /// Whether no waiting turn can contend for a run with a batch in progress. Only turns that send to other runs can,
    /// and these are rare.
    fn is_contention_impossible(&self) -> bool {
        self.retried_separately.is_empty()
            && (self.batches.is_empty() || self.senders == 0 && !self.batches.iter().any(|batch| batch.sends))
    }

    /// Takes the turns that can be committed now, at most one batch, and leaves the others in order.
    fn take_uncontended(&mut self) -> (Vec<Turn>, Vec<AnswerSender>) {
        let mut contention = self.known_contention();
        let (mut turns, mut answers) = (Vec::new(), Vec::new());
        let (new_turns, new_answers) =
            (self.turns.split_off(contention.waiting), self.answers.split_off(contention.waiting));
        for (turn, answer) in new_turns.into_iter().zip(new_answers) {
            let has_room = turns.len() < BATCH_TURNS_MAX;
            if has_room && !must_wait(&turn, &mut contention.runs) {
                turns.push(turn);
                answers.push(answer);
            } else {
                contention.waiting += usize::from(has_room);
                self.turns.push_back(turn);
                self.answers.push_back(answer);
            }
        }
        self.contention = Some(contention);
        (turns, answers)
    }

    /// Takes what is known about the turns that must wait.
    fn known_contention(&mut self) -> Contention {
        self.contention.take().unwrap_or_else(|| {
            let batches = self.batches.iter().flat_map(|batch| &batch.runs);
            let runs = batches.chain(self.retried_separately.keys()).copied().collect();
            Contention { runs, waiting: 0 }
        })
    }

    /// Records that a group of blocked turns that contend for this run is being retried outside of the batches.
    pub(super) fn begin_separate_retry(&mut self, run: RunId) {
        *self.retried_separately.entry(run).or_default() += 1;
        if let Some(contention) = &mut self.contention {
            contention.runs.insert(run);
        }
    }

    /// Records the end of a separate retry: the group was answered, or the run stays locked for so long that other turns
    /// do not wait for the group any more.
    pub(super) fn end_separate_retry(&mut self, run: RunId) {
        if let Some(groups) = self.retried_separately.get_mut(&run) {
            *groups -= 1;
            if *groups == 0 {
                self.retried_separately.remove(&run);
                self.contention = None;
            }
        }
    }

    /// Whether [`take`](Self::take) would return a batch. Keeps what it finds out about the turns that must wait.
    pub(super) fn has_batch(&mut self) -> bool {
        if self.turns.is_empty() || self.waits_for_exclusive() {
            return false;
        }
        if self.is_contention_impossible() {
            return true;
        }
        let mut contention = self.known_contention();
        let unexamined = self.turns.range(contention.waiting..);
        contention.waiting += unexamined.take_while(|turn| must_wait(turn, &mut contention.runs)).count();
        let has_batch = contention.waiting < self.turns.len();
        self.contention = Some(contention);
        has_batch
    }

    /// Removes a batch that was answered or given up, and releases the turns that waited for it.
    pub(super) fn batch_ended(&mut self, number: u64) {
        self.batches.retain(|batch| batch.number != number);
        self.contention = None;
        let first = self.batches.first().map_or(u64::MAX, |batch| batch.number);
        // Turns that arrived earlier wait for fewer batches, so `deferred` is sorted.
        let released = self.deferred.partition_point(|deferred| deferred.before_batch <= first);
        if released > 0 {
            let released: Vec<_> = self.deferred.drain(..released).collect();
            released.into_iter().for_each(|DeferredTurn { turn, answer, .. }| self.add(turn, answer));
        }
    }
}

/// The runs that a turn sends to.
fn receivers(turn: &Turn) -> impl Iterator<Item = RunId> {
    turn.outbox.iter().flat_map(|outbox| outbox.messages.iter().map(|message| message.run))
}

/// Whether a turn sends to other runs.
fn sends(turn: &Turn) -> bool {
    receivers(turn).next().is_some()
}

/// The runs whose rows a turn may lock in the world: its own, and those that it sends to.
fn contends_for(turn: &Turn) -> impl Iterator<Item = RunId> {
    std::iter::once(turn.run).chain(receivers(turn))
}

/// Whether a turn contends for one of these runs. If so, its own are added to them: later turns that contend for those
/// must not overtake it.
fn must_wait(turn: &Turn, contended: &mut RunSet) -> bool {
    let waits = contends_for(turn).any(|run| contended.contains(&run));
    if waits {
        contended.extend(contends_for(turn));
    }
    waits
}

/// The run that a turn is most likely blocked by: the first that it sends to, otherwise its own.
pub(super) fn contended_run(turn: &Turn) -> RunId {
    receivers(turn).next().unwrap_or(turn.run)
}

/// Moves the turns of runs that other turns of the batch send to in front of those, so that a world need not split the
/// batch. The turns are from different runs and none was answered, so this breaks no promise about their order.
fn receivers_first(turns: Vec<Turn>, answers: Vec<AnswerSender>) -> (Vec<Turn>, Vec<AnswerSender>) {
    let sent_to: RunSet = turns.iter().flat_map(receivers).collect();
    let all = turns.into_iter().zip(answers);
    let (first, rest): (Vec<_>, Vec<_>) = all.partition(|(turn, _)| sent_to.contains(&turn.run));
    first.into_iter().chain(rest).unzip()
}

#[cfg(test)]
pub(super) mod tests {
    use outlast_core::turn::LastTurn;
    use outlast_core::{
        Event, Headers, MessageBody, MessageId, NewMessage, OpNumber, Outbox, RunId, Timestamp, TurnId,
    };

    use super::*;

    pub(in super::super) fn turn(run: u128, has_events: bool) -> Turn {
        let dropped = Event::StepDropped { op: OpNumber(0) };
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

    pub(in super::super) fn sends(run: u128, to: u128) -> Turn {
        let (id, body) = (MessageId::from_bits(run), MessageBody::Wake { op: None });
        let message = NewMessage { id, run: RunId::from_bits(to), body, headers: Headers::new() };
        let outbox = Outbox { messages: vec![message], ..Default::default() };
        Turn { outbox: Some(Box::new(outbox)), ..turn(run, true) }
    }

    fn put(queue: &mut CommitQueue, run: u128, has_events: bool) {
        queue.put(turn(run, has_events), oneshot::channel().0);
    }

    fn take(queue: &mut CommitQueue) -> Option<(u64, Vec<u128>)> {
        let Batch { number, turns, .. } = queue.take(2)?;
        Some((number, turns.iter().map(|turn| turn.run.bits()).collect()))
    }

    #[test]
    fn turns_that_contend_for_a_run_are_in_one_batch_with_its_own_turn_in_front() {
        let mut queue = CommitQueue::default();
        queue.put(sends(2, 1), oneshot::channel().0);
        queue.put(sends(3, 1), oneshot::channel().0);
        put(&mut queue, 1, true);
        put(&mut queue, 4, true);
        assert_eq!(take(&mut queue), Some((0, vec![1, 2, 3, 4])));
        queue.put(sends(5, 1), oneshot::channel().0);
        put(&mut queue, 1, true);
        queue.put(sends(6, 9), oneshot::channel().0);
        assert_eq!(take(&mut queue), Some((1, vec![6])), "5 and 1 contend for 1 with batch 0");
        assert!(!queue.has_batch());
        queue.batch_ended(0);
        assert!(queue.has_batch());
        assert_eq!(take(&mut queue), Some((2, vec![1, 5])));
    }

    #[test]
    fn there_is_no_batch_if_all_turns_wait_for_a_turn_that_has_to_wait() {
        let mut queue = CommitQueue::default();
        queue.put(sends(1, 9), oneshot::channel().0);
        assert_eq!(take(&mut queue), Some((0, vec![1])));
        queue.put(sends(2, 1), oneshot::channel().0);
        queue.put(sends(3, 2), oneshot::channel().0);
        assert!(!queue.has_batch(), "2 waits for batch 0, and 3 must not overtake 2");
        assert_eq!(take(&mut queue), None);
        queue.batch_ended(0);
        assert_eq!(take(&mut queue), Some((1, vec![2, 3])));
    }

    #[test]
    fn turns_wait_for_separately_retried_turns_that_contend_for_the_same_run() {
        let mut queue = CommitQueue::default();
        queue.begin_separate_retry(RunId::from_bits(1));
        queue.put(sends(2, 1), oneshot::channel().0);
        assert!(!queue.has_batch());
        put(&mut queue, 3, true);
        assert_eq!(take(&mut queue), Some((0, vec![3])));
        queue.end_separate_retry(RunId::from_bits(1));
        assert_eq!(take(&mut queue), Some((1, vec![2])));
    }

    #[test]
    fn a_turn_without_events_waits_for_the_batches_in_progress() {
        let mut queue = CommitQueue::default();
        put(&mut queue, 1, false);
        put(&mut queue, 2, true);
        assert_eq!(take(&mut queue), Some((0, vec![1, 2])), "no batch is in progress");
        queue.batch_ended(0);
        put(&mut queue, 2, true);
        assert_eq!(take(&mut queue), Some((1, vec![2])));
        put(&mut queue, 3, true);
        assert_eq!(take(&mut queue), Some((2, vec![3])));
        put(&mut queue, 4, false);
        put(&mut queue, 5, true);
        assert_eq!(take(&mut queue), Some((3, vec![5])), "4 waits for the batches 1 and 2");
        queue.batch_ended(2);
        assert_eq!(take(&mut queue), None);
        queue.batch_ended(1);
        assert!(!queue.has_batch(), "4 is exclusive, and batch 3 is in progress");
        put(&mut queue, 6, true);
        assert_eq!(take(&mut queue), None, "6 must not overtake 4");
        queue.batch_ended(3);
        assert_eq!(take(&mut queue), Some((4, vec![4, 6])));
        put(&mut queue, 7, true);
        assert!(!queue.has_batch(), "batch 4 is committed alone");
        queue.batch_ended(4);
        assert_eq!(take(&mut queue), Some((5, vec![7])));
    }

    #[test]
    fn turns_that_must_wait_are_examined_once_for_each_batch() {
        let mut queue = CommitQueue::default();
        queue.put(sends(2, 1), oneshot::channel().0);
        assert_eq!(take(&mut queue), Some((0, vec![2])));
        for run in 3..103 {
            queue.put(sends(run, 1), oneshot::channel().0);
            // It still knows of the others, and examines only this one.
            let waiting = queue.contention.as_ref().map_or(0, |contention| contention.waiting);
            assert_eq!(waiting as u128, run - 3);
            assert!(!queue.has_batch());
            assert_eq!(take(&mut queue), None);
        }
        put(&mut queue, 200, true);
        assert_eq!(take(&mut queue), Some((1, vec![200])), "it contends for nothing");
        queue.batch_ended(0);
        assert_eq!(take(&mut queue), Some((2, (3..103).collect())));
    }

    #[test]
    fn turns_behind_a_full_batch_need_not_wait() {
        let mut queue = CommitQueue::default();
        queue.put(sends(2, 1), oneshot::channel().0);
        assert_eq!(take(&mut queue), Some((0, vec![2])));
        let last = 10 + BATCH_TURNS_MAX as u128;
        (10..=last).for_each(|run| put(&mut queue, run, true));
        assert_eq!(take(&mut queue).map(|(_, runs)| runs.len()), Some(BATCH_TURNS_MAX));
        assert_eq!(take(&mut queue), Some((2, vec![last])));
    }

    #[test]
    fn what_is_known_about_contention_changes_no_batch() {
        for seed in 1..500 {
            let mut state = seed;
            let mut random = |below: u128| {
                state = state * 6_364_136_223_846_793_005 % (1 << 64) + 1_442_695_040_888_963_407;
                (state >> 32) % below
            };
            // One of the two forgets before each call what it knows.
            let (mut queue, mut forgetful) = (CommitQueue::default(), CommitQueue::default());
            let (mut open, mut retried) = (Vec::new(), Vec::new());
            let most = if seed % 20 == 0 { 700 } else { 3 };
            for _ in 0..40 {
                forgetful.contention = None;
                let (kind, count) = (random(10), 1 + random(most));
                match kind {
                    0..5 => (0..count).for_each(|_| {
                        let (run, to, kind) = (1 + random(6), 1 + random(3), random(20));
                        let new = || if kind < 12 { sends(run, to) } else { turn(run, kind < 19) };
                        queue.put(new(), oneshot::channel().0);
                        forgetful.put(new(), oneshot::channel().0);
                    }),
                    5..7 if open.len() < 2 => {
                        let taken = take(&mut queue);
                        assert_eq!(taken, take(&mut forgetful), "seed {seed}");
                        open.extend(taken.map(|(number, _)| number));
                    }
                    7 if !open.is_empty() => {
                        let number = open.swap_remove(random(open.len() as u128) as usize);
                        queue.batch_ended(number);
                        forgetful.batch_ended(number);
                    }
                    8 => {
                        let run = RunId::from_bits(1 + random(3));
                        retried.push(run);
                        queue.begin_separate_retry(run);
                        forgetful.begin_separate_retry(run);
                    }
                    _ => {
                        if let Some(run) = retried.pop() {
                            queue.end_separate_retry(run);
                            forgetful.end_separate_retry(run);
                        }
                    }
                }
                forgetful.contention = None;
                assert_eq!(queue.has_batch(), forgetful.has_batch(), "seed {seed}");
            }
        }
    }
}
