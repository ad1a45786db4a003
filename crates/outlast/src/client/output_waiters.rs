//! The callers of this process that wait for the output of a run, with one timer for all callers of a world.
//!
//! A world notifies a waiting caller when its run ends ([`World::ended`]), so an idle caller needs neither a timer nor a
//! call. Three things remain that a notification does not cover:
//!
//! * the timeout of the call;
//! * whether the run is stuck: a stuck run has not ended, and nobody notifies of it;
//! * whether a notification was lost: a world must not lose one, but a caller must not wait forever if it does.
//!
//! One task per world does this for all callers. It sleeps until the next timeout or check. A check first asks the world
//! how many runs are stuck, which costs the same however many callers wait, and searches only if there are any. After
//! that it lets some callers read again whether their run has ended, the next ones with the next check; worlds combine
//! such reads into one query.
//!
//! The task runs on the runtime of the caller that needed it. If that runtime shuts down, the other callers are woken,
//! and one of them starts the task again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Fuse;
use outlast_core::limits::PAGE_RUNS_MAX;
use outlast_core::{
    BuiltInRuns, ListOrder, QueuedSteps, RunId, RunQuery, RunView, Status, Timestamp, World, WorldError,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::local_workers::LocalWorkers;
use crate::clock::pause;

/// When a caller is first included in a check. Most callers do not wait for so long.
const FIRST_CHECK: Duration = Duration::from_secs(1);

/// The time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The number of callers that read again after a check whether their run has ended.
const READS_PER_CHECK: usize = 100;

/// The longest sleep before the world's clock is read again, so that an adjusted clock takes effect.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A signal to a waiting caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WaitSignal {
    /// The time until which it waits has come.
    TimedOut,
    /// The run is stuck, with the message.
    Stuck(String),
    /// Read again whether the run has ended.
    ReadAgain,
}

/// The callers that wait for outputs of one world.
#[derive(Debug, Default)]
pub(crate) struct OutputWaiters {
    state: Mutex<WaitersState>,
    /// Notified when the timer is due earlier than it knows.
    is_due_earlier: Notify,
}

#[derive(Debug, Default)]
struct WaitersState {
    /// By a number that increases with every caller.
    waiters: BTreeMap<u64, WaitingCaller>,
    next_number: u64,
    deadlines: BTreeSet<(Timestamp, u64)>,
    /// Callers with a lower number were part of a check.
    checked_below: u64,
    last_check: Option<Timestamp>,
    /// Whether a check is in progress.
    is_checking: bool,
    /// The number of the last caller that was asked to read again.
    last_read_again: Option<u64>,
    has_timer: bool,
    /// When the timer wakes.
    timer_due: Option<Timestamp>,
}

#[derive(Debug)]
struct WaitingCaller {
    run: RunId,
    since: Timestamp,
    signal: Option<WaitSignal>,
    waker: Option<Waker>,
}

impl WaitersState {
    /// Stores a signal for a caller. A later one replaces it, except that a read does not replace anything.
    fn signal(&mut self, number: u64, signal: WaitSignal) {
        let Some(caller) = self.waiters.get_mut(&number) else { return };
        if caller.signal.is_none() || signal != WaitSignal::ReadAgain {
            caller.signal = Some(signal);
        }
        if let Some(waker) = caller.waker.take() {
            waker.wake();
        }
    }

    /// When the next check is due; `None` if nobody waits, or a check is in progress.
    fn next_check(&self) -> Option<Timestamp> {
        if self.is_checking {
            return None;
        }
        let first = self.waiters.range(self.checked_below..).next();
        let first = first.map(|(_, caller)| caller.since.plus(FIRST_CHECK));
        let is_any_checked = self.waiters.range(..self.checked_below).next().is_some();
        let next = self.last_check.filter(|_| is_any_checked).map(|last| last.plus(CHECK_INTERVAL));
        first.into_iter().chain(next).min()
    }

    /// When the timer is due.
    fn next_due(&self) -> Option<Timestamp> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        self.next_check().into_iter().chain(deadline).min()
    }

    /// Tells the callers whose time is over.
    fn expire(&mut self, now: Timestamp) {
        while let Some(&(deadline, number)) = self.deadlines.first()
            && deadline <= now
        {
            self.deadlines.pop_first();
            self.signal(number, WaitSignal::TimedOut);
        }
    }

    /// Begins a check, if it is due. Returns the awaited runs.
    fn begin_check(&mut self, now: Timestamp) -> Option<BTreeSet<RunId>> {
        self.next_check().filter(|due| *due <= now)?;
        self.is_checking = true;
        (self.last_check, self.checked_below) = (Some(now), self.next_number);
        Some(self.waiters.values().map(|caller| caller.run).collect())
    }

    /// Tells all callers that wait for this run that it is stuck.
    fn tell_stuck(&mut self, stuck: &BTreeMap<RunId, String>) {
        let waiting = self.waiters.iter().filter_map(|(number, caller)| {
            stuck.get(&caller.run).map(|message| (*number, WaitSignal::Stuck(message.clone())))
        });
        let waiting: Vec<_> = waiting.collect();
        waiting.into_iter().for_each(|(number, signal)| self.signal(number, signal));
    }

    /// Lets the next callers read again whether their run has ended.
    fn read_some_again(&mut self) {
        let after = self.last_read_again.map_or(0, |last| last + 1);
        let numbers = self.waiters.range(after..).chain(self.waiters.range(..after));
        let numbers: Vec<_> = numbers.map(|(number, _)| *number).take(READS_PER_CHECK).collect();
        self.last_read_again = numbers.last().copied();
        numbers.into_iter().for_each(|number| self.signal(number, WaitSignal::ReadAgain));
    }
}

/// One waiting caller, until this is dropped.
pub(super) struct OutputWaiter<'a> {
    local: &'a Arc<LocalWorkers>,
    world: &'a Arc<dyn World>,
    number: u64,
    end: Timestamp,
}

impl<'a> OutputWaiter<'a> {
    /// Registers a caller that waits for the end of a run until `end`.
    pub(super) fn new(
        local: &'a Arc<LocalWorkers>,
        world: &'a Arc<dyn World>,
        run: RunId,
        end: Timestamp,
    ) -> Self {
        let since = world.clock().now();
        let mut state = local.outputs.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.waiters.insert(number, WaitingCaller { run, since, signal: None, waker: None });
        if end != Timestamp::NEVER {
            state.deadlines.insert((end, number));
        }
        if state.has_timer && state.next_due() < state.timer_due {
            local.outputs.is_due_earlier.notify_one();
        }
        drop(state);
        Self { local, world, number, end }
    }

    /// Waits for a signal.
    pub(super) async fn signal(&self) -> WaitSignal {
        std::future::poll_fn(|cx| {
            let mut state = self.local.outputs.state.lock();
            let needs_timer = !std::mem::replace(&mut state.has_timer, true);
            let Some(caller) = state.waiters.get_mut(&self.number) else { return Poll::Pending };
            let polled = match caller.signal.take() {
                Some(signal) => Poll::Ready(signal),
                None => {
                    caller.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            };
            drop(state);
            if needs_timer {
                let timer = Timer { local: self.local.clone(), world: Arc::downgrade(self.world) };
                tokio::spawn(timer.run());
            }
            polled
        })
        .await
    }
}

impl Drop for OutputWaiter<'_> {
    fn drop(&mut self) {
        let mut state = self.local.outputs.state.lock();
        let removed = state.waiters.remove(&self.number);
        state.deadlines.remove(&(self.end, self.number));
        drop(state);
        // Dropping a waker may run code of an executor.
        drop(removed);
    }
}

/// The timer of all callers.
struct Timer {
    local: Arc<LocalWorkers>,
    /// Weak, so that the timer does not keep the world open.
    world: Weak<dyn World>,
}

impl Timer {
    /// Works until nobody waits any more.
    async fn run(self) {
        // A check may take long, and must not delay timeouts.
        let mut check = Fuse::terminated();
        while let Some(now) = self.world.upgrade().map(|world| world.clock().now()) {
            let outputs = &self.local.outputs;
            let (due, awaited) = {
                let mut state = outputs.state.lock();
                if state.waiters.is_empty() {
                    return;
                }
                state.expire(now);
                let awaited = state.begin_check(now);
                state.timer_due = state.next_due();
                (state.timer_due, awaited)
            };
            if let Some(awaited) = awaited {
                check = self.check(awaited).boxed().fuse();
            }
            let left = due.map_or(SLEEP_MAX, |due| due.since(now).min(SLEEP_MAX));
            tokio::select! {
                biased;
                () = &mut check => {}
                () = outputs.is_due_earlier.notified() => {}
                () = pause(left) => {}
            }
        }
    }

    /// Tells the callers whose run is stuck, and lets some of the others read again whether their run has ended.
    async fn check(&self, awaited: BTreeSet<RunId>) {
        let stuck = match self.world.upgrade() {
            Some(world) => find_stuck(&*world, self.local.not_held(awaited)).await,
            None => return,
        };
        let mut state = self.local.outputs.state.lock();
        match stuck {
            Ok(stuck) if stuck.is_empty() => {}
            Ok(stuck) => state.tell_stuck(&stuck),
            // A caller that reads again reports the outage.
            Err(error) => {
                tracing::debug!(%error, "cannot check whether awaited runs are stuck; trying again")
            }
        }
        state.read_some_again();
        state.is_checking = false;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut state = self.local.outputs.state.lock();
        (state.has_timer, state.timer_due, state.is_checking) = (false, None, false);
        let wakers: Vec<_> = state.waiters.values_mut().filter_map(|caller| caller.waker.take()).collect();
        drop(state);
        // The first of them that is polled starts another timer.
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Which of the runs are stuck, with the messages.
async fn find_stuck(
    world: &dyn World,
    awaited: BTreeSet<RunId>,
) -> Result<BTreeMap<RunId, String>, WorldError> {
    let (Some(first), Some(last)) = (awaited.first().copied(), awaited.last().copied()) else {
        return Ok(BTreeMap::new());
    };
    let count = world.counts().await?.get(&Status::Stuck).copied().unwrap_or(0);
    let mut stuck = BTreeMap::new();
    if count == 0 {
        return Ok(stuck);
    }
    // Read the awaited runs or all stuck runs, whatever takes fewer calls.
    if awaited.len() as u64 <= 1 + count / PAGE_RUNS_MAX as u64 {
        for run in awaited {
            match world.run(run).await {
                Ok(view) => stuck.extend(stuck_message(view)),
                // It was deleted. Its caller finds that out when it reads again.
                Err(WorldError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        return Ok(stuck);
    }
    let mut query = RunQuery {
        statuses: vec![Status::Stuck],
        queued_steps: QueuedSteps::Listed,
        built_in: BuiltInRuns::Listed,
        order: ListOrder::OldestFirst,
        after: first.bits().checked_sub(1).map(RunId::from_bits),
        limit: PAGE_RUNS_MAX,
        ..RunQuery::default()
    };
    loop {
        let page = world.runs(query.clone()).await?;
        let is_awaited = |view: &RunView| awaited.contains(&view.id);
        stuck.extend(page.runs.into_iter().filter(is_awaited).filter_map(stuck_message));
        let Some(next) = page.next.filter(|next| *next < last) else { return Ok(stuck) };
        query.after = Some(next);
    }
}

/// The run and the message, if it is stuck.
fn stuck_message(view: RunView) -> Option<(RunId, String)> {
    let stuck = view.stuck.filter(|_| view.status == Status::Stuck)?;
    Some((view.id, stuck.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_micros(0);

    fn at(seconds: u64) -> Timestamp {
        START.plus(Duration::from_secs(seconds))
    }

    /// A caller that waits for the run with its number.
    fn add(state: &mut WaitersState, since: Timestamp) -> u64 {
        let number = state.next_number;
        state.next_number += 1;
        let run = RunId::from_bits(number.into());
        state.waiters.insert(number, WaitingCaller { run, since, signal: None, waker: None });
        number
    }

    fn signals(state: &mut WaitersState) -> Vec<(u64, WaitSignal)> {
        let signals = state.waiters.iter_mut().map(|(number, caller)| (*number, caller.signal.take()));
        signals.filter_map(|(number, signal)| Some((number, signal?))).collect()
    }

    #[test]
    fn callers_are_checked_after_a_second_and_then_together_every_ten_seconds() {
        let mut state = WaitersState::default();
        assert_eq!(state.next_due(), None);
        add(&mut state, at(0));
        add(&mut state, at(3));
        assert_eq!(state.next_due(), Some(at(1)));
        assert_eq!(state.begin_check(at(0)), None);
        assert_eq!(state.begin_check(at(1)).map(|runs| runs.len()), Some(2));
        assert_eq!(state.next_due(), None, "a check is in progress");
        state.is_checking = false;
        assert_eq!(state.next_due(), Some(at(11)));
        add(&mut state, at(4));
        assert_eq!(state.next_due(), Some(at(5)), "the first check of the new caller");
    }

    #[test]
    fn a_caller_is_told_at_its_own_deadline() {
        let mut state = WaitersState::default();
        let (early, late) = (add(&mut state, at(0)), add(&mut state, at(0)));
        state.deadlines.extend([(at(9), late), (at(7), early)]);
        state.expire(at(8));
        assert_eq!(signals(&mut state), [(early, WaitSignal::TimedOut)]);
        state.expire(at(9));
        assert_eq!(signals(&mut state), [(late, WaitSignal::TimedOut)]);
    }

    #[test]
    fn all_callers_read_again_in_turn() {
        let mut state = WaitersState::default();
        let callers = READS_PER_CHECK as u64 * 5 / 2;
        for _ in 0..callers {
            add(&mut state, at(0));
        }
        let mut read = BTreeSet::new();
        for _ in 0..3 {
            state.read_some_again();
            let signals = signals(&mut state);
            assert_eq!(signals.len(), READS_PER_CHECK, "as many each time");
            read.extend(signals.into_iter().map(|(number, _)| number));
        }
        assert_eq!(read.len() as u64, callers);
    }

    #[test]
    fn a_read_does_not_replace_other_signals() {
        let mut state = WaitersState::default();
        let number = add(&mut state, at(0));
        state.tell_stuck(&BTreeMap::from([(RunId::from_bits(number.into()), "why".into())]));
        state.read_some_again();
        assert_eq!(signals(&mut state), [(number, WaitSignal::Stuck("why".into()))]);
    }
}
